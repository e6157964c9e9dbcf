"""The assistant's turn: text, calls, and why it ended; streamed or at once."""

from __future__ import annotations

import pytest

from pagedd.server.http.answers import ChatAnswer
from pagedd.server.http.turn import Turn

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def calls_of(answer: ChatAnswer) -> list[tuple[object, str]]:
    return [(call.function.name, call.function.arguments) for call in answer.tool_calls or ()]


def streamed(turn: Turn, text: str) -> tuple[str, list[list[str]]]:
    said, calls = "", list[list[str]]()
    for at, char in enumerate(text):
        for delta in turn.deltas(char, ends=at == len(text) - 1):
            said += delta.content or ""
            for part in delta.tool_calls or ():
                if part.id:
                    assert part.index == len(calls)
                    assert part.type == "function"
                    calls.append([str(part.function.name), ""])
                calls[part.index][1] += part.function.arguments
    return said, calls


def test_without_tools_a_call_is_text() -> None:
    turn = Turn(calls=False, one_call=False)
    assert turn.message(CALL) == ChatAnswer(CALL)
    assert turn.finish_reason("stop") == "stop"


@pytest.mark.parametrize("text", ["so " + CALL, CALL + "\n" + CALL, "no call", ""])
def test_a_stream_says_the_same(text: str) -> None:
    whole = Turn(calls=True, one_call=False).message(text)
    turn = Turn(calls=True, one_call=False)
    said, calls = streamed(turn, text)
    assert said == (whole.content or "")
    assert [tuple(call) for call in calls] == calls_of(whole)
    assert turn.finish_reason("stop") == ("tool_calls" if calls else "stop")
    assert turn.finish_reason("length") == "length"


def test_calls_without_text_have_none() -> None:
    answer = Turn(calls=True, one_call=False).message(CALL)
    assert answer.content is None
    assert calls_of(answer) == [("f", '{"a": 1}')]


def test_only_the_first_call_when_they_may_not_be_parallel() -> None:
    answer = Turn(calls=True, one_call=True).message(CALL + CALL.replace('"f"', '"g"'))
    assert calls_of(answer) == [("f", '{"a": 1}')]


@pytest.mark.parametrize("begun", ['"arguments": {"a": "x', '"arguments": ', '"arg'])
def test_a_call_that_is_cut_short_has_what_was_written_of_it(begun: str) -> None:
    text = '<tool_call>\n{"name": "f", ' + begun
    arguments = '{"a": "x' if "{" in begun else ""
    whole = Turn(calls=True, one_call=False)
    assert calls_of(whole.message(text, "length")) == [("f", arguments)]
    assert whole.finish_reason("length") == "length"
    turn = Turn(calls=True, one_call=False)
    deltas = [*turn.deltas(text, ends=False), *turn.deltas("", ends=True, reason="length")]
    parts = [part for delta in deltas for part in delta.tool_calls or ()]
    assert "".join(part.function.arguments for part in parts) == arguments
