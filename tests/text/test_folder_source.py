"""Tokenizers from folders as transformers writes them (cases B24, B51)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, processors

from pagedd.errors import ModelError
from pagedd.models.resolve import ModelFiles
from pagedd.text.folder_source import read_folder
from pagedd.text.prepare import prepare
from pagedd.text.tokenizer import TextModel
from tests.text import small_models

BOS, EOS = 1, 2


def write_folder(folder: Path, *, processor: bool = False, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer.from_str(small_models.byte_level_tokenizer().to_str())
    if processor:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", BOS)]
        )
    tokenizer.enable_truncation(5)
    tokenizer.save(str(folder / "tokenizer.json"))
    given = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(given))
    return folder


def load(folder: Path, cache: Path) -> TextModel:
    return TextModel.load(prepare(ModelFiles("folder", folder, "small"), cache=cache))


WITH_BOS = "{{ bos_token }}{{ messages[0]['content'] }}"
WITHOUT_BOS = "{{ messages[0]['content'] }}"


@pytest.mark.parametrize("template", [WITH_BOS, WITHOUT_BOS])
@pytest.mark.parametrize("processor", [False, True])
@pytest.mark.parametrize("flag", [None, False, True])
def test_a_chat_has_one_bos_and_a_raw_prompt_what_the_tokenizer_says(
    tmp_path: Path, template: str, processor: bool, flag: bool | None
) -> None:
    config = {} if flag is None else {"add_bos_token": flag}
    folder = write_folder(tmp_path / "m", processor=processor, chat_template=template, **config)
    model = load(folder, tmp_path)
    chat = model.encode_chat([{"role": "user", "content": "hello"}], 99)
    assert chat == [BOS, *model.encode("hello", add_bos=False)]
    raw = model.encode_bounded("hello", 99)
    assert raw.count(BOS) == (processor if flag is None else flag)


def test_without_a_bos_token_there_is_none(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", bos_token=None, chat_template=WITH_BOS)
    model = load(folder, tmp_path)
    assert model.bos_id is None
    ids = model.encode_chat([{"role": "user", "content": "hello"}], 99)
    assert ids == model.encode("hello", add_bos=True) == model.encode("hello", add_bos=False)


def test_the_end_tokens_of_all_files(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 100000, -1]}')
    (folder / "config.json").write_text('{"eos_token_id": 9}')
    assert load(folder, tmp_path).eos_ids == {EOS, 7, 9}


def test_truncation_of_the_file_is_off(tmp_path: Path) -> None:
    model = load(write_folder(tmp_path / "m"), tmp_path)
    assert len(model.encode("x" * 40, add_bos=False)) > 5


def test_where_the_chat_template_is_taken_from(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "config"}]
    folder = write_folder(tmp_path / "m", chat_template=named)
    assert read_folder(folder).chat_template == "config"
    (folder / "chat_template.json").write_text('{"chat_template": "json"}')
    assert read_folder(folder).chat_template == "json"
    (folder / "chat_template.jinja").write_text("jinja")
    assert read_folder(folder).chat_template == "jinja"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "[]"),
        ("generation_config.json", "nonsense"),
        ("chat_template.json", '{"chat_template": 3}'),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str, content: str) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / name).write_text(content)
    with pytest.raises(ModelError) as raised:
        read_folder(folder)
    assert "\n" not in raised.value.message


def test_an_unknown_decoder_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="WordPiece"):
        prepare(ModelFiles("folder", folder, "small"), cache=tmp_path)


def test_a_folder_without_any_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelError, match="holds no tokenizer"):
        read_folder(tmp_path)


def test_without_transformers_what_it_would_be_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "transformers", None)  # importing it fails
    with pytest.raises(ModelError, match=r"^[^\n]+no tokenizer\.json, and without transformers"):
        read_folder(tmp_path)


def test_vocab_and_merges_are_converted(tmp_path: Path) -> None:
    """The older files, through transformers: same tokens as tokenizer.json."""
    reference = small_models.byte_level_tokenizer()
    content = json.loads(reference.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(content["vocab"]))
    merges = "\n".join(" ".join(merge) for merge in content["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    converted = read_folder(tmp_path).tokenizer
    for text in small_models.CORPUS:
        assert converted.encode(text).ids == reference.encode(text).ids


def test_a_tokenizer_json_needs_no_transformers(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    code = (
        "import sys; from pathlib import Path\n"
        "from pagedd.models.resolve import ModelFiles\n"
        "from pagedd.text.prepare import prepare\n"
        f"files = ModelFiles('folder', Path({str(folder)!r}), 'm')\n"
        f"prepare(files, cache=Path({str(tmp_path)!r}))\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
