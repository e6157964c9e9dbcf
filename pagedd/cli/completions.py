"""``pagedd completions``: what a shell needs to complete commands and flags."""

from __future__ import annotations

import argparse
import textwrap

from pagedd.cli.events import KINDS
from pagedd.cli.parser import examples
from pagedd.config import OPTIONS

DESCRIPTION = "Print completions of commands and flags for a shell."
EPILOG = examples(
    "pagedd completions fish | source        in ~/.config/fish/config.fish",
    "source <(pagedd completions bash)       in ~/.bashrc",
    'eval "$(pagedd completions zsh)"        in ~/.zshrc, after compinit',
)

LONGEST = 72  # characters of a description: a list of flags keeps to its lines
SHORTEST = 24  # that a clause is taken for the whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="which shell")


def run(args: argparse.Namespace) -> int:
    """Always 0."""
    import shtab

    from pagedd.cli.main import VERBS, build_parser

    by_flag = {option.flag: option for option in OPTIONS}
    parser = build_parser()
    for verb, summary in VERBS:
        command = _commands(parser)[verb]
        command.description = summary
        for action in command._actions:
            if action.help is not None and action.help != argparse.SUPPRESS:
                action.help = short(action.help)
            if verb == "events" and action.dest == "kind":
                action.choices = KINDS
            option = by_flag.get(action.option_strings[0]) if action.option_strings else None
            if option is None or action.nargs == 0:
                continue
            if option.kind.choices:
                action.choices = list(option.kind.choices)
            elif option.kind.metavar == "PATH" or option.name == "model":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def short(text: str) -> str:
    """What fits beside a flag: whole clauses if there is one, else whole words."""
    if len(text) <= LONGEST:
        return text
    head = textwrap.shorten(text, LONGEST - len(" ..."), placeholder="")
    clause = max(head.rfind("; "), head.rfind(" ("))
    return head[:clause] if clause >= SHORTEST else f"{head.rstrip(',;:')} ..."


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return found
