"""How byte-level vocabularies split a text into words, by the names that GGUF files use.

The names are the values of ``tokenizer.ggml.pre``; the expressions are those of the models' own
``tokenizer.json`` files. A wrong split makes other tokens than the model was trained on, so an
unknown name is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from pagedd.errors import ModelError

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_TAIL}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_TAIL}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Splitting:
    """``splits``: expressions applied one after the other; with ``gpt2`` GPT-2's comes last.

    ``digits``: every digit is a word. ``whole_words``: a word that is in the vocabulary is one
    token, whatever the merges. ``nfc``: text is composed first. ``bos``: BOS goes in front unless
    the file says otherwise.
    """

    splits: tuple[str, ...] = ()
    gpt2: bool = False
    digits: bool = False
    whole_words: bool = False
    nfc: bool = False
    bos: bool = False

    def pre_tokenizer(self) -> PreTokenizer:
        """The same as tokenizers' objects."""
        steps: list[PreTokenizer] = [
            pre_tokenizers.Split(Regex(split), behavior="isolated") for split in self.splits
        ]
        if self.digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.gpt2))
        return pre_tokenizers.Sequence(steps)

    def normalizer(self) -> normalizers.Normalizer | None:
        """Composition or nothing."""
        return normalizers.NFC() if self.nfc else None


_GPT2 = Splitting(gpt2=True)
_GPT2_DIGITS = Splitting(gpt2=True, digits=True)
_LLAMA_3 = Splitting(splits=(_LLAMA3,), whole_words=True, bos=True)
_QWEN_2 = Splitting(splits=(_QWEN2,), nfc=True)
_SPLITTINGS = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "mpt": _GPT2,
    "olmo": _GPT2,
    "smollm": _GPT2_DIGITS,
    "starcoder": _GPT2_DIGITS,
    "refact": _GPT2_DIGITS,
    "codeshell": _GPT2_DIGITS,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "llama-bpe": _LLAMA_3,
    "smaug-bpe": Splitting(splits=(_LLAMA3,)),
    "dbrx": Splitting(splits=(_LLAMA3,)),
    "qwen2": _QWEN_2,
    "deepseek-r1-qwen": _QWEN_2,
    "tekken": Splitting(splits=(_TEKKEN,), whole_words=True, bos=True),
    "deepseek-coder": Splitting(
        splits=(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+"), digits=True
    ),
    "deepseek-v3": Splitting(splits=(r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK_V3)),
}


def splitting(name: str) -> Splitting:
    """By the value of ``tokenizer.ggml.pre``. Errors: ``ModelError`` naming it."""
    found = _SPLITTINGS.get(name)
    if found is None:
        raise ModelError(
            f"the pre-tokenizer {name!r} (tokenizer.ggml.pre) is not supported; "
            f"known: {', '.join(sorted(_SPLITTINGS))}"
        )
    return found
