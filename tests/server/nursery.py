"""Daemons over the fake engine without the time their imports take: children of one process.

``python -m tests.server.nursery FD`` imports once what a daemon imports, and starts no thread. Each
:class:`Order` that comes over the socket FD is a daemon, forked off; the answer is its pid. It is
handed on to the process at the other end as its child, see :mod:`tests.server.hatched`.
"""

from __future__ import annotations

import os
import socket
import sys

import msgspec

from tests.server import fake_daemon

MAX_ORDER = 1 << 20  # bytes
MAX_FDS = 16


class Order(msgspec.Struct, frozen=True):
    """Descriptors go along with it: the daemon has them as ``fds``, and no others."""

    start: str  # the argument of the fake daemon
    env: dict[bytes, bytes]
    unset: tuple[bytes, ...]  # variables that this process has
    folder: str
    fds: tuple[int, ...]


def serve(control: socket.socket) -> Order | None:
    """Fork until the other end is closed: None. In a daemon's process: what it has to be."""
    while True:
        data, received, _, _ = socket.recv_fds(control, MAX_ORDER, MAX_FDS)
        if not data:
            return None
        order = msgspec.msgpack.decode(data, type=Order)
        pid = fork_orphan()
        if pid == 0:
            become(order, received, control)
            return order
        for fd in received:
            os.close(fd)
        control.send(str(pid).encode())


def fork_orphan() -> int:
    """The pid of a new process whose parent has ended; 0 in that process."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent:
        os.close(writer)
        os.waitpid(parent, 0)
        with open(reader, "rb") as told:
            return int(told.read())
    pid = os.fork()
    if pid:
        os.write(writer, str(pid).encode())
        os._exit(0)
    os.close(reader)
    os.close(writer)
    return 0


def become(order: Order, received: list[int], control: socket.socket) -> None:
    """Take on what a process that was started has from who started it."""
    control.close()
    above = max(*received, *order.fds) + 1
    for at, fd in enumerate(received):  # out of the way of the numbers that are wanted
        os.dup2(fd, above + at)
        os.close(fd)
    for at, fd in enumerate(order.fds):
        os.dup2(above + at, fd)
        os.close(above + at)
    os.chdir(order.folder)
    for name in order.unset:
        del os.environb[name]
    os.environb.update(order.env)
    sys.argv = [fake_daemon.__file__, order.start]


def main(argv: list[str]) -> int:
    order = serve(socket.socket(fileno=int(argv[0])))
    return 0 if order is None else fake_daemon.main([order.start])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
