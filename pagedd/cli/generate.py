"""``pagedd generate``: one prompt, one answer on standard output."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples
from pagedd.cli.priority import add_priority_flag
from pagedd.cli.sampling import add_sampling_flags, params_from
from pagedd.errors import PageddError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pagedd.cli.answer import Answer
    from pagedd.cli.connection import Connection
    from pagedd.cli.interrupt import Interrupts
    from pagedd.protocol import Generate, Message, Params

DESCRIPTION = """\
Ask a question, or complete a text. The answer streams to standard output and nothing else does.
A model with a chat template gets the prompt as a question; --raw sends it as it is."""
EPILOG = examples(
    'pagedd generate "What is the capital of France?"',
    "pagedd generate --temperature 0 --max-tokens 50 < question.txt",
    'pagedd generate --raw "Once upon a time" --seed 7',
    'pagedd generate --json "Name a colour" | jq .usage',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The prompt, how to send it, sampling, and where the daemon is."""
    parser.add_argument(
        "prompt", nargs="?", help="the prompt; without it, or with -, standard input is read"
    )
    parser.add_argument("--raw", action="store_true", help="no chat template: complete the text")
    parser.add_argument("--system", metavar="TEXT", help="instructions that come before the prompt")
    parser.add_argument(
        "--messages",
        metavar="FILE",
        help='a whole chat instead of a prompt: JSON like [{"role": "user", "content": "Hi"}]',
    )
    parser.add_argument(
        "--json", action="store_true", help="print the final frame with texts, usage and ledger"
    )
    parser.add_argument("--stats", action="store_true", help="print tokens and speed at the end")
    add_priority_flag(parser)
    parser.add_argument(
        "--cache-salt", metavar="TEXT", help="share cached prefixes only with this salt"
    )
    add_sampling_flags(parser)
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0; 1 for a refused request; 2 usage; 69 no daemon; 75 queue full; 130 interrupted."""
    config = collect(args)
    params = params_from(args)
    if params.logprobs is not None and not args.json:
        raise UsageError("--logprobs: give --json too, which is where they are printed")
    if args.raw and (args.system is not None or args.messages is not None):
        raise UsageError("--raw sends no chat: --system and --messages do not go with it")
    if args.messages is not None and (args.prompt is not None or args.system is not None):
        raise UsageError("--messages holds the whole chat: give no prompt and no --system with it")
    chat = _read_messages(args.messages) if args.messages is not None else None
    text = read_prompt(args.prompt, raw=args.raw) if chat is None else ""

    from pagedd.cli.connection import open_ready
    from pagedd.cli.interrupt import Interrupts

    with (
        Interrupts() as interrupts,
        open_ready(config.url, config.key, interrupts) as connection,
    ):
        if chat is None and not args.raw:
            chat = _as_chat(connection.hello.features, args.system, text)
        return _answer(args, connection, interrupts, build_request(args, params, text, chat))


def _as_chat(features: list[str], system: str | None, text: str) -> list[Message] | None:
    """The prompt as a question; None where the model has no chat template: a text to complete.

    Instructions are never dropped: with ``system`` it is a chat, which the daemon may refuse.
    """
    from pagedd.protocol import Message

    if system is not None:
        return [Message("system", system), Message("user", text)]
    return [Message("user", text)] if "chat" in features else None


def read_prompt(argument: str | None, *, raw: bool) -> str:
    """The argument, or all of standard input. Errors: ``UsageError`` when there is nothing."""
    if argument is not None and argument != "-":
        text = os.fsencode(argument).decode("utf-8", "replace")
        where = "the prompt"
    else:
        if argument is None and sys.stdin.isatty():
            raise UsageError('no prompt: pagedd generate "…", or a text on standard input')
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
        where = "standard input"
        if not raw:
            text = text.rstrip("\r\n")  # the end of the last line is no part of a question
    if not (text if raw else text.strip()):
        raise UsageError(f"{where} is empty: there is nothing to answer")
    return text


def build_request(
    args: argparse.Namespace, params: Params, text: str, chat: list[Message] | None
) -> Generate:
    """The frame. More than one answer cannot be read while they interleave: no stream then."""
    from pagedd.protocol import Generate

    return Generate(
        id="generate",
        prompt=text if chat is None else None,
        messages=chat,
        params=params,
        priority=args.priority,
        cache_salt=args.cache_salt,
        stream=not args.json and params.n == 1,
    )


def _read_messages(name: str) -> list[Message]:
    import msgspec

    from pagedd.protocol import Message

    try:
        if name == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(name, "rb") as file:
                data = file.read()
        chat = msgspec.json.decode(data, type=list[Message])
    except OSError as error:
        raise UsageError(f"--messages {name}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = _parts_in(data) or f"no list of role and content: {error}"
        raise UsageError(f"--messages {name}: {reason}") from error
    if not chat:
        raise UsageError(f"--messages {name}: the chat is empty")
    if any(message.content is None and not message.tool_calls for message in chat):
        raise UsageError(f"--messages {name}: each message needs a content")
    return chat


def _parts_in(data: bytes) -> str | None:
    """What is wrong with a chat whose contents are lists of parts; None when that is not it."""
    import json

    try:
        chat = json.loads(data)
        contents = [message["content"] for message in chat]
    except (ValueError, TypeError, KeyError):
        return None
    for at, content in enumerate(contents):
        if isinstance(content, list):
            kinds = [part.get("type") for part in content if isinstance(part, dict)]
            other = next((kind for kind in kinds if isinstance(kind, str) and kind != "text"), None)
            if other is not None:
                return f"message {at + 1} has {other!r}: only text is supported, no images or sound"
            return f"the content of message {at + 1} is a list of parts: give it as one text"
    return None


def _answer(
    args: argparse.Namespace, connection: Connection, interrupts: Interrupts, request: Generate
) -> int:
    from pagedd.cli.answer import ask
    from pagedd.cli.output import Output

    output = Output()
    try:
        answer = ask(connection, request, interrupts, output.show)
    except PageddError:
        print(end=output.lead(), file=sys.stderr, flush=True)
        raise
    if args.json:
        _print_json(answer)
    elif request.stream:
        output.end_line()
    elif answer.done is not None:
        _print_choices(answer, output.show)
    if args.stats:
        _print_stats(answer, output.lead())
    return 130 if answer.interrupted else 0


def _print_json(answer: Answer) -> None:
    import msgspec

    from pagedd.cli.terminal import write_json

    if answer.done is not None:
        write_json(msgspec.json.encode(answer.done))


def _print_choices(answer: Answer, show: Callable[[str], None]) -> None:
    assert answer.done is not None
    total = len(answer.done.choices)
    for choice in sorted(answer.done.choices, key=lambda c: c.index):
        text = choice.text if isinstance(choice.text, str) else ""
        show(f"--- {choice.index + 1} of {total} ({choice.finish_reason}) ---\n{text}")
        if not text.endswith("\n"):
            show("\n")


def _print_stats(answer: Answer, lead: str) -> None:
    from pagedd.cli.terminal import say
    from pagedd.core.wording import counted

    if answer.done is None:
        return
    usage = answer.done.usage
    line = f"{counted(usage.prompt_tokens, 'token')} in ({usage.cached_tokens} cached)"
    line += f", {usage.completion_tokens} out"
    if answer.first_token_s is not None:
        line += f", first after {answer.first_token_s * 1000:.0f} ms"
        rest = answer.seconds - answer.first_token_s
        if usage.completion_tokens > 1 and rest > 0:
            line += f", then {(usage.completion_tokens - 1) / rest:.1f} tokens/s"
    ledger = answer.done.ledger
    if ledger.preemptions:
        times = counted(ledger.preemptions, "time")
        line += f", preempted {times} for {ledger.preempted_ms:.0f} ms"
    say(line, lead)
