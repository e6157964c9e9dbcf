"""A name becomes files on this machine, or one line that says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagedd.errors import ModelError, ModelNotFound
from pagedd.models.catalog import CATALOG, DEFAULT_MODEL, CatalogEntry
from pagedd.models.resolve import ModelFiles, is_hub_id, resolve

GGUF = b"GGUF" + bytes(60)
TINY = CatalogEntry("fake==1.0", "fake", "fake/tiny.gguf", "tiny.gguf", "00", len(GGUF), 1)


@pytest.fixture(autouse=True)
def own_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def checkpoint(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    for file in files or ("model.safetensors",):
        (folder / file).write_bytes(b"x")
    return folder


def snapshot(base: Path, commit: str, *files: str, main: bool = True) -> Path:
    model = base / "models--owner--name"
    if main:
        (model / "refs").mkdir(parents=True, exist_ok=True)
        (model / "refs" / "main").write_text(commit)
    return checkpoint(model / "snapshots" / commit, *files)


def test_a_folder(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "my-model")
    assert resolve(str(folder)) == ModelFiles("folder", folder, "my-model")


def test_a_folder_named_from_within(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(checkpoint(tmp_path / "my-model"))
    assert resolve(".").name == "my-model"


def test_a_gguf_file_under_any_name(tmp_path: Path) -> None:
    for name in ("m.Q4_0.gguf", "blob"):
        path = tmp_path / name
        path.write_bytes(GGUF)
        assert resolve(str(path)) == ModelFiles("gguf", path, path.stem)


def test_home_is_expanded_where_no_shell_did(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "home" / "m")
    assert resolve("~/m").path == folder


def test_a_short_name_comes_from_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "cache/pagedd/models/tiny.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(GGUF)
    assert resolve("tiny", catalog={"tiny": TINY}) == ModelFiles("gguf", path, "tiny")


def test_the_default_model_is_a_short_name() -> None:
    assert DEFAULT_MODEL in CATALOG
    with pytest.raises(ModelNotFound, match=f"run pagedd pull {DEFAULT_MODEL}$"):
        resolve(DEFAULT_MODEL)


def test_a_short_name_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "cache/pagedd/models/tiny.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(GGUF[:40])
    with pytest.raises(ModelError, match=r"40 bytes instead of 64\): run pagedd pull tiny"):
        resolve("tiny", catalog={"tiny": TINY})


@pytest.mark.parametrize(
    ("variable", "value", "place"),
    [
        ("XDG_CACHE_HOME", "x", "x/pagedd/hub"),
        ("XDG_CACHE_HOME", "x", "x/huggingface/hub"),
        ("HF_HOME", "h", "h/hub"),
        ("HF_HUB_CACHE", "c", "c"),
        ("HUGGINGFACE_HUB_CACHE", "c", "c"),
    ],
)
def test_a_hub_id_in_either_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, place: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / value))
    folder = snapshot(tmp_path / place, "abc")
    assert resolve("owner/name") == ModelFiles("folder", folder, "owner/name")


def test_main_wins_over_newer_snapshots_and_incomplete_ones_are_passed_over(
    tmp_path: Path,
) -> None:
    base = tmp_path / "cache/pagedd/hub"
    old = snapshot(base, "old", main=False)
    main = snapshot(base, "main")
    new = snapshot(base, "new", main=False)
    for age, folder in enumerate((new, main, old)):
        os.utime(folder, (1e9 - age, 1e9 - age))
    assert resolve("owner/name").path == main
    (main / "model.safetensors").unlink()
    assert resolve("owner/name").path == new


def test_an_incomplete_snapshot_says_what_is_missing(tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "cache/pagedd/hub", "abc", "a.safetensors")
    shards = {"x": "a.safetensors", "y": "b.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(ModelNotFound, match=r"b\.safetensors, which is missing.*pull owner/name"):
        resolve("owner/name")


def test_a_hub_id_in_no_cache_names_the_command() -> None:
    with pytest.raises(ModelNotFound, match=r"in neither cache.*run pagedd pull owner/name$"):
        resolve("owner/name")


def test_a_folder_here_wins_over_the_hub(tmp_path: Path) -> None:
    snapshot(tmp_path / "cache/pagedd/hub", "abc")
    checkpoint(Path("owner/name"))
    assert resolve("owner/name").path == Path("owner/name")


@pytest.mark.parametrize(
    ("name", "is_id"),
    [
        ("owner/name", True),
        ("Qwen/Qwen3-0.6B", True),
        ("name", False),
        ("a/b/c", False),
        ("/owner/name", False),
        ("../name", False),
        ("owner/..", False),
        ("owner/file.gguf", False),
        ("owner/na me", False),
        ("öwner/name", False),
    ],
)
def test_what_can_be_a_hub_id(name: str, is_id: bool) -> None:
    assert is_hub_id(name) is is_id


NOT_THERE = {
    "unknown": ("gpt-17", r"no model gpt-17: .*not a short name \(smollm2-135m-instruct\)"),
    "file": ("./m.gguf", r"no model at \./m\.gguf: there is no such file or folder"),
    "bare file": ("m.gguf", r"no model at m\.gguf"),
    "absolute": ("/no/such/folder", "no model at /no/such/folder"),
    "control characters": ("\x1b]0;x\x07", r"no model '\\x1b\]0;x\\x07'"),
    "null": ("a\0/b/c", "no such file or folder"),
}


@pytest.mark.parametrize("name", NOT_THERE)
def test_what_is_not_there_is_one_line(name: str) -> None:
    given, message = NOT_THERE[name]
    with pytest.raises(ModelNotFound, match=message) as caught:
        resolve(given)
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"GGUF\x03\0\0\0", "is truncated: 8 bytes"),
        (b"PK\x03\x04" + bytes(60), "is not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "is a Git LFS pointer"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        resolve(str(path))
    assert str(path) in caught.value.message
    assert caught.value.message.isprintable()


def test_names_that_no_file_can_have() -> None:
    with pytest.raises(ModelError, match="name is empty"):
        resolve(" ")
    with pytest.raises(ModelError, match="File name too long"):
        resolve("x" * 5000)


FOLDERS: dict[str, tuple[dict[str, str], str]] = {
    "empty": ({}, "holds no config.json$"),
    "gguf": ({"m.gguf": ""}, "holds no config.json; it holds m.gguf: give that file's path"),
    "broken config": ({"config.json": "{", "m.safetensors": ""}, "config.json is not valid JSON"),
    "deep config": ({"config.json": "[" * 100_000}, "config.json is not valid JSON"),
    "list": ({"config.json": "[]", "m.safetensors": ""}, "config.json is not a JSON object"),
    "no weights": ({"config.json": "{}"}, r"holds no \.safetensors file$"),
    "pickle": ({"config.json": "{}", "pytorch_model.bin": ""}, "pickle files are not read"),
    "index": (
        {"config.json": "{}", "model.safetensors.index.json": '{"weight_map": [1]}'},
        "has no weight_map",
    ),
    "shard": (
        {"config.json": "{}", "model.safetensors.index.json": '{"weight_map": {"a": "s"}}'},
        "names s, which is missing",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_an_unusable_folder_is_one_line(tmp_path: Path, name: str) -> None:
    files, message = FOLDERS[name]
    for file, content in files.items():
        (tmp_path / file).write_text(content)
    with pytest.raises(ModelError, match=message) as caught:
        resolve(str(tmp_path))
    assert caught.value.message.isprintable()


def test_random_weights_need_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve(str(tmp_path), need_weights=False).kind == "folder"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelError, match="neither a file nor a folder"):
        resolve(str(tmp_path / "pipe.gguf"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF)
    path.chmod(0)
    with pytest.raises(ModelError, match="cannot be read: Permission denied"):
        resolve(str(path))


def test_neither_torch_nor_numpy_is_imported() -> None:
    code = (
        "import sys, pagedd.models.resolve, pagedd.models.pull\n"
        "heavy = {'torch', 'numpy', 'gguf', 'transformers', 'huggingface_hub'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
