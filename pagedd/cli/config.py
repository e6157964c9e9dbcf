"""``pagedd config show``: the settings and where they come from."""

from __future__ import annotations

import argparse

from pagedd.cli.flags import add_start_options, collect
from pagedd.cli.parser import examples
from pagedd.config import Config, Setting, check_start, user_config

DESCRIPTION = """\
Print the settings that pagedd start would use, as toml keys.
A flag goes before a PAGEDD_ variable, that before the file of --config, that before the user's
file, and that before the default."""
EPILOG = examples(
    "pagedd config show",
    "pagedd config show --origin",
    "pagedd config show --origin --config server.toml",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to show, and the flags of start, to see what they would do."""
    parser.add_argument("action", nargs="?", default="show", choices=["show"], help="the only one")
    parser.add_argument("--origin", action="store_true", help="say where each value comes from")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_start_options(parser)


def run(args: argparse.Namespace) -> int:
    """0, or 2 when a key or value is wrong."""
    config = collect(args, starts=True)
    check_start(config)
    rows = [
        (name, _shown(name, setting, config), _origin(setting))
        for name, setting in config.settings.items()
    ]
    if args.json:
        import json

        print(json.dumps({name: {"value": v, "origin": o} for name, v, o in rows}, indent=2))
        return 0
    width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows if len(value) <= 40)
    for name, value, origin in rows:
        line = f"{name:<{width}}  {value:<{value_width}}  {origin}" if args.origin else ""
        print((line or f"{name:<{width}}  {value}").rstrip())
    if args.origin:
        print(f"\nuser's file: {user_config()}{'' if user_config().is_file() else ' (not there)'}")
    return 0


def _shown(name: str, setting: Setting, config: Config) -> str:
    return str(config.socket) if name == "socket" else setting.shown


def _origin(setting: Setting) -> str:
    """The very flag or variable, the file, or "default"."""
    names = {"flag": setting.option.flag, "variable": setting.option.variable}
    return names.get(setting.origin, setting.origin)
