"""``pagedd completions``: what a shell needs to complete commands and flags."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from pagedd.cli.parser import examples
from pagedd.config import OPTIONS, Option

DESCRIPTION = "Print completions of commands and flags for a shell."
EPILOG = examples(
    "pagedd completions fish | source        in ~/.config/fish/config.fish",
    "source <(pagedd completions bash)       in ~/.bashrc",
    'eval "$(pagedd completions zsh)"        in ~/.zshrc, after compinit',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="which shell")


def run(args: argparse.Namespace) -> int:
    """Always 0."""
    import shtab

    from pagedd.cli.main import build_parser

    parser = build_parser()
    for option, action in _options(parser):
        if option.kind.choices:
            action.choices = list(option.kind.choices)
        elif option.kind.metavar == "PATH" or option.name == "model":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[Option, argparse.Action]]:
    """Every flag of the table of options, of every command."""
    by_flag = {option.flag: option for option in OPTIONS}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)
        elif action.option_strings and action.nargs != 0:
            option = by_flag.get(action.option_strings[0])
            if option is not None:
                yield option, action
