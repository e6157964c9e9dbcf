"""The daemon's addresses: one Unix socket under a lock, and TCP if it is wanted."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec

from pagedd.errors import AlreadyRunning, PageddError, UsageError

# sun_path is 104 bytes on the BSDs and 108 on Linux, with the final zero.
MAX_SOCKET_PATH = 103
BACKLOG = 1024


class Owner(msgspec.Struct, frozen=True):
    """Who holds the lock: the content of the lock file."""

    pid: int
    boot_id: str
    version: str


class InstanceLock:
    """One daemon per socket. The lock dies with its process; a file that was left means nothing."""

    def __init__(self, socket_path: Path, owner: Owner) -> None:
        self._path = socket_path.with_name(socket_path.name + ".lock")
        self._socket_path = socket_path
        self._owner = owner
        self._fd = -1

    def __enter__(self) -> Self:
        """Raises AlreadyRunning when another daemon holds it, UsageError when it cannot be made."""
        _make_private_folder(self._path.parent)
        while True:
            try:
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise UsageError(f"cannot open the lock {self._path}: {error.strerror}") from None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = _read_owner(fd)
                os.close(fd)
                who = f" (pid {holder.pid})" if holder is not None else ""
                raise AlreadyRunning(
                    f"a daemon is running already{who} on {self._socket_path}"
                ) from None
            if _same_file(fd, self._path):
                break
            os.close(fd)  # its holder removed the file between our two calls
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(self._owner) + b"\n", 0)
        self._fd = fd
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


@contextmanager
def bind_unix(path: Path) -> Iterator[socket.socket]:
    """Bind the socket, mode 0600; one that is there is stale, because the caller holds the lock.

    Closed and removed at the end. Raises UsageError.
    """
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise UsageError(
            f"the socket's path has {len(os.fsencode(path))} bytes, the system allows "
            f"{MAX_SOCKET_PATH}: {path}"
        )
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise UsageError(f"{path} is there and is not a socket")
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)
    try:
        sock.bind(os.fspath(path))
    except OSError as error:
        sock.close()
        raise UsageError(f"cannot bind {path}: {error.strerror}") from None
    finally:
        os.umask(previous)
    with sock:
        sock.listen(BACKLOG)
        try:
            yield sock
        finally:
            path.unlink(missing_ok=True)


def bind_tcp(listen: str, *, with_key: bool, flag: str = "--listen") -> socket.socket:
    """Bind HOST:PORT, which ``flag`` gave.

    Raises UsageError for an address that is none or is open to others without a key,
    AlreadyRunning when the port is taken.
    """
    host, port = parse_listen(listen, flag)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UsageError(f"{flag} {listen}: {error.strerror or error}") from None
    family, kind, proto, _, address = found[0]
    if not with_key and not ipaddress.ip_address(address[0]).is_loopback:
        raise UsageError(
            f"{flag} {listen} is open to other machines: give an --api-key, or use 127.0.0.1"
        )
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise AlreadyRunning(f"{flag} {listen}: the port is taken") from None
        raise PageddError(f"{flag} {listen}: {error.strerror}") from None
    return sock


def parse_listen(listen: str, flag: str = "--listen") -> tuple[str, int]:
    """HOST:PORT or [HOST]:PORT → both. Raises UsageError."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{flag} {listen}: expected HOST:PORT, with a port from 0 to 65535")
    return host, int(port)


def endpoint(sock: socket.socket, scheme: str = "ws") -> str:
    """How a client names the address: ``unix:PATH`` or ``ws://HOST:PORT``."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _make_private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"the socket's folder {folder} must be this user's and closed to others (mode 0700)"
        )


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _read_owner(fd: int) -> Owner | None:
    try:
        return msgspec.json.decode(os.pread(fd, 4096, 0), type=Owner)
    except msgspec.DecodeError:
        return None  # it is just being written
