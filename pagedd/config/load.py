"""From flags, variables and files to one value per option, each with its origin.

flag > ``PAGEDD_*`` > ``--config FILE`` > the user's file > default. All wrong names and values are
found here, before anything is loaded. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pagedd.config.kinds import Unusable
from pagedd.config.option import Option
from pagedd.config.options import BY_NAME, CONFIG_VARIABLE, OPTIONS
from pagedd.errors import UsageError
from pagedd.paths import runtime_dir

_FOUND_LATER = ("served-model-name", "socket", "log-file", "url")  # None: by model or user
SOCKET_PATH_MAX = 103  # sun_path holds 104 bytes on some systems, one of them the end


class Setting(NamedTuple):
    """A value and where it came from: "flag", "variable", the path of a file, or "default"."""

    option: Option
    value: Any
    origin: str

    @property
    def shown(self) -> str:
        """The value as text; secrets are not shown."""
        if self.value is None and self.option.name in _FOUND_LATER:
            return "default"
        return self.option.kind.show(self.value)


class Config:
    """The settings by option name."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self.settings = dict(settings)

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    def given(self, name: str) -> bool:
        """Whether someone set it."""
        return self.settings[name].origin != "default"

    def values(self, target: str) -> dict[str, Any]:
        """Field name → value of the options that go to ``target``."""
        return {
            s.option.field: s.value for s in self.settings.values() if s.option.target == target
        }

    @property
    def key(self) -> str | None:
        """The key that a client gives: the first."""
        keys: tuple[str, ...] = self["api-key"]
        return keys[0] if keys else None

    @property
    def socket(self) -> Path:
        """The socket's path. Errors: ``UsageError`` when it is too long for a socket."""
        value = self["socket"]
        return check_socket(Path(value)) if value is not None else default_socket()

    @property
    def url(self) -> str:
        """Where a client finds the daemon: ``unix:PATH`` or ``ws://HOST:PORT``."""
        value: str | None = self["url"]
        return f"unix:{self.socket}" if value is None else value


def load_config(
    flags: Mapping[str, str],
    environ: Mapping[str, str] | None = None,
    *,
    config_file: str | None = None,
    user_file: Path | None = None,
    strict_variables: bool = False,
) -> Config:
    """Merge all origins.

    ``flags`` are option name → text, only what was given. ``config_file`` is ``--config``.
    ``strict_variables`` refuses unknown ``PAGEDD_*`` variables, for the commands that start a
    daemon. Errors: ``UsageError``, one line that names the flag, variable, or file and key.
    """
    environ = os.environ if environ is None else environ
    settings = {option.name: Setting(option, option.default, "default") for option in OPTIONS}
    config_file = config_file or environ.get(CONFIG_VARIABLE) or None
    user = user_config() if user_file is None else user_file
    if user.is_file():
        settings |= _read_file(user)
    if config_file is not None:
        settings |= _read_file(Path(os.path.expanduser(config_file)))
    settings |= _read_variables(environ, strict=strict_variables)
    for name, value in flags.items():
        option = BY_NAME[name]
        settings[name] = Setting(option, _parse(option, value, option.flag), "flag")
    config = Config(settings)
    check_url(config)
    return config


def check_start(config: Config) -> None:
    """What must hold between the options of a daemon. Errors: ``UsageError``."""
    for name in ("listen", "http"):
        listen = config[name]
        if listen is not None and not listen.loopback and not config["api-key"]:
            raise UsageError(
                f"--{name} {listen}: every machine that reaches this address could use the "
                "daemon; set --api-key, or listen on 127.0.0.1"
            )
    if config["tls-key"] is not None and config["tls-cert"] is None:
        raise UsageError("--tls-key: there is no --tls-cert that it belongs to")
    _ = config.socket


def check_url(config: Config) -> None:
    """Whether the client's address can be one. Errors: ``UsageError``."""
    url: str | None = config["url"]
    if url is None:
        return
    if url.startswith("unix:"):
        if len(url) > len("unix:"):
            check_socket(Path(url.removeprefix("unix:")))
            return
    elif url.startswith(("ws://", "wss://")) and len(url.partition("://")[2].strip("/")) > 0:
        return
    raise UsageError(
        f"{_label(config.settings['url'])}: must be unix:PATH, ws://HOST:PORT or wss://HOST:PORT, "
        f"not {url!r}"
    )


def default_socket() -> Path:
    """``pagedd.sock`` in the user's runtime folder. Errors: ``UsageError`` if it is too long."""
    return check_socket(runtime_dir() / "pagedd.sock")


def check_socket(path: Path) -> Path:
    """``path``, made absolute, if a socket can have this path. Errors: ``UsageError``."""
    path = Path(os.path.abspath(os.path.expanduser(path)))
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_MAX:
        raise UsageError(
            f"the socket's path has {length} bytes, the system allows {SOCKET_PATH_MAX}: {path}"
        )
    return path


def user_config() -> Path:
    """``$XDG_CONFIG_HOME/pagedd/pagedd.toml``, else ``~/.config/pagedd/pagedd.toml``."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.config")
    return Path(base) / "pagedd" / "pagedd.toml"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """ ", did you mean X?" or nothing."""
    import difflib

    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1)
    return f", did you mean {by_lower[close[0]]}?" if close else ""


def _parse(option: Option, value: str, label: str) -> Any:
    try:
        return option.kind.read(value)
    except (ValueError, OverflowError) as error:
        raise UsageError(_refusal(option, value, label, error)) from error


def _refusal(option: Option, value: object, label: str, error: Exception) -> str:
    if option.name == "api-key":
        # the value is a secret: it is not repeated
        reason = str(error) if isinstance(error, Unusable) else f"must be {option.kind.expects}"
        return f"{label}: {reason}"
    guess = did_you_mean(value, option.kind.choices) if isinstance(value, str) else ""
    return f"{label}: must be {option.kind.expects}, not {value!r}{guess}"


def _label(setting: Setting) -> str:
    if setting.origin == "flag":
        return setting.option.flag
    if setting.origin == "variable":
        return setting.option.variable
    return f"{setting.origin}: {setting.option.name}"


def _read_variables(environ: Mapping[str, str], *, strict: bool) -> dict[str, Setting]:
    by_variable = {option.variable: option for option in OPTIONS}
    found: dict[str, Setting] = {}
    for variable, value in environ.items():
        if not variable.startswith("PAGEDD_") or variable == CONFIG_VARIABLE:
            continue
        option = by_variable.get(variable)
        if option is None:
            if strict:
                guess = did_you_mean(variable, list(by_variable))
                raise UsageError(f"{variable}: there is no such option{guess}")
        elif value:
            found[option.name] = Setting(option, _parse(option, value, variable), "variable")
    return found


def _read_file(path: Path) -> dict[str, Setting]:
    import tomllib

    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise UsageError(f"{path} is not valid toml: {error}") from error
    found: dict[str, Setting] = {}
    for key, value in table.items():
        option = BY_NAME.get(key)
        if option is None:
            guess = did_you_mean(key.replace("_", "-"), list(BY_NAME))
            raise UsageError(f"{path}: there is no key {key!r}{guess}")
        label = f"{path}: {key}"
        try:
            found[key] = Setting(option, option.kind.read_toml(value), str(path))
        except (ValueError, OverflowError) as error:
            raise UsageError(_refusal(option, value, label, error)) from error
    return found
