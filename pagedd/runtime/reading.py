"""What a step has drawn, on its way to the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagedd.core.plan import Sampled, TokenLogprobs, TopLogprob


@dataclass(frozen=True, slots=True)
class Reading:
    """Copies to the host that were added to the queue; to be read when the device has made them.

    ``tokens [padded draws]`` int64; ``order [draws]`` says where each draw is. For those that
    ``wanted`` log-probabilities (the number of the most likely ones, -1: none): ``chosen [draws]``,
    that of the drawn token, and the most likely ones ``values``, ``ids`` ``[draws, most]``.
    """

    tokens: Tensor
    order: npt.NDArray[np.int64]
    wanted: npt.NDArray[np.int64]
    chosen: Tensor | None = None
    values: Tensor | None = None
    ids: Tensor | None = None

    @classmethod
    def of(
        cls,
        tokens: Tensor,
        logits: Tensor,
        order: npt.NDArray[np.int64],
        wanted: npt.NDArray[np.int64],
        target: Tensor,
    ) -> Reading:
        """Add the copies of the step's ``tokens`` to ``target`` and of what its ``logits`` say."""
        target[: len(tokens)].copy_(tokens, non_blocking=True)
        if not len(wanted) or wanted.max() < 0:
            return cls(target, order, wanted)
        at = torch.from_numpy(order).to(logits.device)
        table = logits.index_select(0, at).log_softmax(dim=1)
        drawn = tokens.index_select(0, at).clamp(min=0)
        values, ids = table.topk(min(int(wanted.max()), logits.shape[1]), dim=1)
        chosen = table.gather(1, drawn[:, None])[:, 0]
        return cls(target, order, wanted, *(_to_host(each) for each in (chosen, values, ids)))

    @property
    def drawn(self) -> list[int]:
        """The tokens, in the order of the draws."""
        tokens: list[int] = self.tokens.numpy()[self.order].tolist()
        return tokens

    def sampled(self, slots: list[int]) -> tuple[Sampled, ...]:
        """One for each of ``slots``, in the order of the draws."""
        pairs = zip(slots, self.drawn, strict=True)
        if self.chosen is None or self.values is None or self.ids is None:
            return tuple(Sampled(slot, token) for slot, token in pairs)
        found = []
        for row, (slot, token) in enumerate(pairs):
            most = int(self.wanted[row])
            entry = None
            if most >= 0 and token >= 0:
                alternatives = zip(
                    self.ids[row, :most].tolist(), self.values[row, :most].tolist(), strict=True
                )
                top = tuple(TopLogprob(*each) for each in alternatives)
                entry = TokenLogprobs(float(self.chosen[row]), top)
            found.append(Sampled(slot, token, entry))
        return tuple(found)


def _to_host(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
