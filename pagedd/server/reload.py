"""SIGHUP: what can be changed while the daemon runs is, and what cannot is named."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

import msgspec

from pagedd.errors import PageddError
from pagedd.server import logs, tls
from pagedd.server.deadlines import Deadlines
from pagedd.server.keys import ApiKeys
from pagedd.server.settings import DaemonSettings

logger = logging.getLogger(__name__)

_LIVE = (
    "api_keys",
    "drain_timeout",
    "request_timeout",
    "log_level",
    "log_max_size",
    "log_keep",
)
_FLAGS = {"api_keys": "--api-key", "tls": "--tls-cert"}  # others are called as their fields


class Reloader:
    """Owns the settings as they hold now.

    ``read`` takes them from flags, variables and files again; it raises PageddError. None: there is
    nothing to read.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        read: Callable[[], DaemonSettings] | None,
        *,
        log: logs.Log,
        keys: ApiKeys,
        context: ssl.SSLContext | None,
        deadlines: Deadlines,
    ) -> None:
        self.settings = settings
        self._read = read
        self._log = log
        self._keys = keys
        self._context = context
        self._deadlines = deadlines

    def reload(self) -> None:
        """Begin the log's file anew where it has its name, and say what was read."""
        self._log.reopen()
        if self._read is None:
            logger.info("SIGHUP: there are no settings to read again")
            return
        try:
            new = self._read()
            self._reload_certificate()
        except PageddError as error:
            logger.error("SIGHUP: all settings stay as they are: %s", error.message)
            return
        changed = [name for name in _LIVE if getattr(new, name) != getattr(self.settings, name)]
        self._apply(new)
        fixed = _differing(self.settings, new)
        live = {name: getattr(new, name) for name in _LIVE}
        self.settings = msgspec.structs.replace(self.settings, **live)
        logger.info("SIGHUP: %s", _told(changed, certificate=self._context is not None))
        if fixed:
            logger.warning("SIGHUP: only a restart changes %s", ", ".join(fixed))

    def _reload_certificate(self) -> None:
        """The files may be other ones under the same names; other names need a restart."""
        if self._context is not None and self.settings.tls is not None:
            tls.load(self._context, self.settings.tls)

    def _apply(self, new: DaemonSettings) -> None:
        self._keys.replace(new.api_keys)
        self._deadlines.default = new.request_timeout
        logs.set_level(new.log_level)
        self._log.limit(new.log_max_size, new.log_keep)


def _differing(old: DaemonSettings, new: DaemonSettings) -> list[str]:
    """Flags of what is another now and cannot be changed."""
    skipped = (*_LIVE, "engine", "ready_fd")
    names = [name for name in old.__struct_fields__ if name not in skipped]
    found = [_flag(name) for name in names if getattr(old, name) != getattr(new, name)]
    mine, other = old.engine, new.engine
    return found + [
        _flag(name)
        for name in mine.__struct_fields__
        if getattr(mine, name) != getattr(other, name)
    ]


def _flag(field: str) -> str:
    return _FLAGS.get(field, "--" + field.replace("_", "-"))


def _told(changed: list[str], *, certificate: bool) -> str:
    what = f"changed {', '.join(map(_flag, changed))}" if changed else "no setting has changed"
    return f"{what}; the certificate was read again" if certificate else what
