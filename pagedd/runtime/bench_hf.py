"""transformers' ``generate`` in static batches: what ``pagedd bench --against hf`` compares with.

Run as a child process: a job as JSON on standard input, lines of JSON on standard output
(``{"fraction", "what"}`` while it goes on, ``{"result"}`` at the end).

Requests go in order of arrival in batches of ``batch``; prompts are padded on the left to the
longest of the batch, and a batch runs to its longest output, as a static batch must. Only tokens
that were asked for are counted. The peer gets what suits it: torch's own number of threads, sdpa
attention, no compilation, greedy choice, no stop checks, and a warm-up that is not measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor

from pagedd.errors import PageddError, UsageError
from pagedd.models.gguf import GgufWeights, load_gguf_spec
from pagedd.models.resolve import ModelFiles, resolve
from pagedd.models.spec import ModelSpec, tensor_shapes

Item = tuple[list[int], int]  # prompt, output length
WARM_UP_TOKENS = 4


def load(job: dict[str, Any]) -> Any:
    """The model for transformers, on the job's device in the job's dtype. ``PageddError``."""
    files = resolve(job["model"], need_weights=job["load_format"] != "dummy")
    dtype = getattr(torch, job["dtype"])
    if files.kind == "gguf":
        model = _from_gguf(files, dtype)
    else:
        options = {"dtype": dtype, "attn_implementation": "sdpa"}
        if job["load_format"] == "dummy":
            config = transformers.AutoConfig.from_pretrained(files.path, local_files_only=True)
            model = transformers.AutoModelForCausalLM.from_config(config, **options)
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                files.path, local_files_only=True, **options
            )
    model.generation_config = transformers.GenerationConfig()
    return model.to(job["device"]).eval()


def _from_gguf(files: ModelFiles, dtype: torch.dtype) -> Any:
    """Our reader and transformers' model: its own reader takes over 20 s. Plain Llama only."""
    spec = load_gguf_spec(files.path)
    plain = spec.architecture == "LlamaForCausalLM" and spec.rope.kind == "default"
    if not plain or spec.rope.frequency_factors or any(spec.windows) or spec.qkv_bias:
        raise UsageError(
            f"{files.path}: transformers is measured with plain Llama GGUF files; "
            "name a safetensors folder"
        )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(_llama_config(spec))
    weights = GgufWeights(files.path, dtype)
    state = {name: weights.get(name) for name in tensor_shapes(spec)}
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    # what no checkpoint holds: the rotary frequencies
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    left = [name for name, value in model.named_parameters() if value.is_meta]
    if left:
        raise PageddError(f"{files.path}: transformers also wants {left[0]}")
    return model


def _llama_config(spec: ModelSpec) -> Any:
    return transformers.LlamaConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=spec.rms_norm_eps,
        max_position_embeddings=spec.max_position,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope.theta},
        tie_word_embeddings=spec.tie_embeddings,
        attn_implementation="sdpa",
    )


def left_padded(prompts: list[list[int]], device: str) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, both [prompts, longest] int64; padding (0) is on the left."""
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


def run_batch(model: Any, items: list[Item], device: str) -> None:
    """Greedy, all rows to the longest output: without an end token nothing ends early."""
    ids, mask = left_padded([prompt for prompt, _ in items], device)
    longest = max(output for _, output in items)
    with torch.inference_mode():
        found = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            min_new_tokens=longest,
            max_new_tokens=longest,
            eos_token_id=None,
            pad_token_id=0,
            use_cache=True,
        )
    assert found.shape == (len(items), ids.shape[1] + longest)


def measure(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Progress, then the result. Errors: ``PageddError``."""
    if job["threads"] is not None:
        torch.set_num_threads(job["threads"])
    device, size = job["device"], job["batch"]
    items: list[Item] = [(prompt, output) for prompt, output in job["items"]]
    yield {"fraction": 0.0, "what": "transformers: loading"}
    model = load(job)
    run_batch(model, [(items[0][0], WARM_UP_TOKENS)], device)
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    began = time.monotonic()
    for number, batch in enumerate(batches, 1):
        run_batch(model, batch, device)
        what = f"transformers: {number} of {len(batches)} batches"
        yield {"fraction": number / len(batches), "what": what}
    seconds = time.monotonic() - began
    tokens = sum(output for _, output in items)
    threads = torch.get_num_threads()
    yield {
        "result": {
            "version": transformers.__version__,
            "conditions": f"{job['dtype']}, static batches of {size} in order of arrival, each to "
            f"its longest output, padded left; greedy, sdpa attention, not compiled, {threads} "
            "threads; only tokens that were asked for are counted",
            "seconds": seconds,
            "batches": len(batches),
            "output_tokens": tokens,
            "output_tokens_per_s": tokens / seconds,
        }
    }


def main() -> int:
    """One job. A message of ours is one line on standard error."""
    transformers.logging.set_verbosity_error()
    try:
        for line in measure(json.load(sys.stdin)):
            print(json.dumps(line), flush=True)
    except PageddError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
