"""``pagedd completions``: what a shell needs to complete commands and flags."""

from __future__ import annotations

import argparse

from pagedd.cli.parser import examples

DESCRIPTION = "Print completions of commands and flags for a shell."
EPILOG = examples(
    "pagedd completions bash > ~/.local/share/bash-completion/completions/pagedd",
    "pagedd completions zsh > ~/.zfunc/_pagedd",
    "pagedd completions fish > ~/.config/fish/completions/pagedd.fish",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="which shell")


def run(args: argparse.Namespace) -> int:
    """Always 0."""
    import shtab

    from pagedd.cli.main import build_parser

    print(shtab.complete(build_parser(), args.shell))
    return 0
