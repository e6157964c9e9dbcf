"""The entry point. Only the module of the verb that was typed is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from pagedd.cli.parser import Parser, examples
from pagedd.cli.terminal import prepare_streams, say
from pagedd.config import did_you_mean
from pagedd.errors import PageddError, UsageError

VERBS: tuple[tuple[str, str], ...] = (
    ("start", "start the daemon and serve a model"),
    ("stop", "stop the daemon"),
    ("status", "show what the daemon is doing"),
    ("top", "watch the pages, the requests and the reasons, live"),
    ("explain", "say why a request is where it is"),
    ("events", "show what was decided, and why"),
    ("reprioritize", "make a request more or less urgent"),
    ("cancel", "end a request"),
    ("generate", "ask one question, or complete a text"),
    ("chat", "talk with the model"),
    ("pull", "download a model"),
    ("bench", "measure the daemon under load"),
    ("metrics", "say where Prometheus finds the metrics; print a dashboard"),
    ("doctor", "check this machine"),
    ("config", "show the settings and where they come from"),
    ("service", "let systemd or launchd start the daemon"),
    ("completions", "print completions for a shell"),
)
OWN_FLAGS = ("-h", "--help", "--version")
EPILOG = examples(
    "pagedd start --detach",
    'pagedd generate "What is the capital of France?"',
    "pagedd chat",
    "pagedd stop",
)


def build_parser(verb: str | None = None) -> Parser:
    """The parser with the arguments of one verb, or with those of all (``verb`` None)."""
    parser = Parser(
        prog="pagedd",
        description="A local LLM inference daemon that you can see into.",
        epilog=EPILOG + "\n\nFor one command: pagedd COMMAND --help. Manual: man pagedd.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(
        dest="verb", metavar="COMMAND", title="commands", parser_class=Parser, prog=parser.prog
    )
    for name, summary in VERBS:
        if verb not in (None, name):
            commands.add_parser(name, help=summary, add_help=False)
            continue
        module = import_module(f"pagedd.cli.{name}")
        command = commands.add_parser(
            name, help=summary, description=module.DESCRIPTION, epilog=module.EPILOG
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
        parser.known_flags += command.flags()
        parser.asked = command.prog
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is what ``pagedd(1)`` lists."""
    prepare_streams()
    try:
        code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
        return code
    except PageddError as error:
        say(error.message)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # whoever read has left: say nothing, and let the interpreter's last flush go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        say(f"{error.filename or 'input or output'}: {error.strerror or error}")
        return 1


def _run(argv: list[str]) -> int:
    names = [name for name, _ in VERBS]
    verb = next((word for word in argv if not word.startswith("-")), None)
    if argv and argv[0] not in OWN_FLAGS and argv[0].startswith("--"):
        later = next((word for word in argv if word in names), None)
        if later is not None:
            flag = argv[0].partition("=")[0]
            raise UsageError(f"{flag}: flags come after the command: pagedd {later} {flag} …")
    if verb is not None and verb not in names:
        raise UsageError(
            f"there is no command {verb!r}{did_you_mean(verb, names)} (see pagedd --help)"
        )
    parser = build_parser(verb or "")
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    args = parser.parse_all(argv)
    if args.version:
        from importlib.metadata import version

        print(f"pagedd {version('pagedd')}")
        return 0
    if verb is None:
        parser.error("no command was given")
    code: int = args.run(args)
    return code


if __name__ == "__main__":
    sys.exit(main())
