"""Daemons with tiny real models, and text folders for the fake engine, as these tests need them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from pagedd.models.resolve import ModelFiles
from pagedd.text.info import INFO_FILE
from pagedd.text.prepare import describe, prepare
from pagedd.text.source import TextSource
from tests.http.edges import Served
from tests.real_daemon import daemon
from tests.tiny.tokenizer import save_tokenizer

Serve = Callable[..., Served]


@contextmanager
def serving() -> Iterator[Serve]:
    """Start daemons: ``serve(build, *flags)``; ``build`` writes a model into a folder."""
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pagedd-")))
        count = 0

        def serve(build: Callable[[Path], Path], *flags: str) -> Served:
            nonlocal count
            count += 1
            home = base / str(count)
            home.mkdir()
            model = str(build(home / "model"))
            address = stack.enter_context(daemon(home, model, "--http=127.0.0.1:0", *flags))
            return Served.at(address)

        yield serve


def text_of(tokenizer: Tokenizer, folder: Path, **settings: Any) -> Path:
    """A tokenizer in the form that the daemon loads; the settings are those of TextSource."""
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    info = describe(TextSource(tokenizer=tokenizer, **settings), "small", "")
    (folder / INFO_FILE).write_bytes(msgspec.json.encode(info))
    return folder


def tiny_text(folder: Path, **options: Any) -> Path:
    """The tiny tokenizer, written as transformers does and converted as the engine does."""
    folder.mkdir(parents=True)
    save_tokenizer(folder, **options)
    return prepare(ModelFiles("folder", folder, "small"), cache=folder / "cache")
