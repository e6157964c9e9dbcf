"""Between the table of options and argparse."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pagedd.config import CLIENT_OPTIONS, START_OPTIONS, Config, Option, load_config

# A raw text per option, kept apart from the other names of the namespace.
_PREFIX = "option:"
# The same setting as that of a daemon, in the words of one who asks.
_CLIENT_HELP = {"api-key": "the daemon's key, needed over TCP when it has one; @FILE: from a file"}


def add_options(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """A flag for each option, in its groups. Values stay text: :func:`collect` checks them."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in options:
        group = groups.get(option.group)
        if group is None:
            group = groups[option.group] = parser.add_argument_group(option.group)
        _add_flag(group, option)


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """``--url``, ``--api-key`` and ``--config``."""
    add_options(
        parser,
        [
            option._replace(group="client", help=_CLIENT_HELP.get(option.name, option.help))
            for option in CLIENT_OPTIONS
        ],
    )
    add_config_flag(parser)


def add_start_options(parser: argparse.ArgumentParser) -> None:
    """Every option of a daemon, and ``--config``."""
    add_options(parser, START_OPTIONS)
    add_config_flag(parser)


def add_config_flag(parser: argparse.ArgumentParser) -> None:
    """``--config FILE``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="read this toml file too; it goes before ~/.config/pagedd/pagedd.toml",
    )


def given_flags(args: argparse.Namespace) -> dict[str, str]:
    """Option name → text of the flags that were given."""
    return {
        name.removeprefix(_PREFIX): ",".join(value) if isinstance(value, list) else value
        for name, value in vars(args).items()
        if name.startswith(_PREFIX)
    }


def take_flag(args: argparse.Namespace, name: str) -> str | None:
    """The text of a flag that was given, which is then as if it had not been."""
    text: str | None = vars(args).pop(_PREFIX + name, None)
    return text


def collect(args: argparse.Namespace, *, starts: bool = False) -> Config:
    """The configuration. ``starts``: for a command that starts a daemon, so that a mistyped
    variable is an error. Errors: ``UsageError``."""
    return load_config(given_flags(args), config_file=args.config, strict_variables=starts)


def _add_flag(group: argparse._ArgumentGroup, option: Option) -> None:
    dest = _PREFIX + option.name
    unset = argparse.SUPPRESS
    help_ = option.help.replace("%", "%%")
    if option.default not in (None, ()):
        help_ += f" (default: {option.kind.show(option.default)})"
    if isinstance(option.default, bool):
        group.add_argument(
            option.flag, dest=dest, action="store_const", const="true", default=unset, help=help_
        )
        group.add_argument(
            f"--no-{option.name}",
            dest=dest,
            action="store_const",
            const="false",
            default=unset,
            help=f"turn --{option.name} off",
        )
        return
    repeatable = isinstance(option.default, tuple) and option.default == ()
    group.add_argument(
        option.flag,
        dest=dest,
        metavar=option.kind.metavar,
        action="append" if repeatable else "store",
        default=unset,
        help=help_,
    )
