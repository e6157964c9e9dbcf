"""Reading a configuration so that nothing in it is ignored.

Every key that is read is marked; what is left at the end must be switched off or known to have no
influence on what the model computes. Anything else is refused by its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pagedd.errors import ModelError
from pagedd.models.gguf_meta import shown

# What training, generation defaults and tools leave in config.json.
_HARMLESS_KEYS = """
    architectures auto_map bos_token_id chunk_size_feed_forward cls_token_id
    decoder_start_token_id diversity_penalty do_sample dtype early_stopping
    encoder_no_repeat_ngram_size exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label initializer_range
    is_decoder is_llama_config label2id length_penalty license max_length max_new_tokens
    max_sequence_length min_length model_name model_type no_repeat_ngram_size num_beam_groups
    num_beams num_labels num_return_sequences output_attentions output_hidden_states pad_token_id
    prefix pretraining_tp problem_type remove_invalid_values repetition_penalty return_dict
    return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature
    tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript typical_p use_bfloat16
    use_cache
"""
HARMLESS = frozenset(_HARMLESS_KEYS.split())
HARMLESS_STARTS = ("_", "transformers", "unsloth")
HARMLESS_ENDS = ("dropout", "_pdrop")


class Settings:
    """One JSON object with typed access; every error is a ``ModelError`` naming file and key.

    ``null`` counts as missing.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self._read: set[str] = set()

    def get(self, key: str) -> Any:
        """The raw value, ``None`` when it is missing."""
        self._read.add(key)
        return self.values.get(key)

    def has(self, key: str) -> bool:
        """Whether the key is written at all, ``null`` included."""
        return key in self.values

    def error(self, key: str, expected: str) -> ModelError:
        """The error for a value that is not as ``expected``."""
        value = _short(self.values.get(key), repr)
        return ModelError(f"{self.where}: {key} is {value}, expected {expected}")

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """An integer ≥ ``minimum``; missing without a default is an error."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise ModelError(f"{self.where}: {key} is missing")
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(key, f"an integer of at least {minimum}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number > 0; missing without a default is an error."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise ModelError(f"{self.where}: {key} is missing")
        if not _is_number(value) or value <= 0:
            raise self.error(key, "a number above 0")
        return float(value)

    def optional_number(self, key: str) -> float | None:
        """A finite number ≥ 0, or ``None``."""
        value = self.get(key)
        if value is not None and (not _is_number(value) or value < 0):
            raise self.error(key, "a number of at least 0")
        return None if value is None else float(value)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of ``count`` finite numbers > 0."""
        value = self.get(key)
        if (
            not isinstance(value, list)
            or len(value) != count
            or not all(_is_number(item) and item > 0 for item in value)
        ):
            raise self.error(key, f"a list of {count} numbers above 0")
        return tuple(float(item) for item in value)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def mapping(self, key: str) -> dict[str, Any] | None:
        """A JSON object; an empty one counts as missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(key, "an object")
        return value or None

    def refuse_unread(self) -> None:
        """Raise for the first key that nobody read, unless it is off or harmless."""
        for key, value in self.values.items():
            off = value is None or value is False or value in ("", [], {})
            if key in self._read or off or _is_harmless(key):
                continue
            raise ModelError(f"{self.where}: unsupported setting {shown(key)} = {_short(value)}")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; raises ``ModelError`` naming the file."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} is not a JSON object")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_harmless(key: str) -> bool:
    return key in HARMLESS or key.startswith(HARMLESS_STARTS) or key.endswith(HARMLESS_ENDS)


def _short(value: object, write: Callable[[object], str] = json.dumps) -> str:
    text = write(value)
    return text if len(text) <= 60 else text[:57] + "..."
