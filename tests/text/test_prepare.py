"""The cache of converted tokenizers: once, whole, renewed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pagedd.errors import ModelError
from pagedd.models.resolve import ModelFiles
from pagedd.text.info import INFO_FILE, TOKENIZER_FILE
from pagedd.text.prepare import prepare
from pagedd.text.tokenizer import TextModel
from tests.text import small_models


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    folder = tmp_path / "model"
    folder.mkdir()
    small_models.byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    return ModelFiles("folder", folder, "small")


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "text").iterdir())


def test_made_once(files: ModelFiles, tmp_path: Path) -> None:
    first = prepare(files, cache=tmp_path)
    stamp = (first / TOKENIZER_FILE).stat().st_mtime_ns
    assert prepare(files, cache=tmp_path) == first
    assert (first / TOKENIZER_FILE).stat().st_mtime_ns == stamp
    assert entries(tmp_path) == [first.name]


def test_a_changed_source_is_another_entry(files: ModelFiles, tmp_path: Path) -> None:
    first = prepare(files, cache=tmp_path)
    os.utime(files.path / "tokenizer.json", ns=(1, 1))
    second = prepare(files, cache=tmp_path)
    (files.path / "chat_template.jinja").write_text("x")
    third = prepare(files, cache=tmp_path)
    assert len({first, second, third}) == 3
    assert TextModel.load(third).chat.usable


@pytest.mark.parametrize("damage", ["cut", "swapped", "no_info", "bad_info", "no_tokenizer"])
def test_a_damaged_entry_is_made_again(files: ModelFiles, tmp_path: Path, damage: str) -> None:
    entry = prepare(files, cache=tmp_path)
    content = (entry / TOKENIZER_FILE).read_bytes()
    if damage == "cut":
        (entry / TOKENIZER_FILE).write_bytes(content[:100])
    elif damage == "swapped":
        (entry / TOKENIZER_FILE).write_bytes(content.replace(b"think", b"drink"))
    elif damage == "bad_info":
        (entry / INFO_FILE).write_text('{"name": 3}')
    else:
        (entry / (INFO_FILE if damage == "no_info" else TOKENIZER_FILE)).unlink()
    assert prepare(files, cache=tmp_path) == entry
    assert (entry / TOKENIZER_FILE).read_bytes() == content
    assert TextModel.load(entry).name == "small"
    assert entries(tmp_path) == [entry.name]


@pytest.mark.parametrize("damaged", [False, True])
def test_many_at_once(files: ModelFiles, tmp_path: Path, damaged: bool) -> None:
    if damaged:
        (prepare(files, cache=tmp_path) / INFO_FILE).write_text("")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: prepare(files, cache=tmp_path), range(24)))
    assert len(set(found)) == 1
    assert entries(tmp_path) == [found[0].name]
    assert (
        TextModel.load(found[0]).vocab_size == small_models.byte_level_tokenizer().get_vocab_size()
    )


def test_a_failed_conversion_leaves_nothing(files: ModelFiles, tmp_path: Path) -> None:
    (files.path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError):
        prepare(files, cache=tmp_path)
    assert not (tmp_path / "text").exists()


def test_a_cache_that_cannot_be_written_is_one_line(files: ModelFiles, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a file in the way")
    with pytest.raises(ModelError, match="cannot be written"):
        prepare(files, cache=tmp_path)


def test_loading_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        TextModel.load(tmp_path / "nothing")
