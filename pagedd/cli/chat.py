"""``pagedd chat``: a conversation in the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples
from pagedd.cli.priority import add_priority_flag
from pagedd.cli.sampling import add_sampling_flags, params_from
from pagedd.errors import PageddError, PromptTooLong, Unauthorized, Unreachable, UsageError

if TYPE_CHECKING:
    from pagedd.cli.connection import Connection
    from pagedd.cli.interrupt import Interrupts
    from pagedd.config import Config
    from pagedd.protocol import Message, Params

DESCRIPTION = """\
Talk with the model. Ctrl-C ends the answer, at the empty prompt it leaves, and so does Ctrl-D.
/clear starts afresh, /help lists what else can be typed."""
EPILOG = examples(
    "pagedd chat",
    'pagedd chat --system "Answer in one sentence." --temperature 0.7',
    "pagedd chat --url ws://127.0.0.1:7411",
)
PROMPT = ">>> "
HELP = """\
/help    this list
/clear   forget the conversation
/exit    leave (also /quit, Ctrl-D)
Ctrl-C   end the answer; at the empty prompt: leave"""
RETRIES = 5
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sampling, and where the daemon is."""
    parser.add_argument("--system", metavar="TEXT", help="instructions for the whole conversation")
    add_priority_flag(parser)
    add_sampling_flags(parser, hidden=("n", "logprobs"))
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0 at Ctrl-D and /exit; 130 at Ctrl-C on the prompt; 2 usage; 69 no daemon."""
    config = collect(args)
    params = params_from(args)
    if params.n != 1:
        raise UsageError("--n: a conversation has one answer at a time")
    if params.logprobs is not None:
        raise UsageError("--logprobs: use pagedd generate --json")

    from pagedd.cli.connection import open_ready
    from pagedd.cli.interrupt import Interrupts, clean_end

    with (
        Interrupts() as interrupts,
        open_ready(config.url, config.key, interrupts) as connection,
    ):
        hello = connection.hello
    conversation = Conversation(config, params, args.system, args.priority)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _piped(conversation)
    with clean_end():
        return _talk(conversation, hello.model)


class Conversation:
    """The turns so far, and how the next one is answered."""

    def __init__(self, config: Config, params: Params, system: str | None, priority: int) -> None:
        self._config = config
        self._params = params
        self._system = system
        self._priority = priority
        self.turns: list[Message] = []

    def answer(self, text: str, interrupts: Interrupts) -> None:
        """Ask, show the answer, remember both. Errors: those of the request; then both are
        forgotten, except that a partial answer stays, marked as interrupted."""
        from pagedd.cli.answer import ask
        from pagedd.cli.connection import Lost
        from pagedd.cli.output import Output
        from pagedd.protocol import Generate, Message

        output = Output()
        parts: list[str] = []

        def show(piece: str) -> None:
            parts.append(piece)
            output.show(piece)

        first = [Message("system", self._system)] if self._system is not None else []
        asked = [*self.turns, Message("user", text)]
        request = Generate(
            id="chat", messages=[*first, *asked], params=self._params, priority=self._priority
        )
        try:
            with self._connect(interrupts) as connection:
                ask(connection, request, interrupts, show)
        except Lost:
            if parts:
                self.turns = [*asked, Message("assistant", "".join(parts))]
                output.show("\n[interrupted]\n")
            raise
        except PageddError:
            print(end=output.lead(), file=sys.stderr, flush=True)
            raise
        output.end_line()
        self.turns = [*asked, Message("assistant", "".join(parts))]

    def _connect(self, interrupts: Interrupts) -> Connection:
        """A connection for one answer; a daemon that restarts is waited for, with a growing pause
        that has a cap. A refusal that stays is raised at once."""
        from pagedd.cli.connection import open_ready
        from pagedd.cli.terminal import say

        pause = RETRY_FIRST_S
        for attempt in range(RETRIES + 1):
            try:
                return open_ready(self._config.url, self._config.key, interrupts)
            except Unreachable as error:
                if attempt == RETRIES or interrupts.count:
                    raise
                say(f"{error.message} (trying again in {pause:g} s)")
            _pause(pause, interrupts)
            pause = min(2 * pause, RETRY_MOST_S)
        raise AssertionError("the last attempt returns or raises")


def _pause(seconds: float, interrupts: Interrupts) -> None:
    until = time.monotonic() + seconds
    while not interrupts.count and time.monotonic() < until:
        time.sleep(0.05)


def _piped(conversation: Conversation) -> int:
    """Not at a terminal: all of the input is one question."""
    from pagedd.cli.generate import read_prompt
    from pagedd.cli.interrupt import Interrupts

    text = read_prompt("-", raw=False)
    with Interrupts() as interrupts:
        conversation.answer(text, interrupts)
        return 130 if interrupts.count else 0


def _talk(conversation: Conversation, model: str) -> int:
    from pagedd.cli.interrupt import Interrupts
    from pagedd.cli.terminal import is_fancy, one_line, say

    typed = _line_editing() if is_fancy(sys.stdout) else str
    print(f"{one_line(model)}, /help for help")
    while True:
        line = _read_line(typed)
        if isinstance(line, int):
            return line
        text = line.strip()
        if not text:
            continue
        if text.startswith("/"):
            if not _command(text, conversation):
                return 0
            continue
        with Interrupts() as interrupts:
            try:
                conversation.answer(text, interrupts)
            except PromptTooLong as error:
                say(f"{error.message}; /clear forgets the conversation")
            except Unauthorized:
                raise
            except PageddError as error:
                say(error.message)
        if interrupts.count > 1:
            return 130


def _line_editing() -> Callable[[], str]:
    """Turn on editing and history of ``input()``; returns what tells the line typed so far."""
    try:
        import readline
    except ImportError:
        return str
    return readline.get_line_buffer


def _read_line(typed: Callable[[], str]) -> str | int:
    """A line, or the exit code of leaving. Ctrl-C on a line that holds text only drops it."""
    from pagedd.cli.interrupt import prompt_answers_signals

    try:
        with prompt_answers_signals():
            line = input(PROMPT)
    except EOFError:
        print()
        return 0
    except KeyboardInterrupt:
        print()
        return "" if typed() else 130
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _command(text: str, conversation: Conversation) -> bool:
    """Carry out ``/…``; False means to leave."""
    from pagedd.cli.terminal import one_line

    match text.split()[0]:
        case "/exit" | "/quit":
            return False
        case "/clear":
            conversation.turns = []
            print("forgotten")
        case "/help":
            print(HELP)
        case other:
            print(f"there is no {one_line(other)}\n{HELP}")
    return True
