"""Convert a model's tokenizer once, into the user's cache, for the daemon to load quickly.

Runs in the engine's process: the daemon never imports what a conversion may need. An entry is a
folder ``text/HASH`` with ``tokenizer.json`` and ``text.json``. It is written beside and renamed,
so a reader sees all of it or nothing, whoever else prepares the same model.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from pagedd.errors import ModelError
from pagedd.models.resolve import ModelFiles
from pagedd.paths import cache_dir
from pagedd.text.bounds import find_cut, longest_by_byte, normalizers_of
from pagedd.text.folder_source import FILES, read_folder
from pagedd.text.gguf_source import read_gguf
from pagedd.text.info import CONVERTER_VERSION, INFO_FILE, TOKENIZER_FILE, TextInfo
from pagedd.text.source import TextSource
from pagedd.text.spelling import byte_alphabet, bytes_of, read_spelling


def prepare(files: ModelFiles, *, cache: Path | None = None) -> Path:
    """The folder with the model's ``tokenizer.json`` and ``text.json``, made if needed.

    ``cache``: pagedd's cache folder. A damaged entry is made again. Errors: ``ModelError`` and
    ``ModelNotFound`` with one line.
    """
    base = (cache_dir() if cache is None else cache) / "text"
    entry = base / _identity(files)
    if _intact(entry):
        return entry
    source = read_gguf(files.path) if files.kind == "gguf" else read_folder(files.path)
    content = source.tokenizer.to_str().encode()
    info = describe(source, files.name, hashlib.sha256(content).hexdigest())
    try:
        base.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=base))
        try:
            (fresh / TOKENIZER_FILE).write_bytes(content)
            (fresh / INFO_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(info)))
            _put(fresh, entry)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise ModelError(f"{base} cannot be written: {error.strerror}") from error
    return entry


def describe(source: TextSource, name: str, sha256: str) -> TextInfo:
    """Measure the tokenizer. Errors: ``ModelError``."""
    tokenizer = source.tokenizer
    spelling, vocab = read_spelling(tokenizer), tokenizer.get_vocab(with_added_tokens=True)
    if not vocab:
        raise ModelError(f"the tokenizer of {name} is empty")
    alphabet = byte_alphabet()
    token_bytes = [bytes_of(token, spelling, alphabet) for token in vocab]
    size = max(vocab.values()) + 1
    bos_text, eos_text = source.named.get("bos_token"), source.named.get("eos_token")
    bos_id = vocab.get(bos_text) if bos_text is not None else None
    add_bos = _adds(tokenizer, bos_id) if source.add_bos is None else source.add_bos
    added = tokenizer.get_added_tokens_decoder()
    return TextInfo(
        name=name,
        vocab_size=size,
        add_bos=add_bos and bos_id is not None,
        chat_bos=source.chat_bos and bos_id is not None,
        spelling=spelling,
        chat_template=source.chat_template,
        bos_id=bos_id,
        bos_text=bos_text if bos_id is not None else None,
        eos_id=vocab.get(eos_text) if eos_text is not None else None,
        eos_text=eos_text,
        eos_ids=tuple(sorted({end for end in source.eos_ids if 0 <= end < size})),
        special_ids=tuple(sorted(index for index, token in added.items() if token.special)),
        named=source.named,
        longest=longest_by_byte(tokenizer, spelling, token_bytes),
        nfc=any(step["type"] == "NFC" for step in normalizers_of(tokenizer)),
        cut=find_cut(tokenizer, token_bytes),
        tokenizer_sha256=sha256,
    )


def _adds(tokenizer: Tokenizer, bos_id: int | None) -> bool:
    """Whether the tokenizer's own post-processor puts BOS in front."""
    return tokenizer.encode("a", add_special_tokens=True).ids[:1] == [bos_id]


def _identity(files: ModelFiles) -> str:
    """Changes with the converter and with any file that it reads; nothing is opened."""
    digest = hashlib.sha256(f"{CONVERTER_VERSION}\0{files.kind}\0{files.name}".encode())
    folder = files.path
    paths = [files.path] if files.kind == "gguf" else [folder / name for name in FILES]
    for path in paths:
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        identity = f"\0{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
        digest.update(identity.encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _intact(entry: Path) -> bool:
    try:
        info = msgspec.json.decode((entry / INFO_FILE).read_bytes(), type=TextInfo)
        content = (entry / TOKENIZER_FILE).read_bytes()
    except (OSError, msgspec.DecodeError):
        return False
    return hashlib.sha256(content).hexdigest() == info.tokenizer_sha256


def _put(fresh: Path, entry: Path) -> None:
    """Rename ``fresh`` to ``entry``, unless another process has put an intact one there."""
    folder = os.open(entry.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # one at a time looks, puts aside and renames
        if not _intact(entry):
            _remove_damaged(entry)
            fresh.rename(entry)
    finally:
        os.close(folder)


def _remove_damaged(entry: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=".old-", dir=entry.parent))
    try:
        os.rename(entry, aside / "entry")
    except FileNotFoundError:
        pass  # there was none
    finally:
        shutil.rmtree(aside, ignore_errors=True)
