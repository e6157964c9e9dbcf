"""What the daemon and its clients take: addresses, keys, limits, the log."""

from __future__ import annotations

from pagedd.config.keys import secrets
from pagedd.config.kinds import (
    Address,
    address,
    choice,
    number,
    origins,
    path,
    size,
    text,
    whole,
)
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
    (
        "api-key",
        secrets(),
        (),
        "keys, of which TCP clients must give one; @FILE: one a line; repeatable",
        "daemon",
    ),
    (
        "tls-cert",
        path(),
        None,
        "certificate, and those that vouch for it, in PEM: TCP is encrypted (wss, https)",
        "daemon",
    ),
    ("tls-key", path(), None, "private key of --tls-cert; default: in the same file", "daemon"),
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
    (
        "request-timeout",
        number(0, 86400, above=True, off=True, metavar="SECONDS"),
        None,
        "how long a request without timeout_s may take, from its arrival (default: off)",
        "daemon",
    ),
)

NAMING: tuple[Option, ...] = group_of(
    "model",
    (
        "served-model-name",
        text("NAME"),
        None,
        "what clients see and may call the model; default: after its folder or file",
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
    (
        "log-max-size",
        size(0),
        5 * MIB,
        "size at which the log file is put aside and another begun; 0: never",
        "daemon",
    ),
    ("log-keep", whole(0, 1000), 3, "log files put aside that are kept", "daemon"),
)

CLIENT: tuple[Option, ...] = group_of(
    "client",
    (
        "url",
        text("URL", "unix:PATH or ws://HOST:PORT"),
        None,
        "the daemon's address, unix:PATH, ws://HOST:PORT or wss://HOST:PORT; default: the socket",
        "client",
    ),
)
