"""What the daemon and its clients take: addresses, keys, limits, the log."""

from __future__ import annotations

from pagedd.config.kinds import Address, address, choice, number, origins, path, secret, size, text
from pagedd.config.option import Option, group_of

MIB = 1 << 20

CONNECTIONS: tuple[Option, ...] = group_of(
    "connections",
    (
        "socket",
        path(),
        None,
        "the Unix socket; default: in the user's runtime folder",
        "daemon",
    ),
    (
        "listen",
        address(),
        Address("127.0.0.1", 7411),
        "the TCP address; port 0 takes a free one",
        "daemon",
    ),
    ("api-key", secret(), None, "key that TCP clients must give", "daemon"),
    (
        "allow-origin",
        origins(),
        (),
        "web pages of this origin may connect over TCP; repeatable",
        "daemon",
    ),
    (
        "outbox-bytes",
        size(4096),
        4 * MIB,
        "unread output of a client before its requests are cancelled",
        "daemon",
    ),
    (
        "drain-timeout",
        number(0, 86400, metavar="SECONDS"),
        5.0,
        "how long running requests may go on when the daemon stops",
        "daemon",
    ),
)

LOG: tuple[Option, ...] = group_of(
    "log",
    (
        "log-level",
        choice("debug", "info", "warning", "error"),
        "info",
        "least severity that is logged",
        "daemon",
    ),
    (
        "log-file",
        path(),
        None,
        "log here; default: standard error, or pagedd.log in the state folder with --detach",
        "daemon",
    ),
)

CLIENT: tuple[Option, ...] = group_of(
    "client",
    (
        "url",
        text("URL", "unix:PATH or ws://HOST:PORT"),
        None,
        "the daemon's address, unix:PATH or ws://HOST:PORT; default: the socket",
        "client",
    ),
)
