"""Calls in what a model writes: the same, however the text is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedd.text.tool_calls import Argued, Called, Said, ToolCalls

Read = tuple[str, list[tuple[str, str]]]


def read(parts: list[str]) -> Read:
    """All text, and all calls with their arguments."""
    reader = ToolCalls()
    spoken = [each for part in parts for each in reader.push(part)] + reader.finish()
    text, calls = "", list[tuple[str, str]]()
    for each in spoken:
        match each:
            case Said():
                text += each.text
            case Called():
                calls.append((each.name, ""))
            case Argued():
                calls[-1] = (calls[-1][0], calls[-1][1] + each.text)
    assert reader.count == len(calls)
    return text, calls


CASES: list[tuple[str, Read]] = [
    ("no call at all <tool", ("no call at all <tool", [])),
    ("  \n white space \n", ("  \n white space \n", [])),
    (
        'so <tool_call>\n{"name": "f", "arguments": {"a": [1, {"b": "</tool_call>}"}]} }\n'
        '</tool_call>\n<tool_call>{"arguments": {"q": "x\\"y"}, "name": "g"}</tool_call>\n',
        ("so", [("f", '{"a": [1, {"b": "</tool_call>}"}]}'), ("g", '{"q": "x\\"y"}')]),
    ),
    ("<tool_call>\nno object\n</tool_call> so", ("<tool_call>\nno object\n</tool_call> so", [])),
    ('<tool_call>{"name": 3}</tool_call>', ('<tool_call>{"name": 3}</tool_call>', [])),
    ('<tool_call>{"name": "f"}</tool_call>', ("", [("f", "{}")])),
    ('<tool_call>{"name": "f", "arguments": null}</tool_call>', ("", [("f", "{}")])),
    ('<tool_call>{"name": "f", "parameters": {"a": 1}}', ("", [("f", '{"a": 1}')])),
    (
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        ("", [("f", '{"a": 1}')]),
    ),
    # cut off by max_tokens; a brace that is missing
    ('<tool_call>{"name": "f", "arguments": {"a": 1', ("", [("f", '{"a": 1')])),
    ('<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call> so', (" so", [("f", '{"a": 1}')])),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_calls_and_text(text: str, expected: Read) -> None:
    assert read([text]) == expected
    assert read(list(text)) == expected


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"name": "f", "arguments": {"a": [1, "x', [("f", '{"a": [1, "x')]),
        ('{"name": "f", "arguments": {"a": 1}', [("f", '{"a": 1}')]),
        ('{"name": "f", "arguments": {"a": 1}}', [("f", '{"a": 1}')]),
        ('{"name": "f", "arguments": ', [("f", "")]),
        ('{"name": "f", "argu', [("f", "")]),
        ('{"name": "f"', [("f", "")]),
        ('{"name": "f"}', [("f", "{}")]),
        ('{"name": "f", "arguments": nu', [("f", "")]),
        ('{"name": "f", "arguments": "{\\"a\\": 1', [("f", '{"a": 1')]),
        ('{"name": "f", "arguments": "{\\"a\\": \\"\\u00', [("f", '{"a": "')]),
        ('{"name": "f", "arguments": "{\\"a\\": \\"\\', [("f", '{"a": "')]),
        ('{"name": "f", "arguments": "{}"', [("f", "{}")]),
    ],
)
def test_what_is_cut_off_is_given_as_far_as_it_was_written(
    text: str, calls: list[tuple[str, str]]
) -> None:
    for parts in ([f"<tool_call>\n{text}"], list(f"<tool_call>\n{text}")):
        reader = ToolCalls()
        spoken = [each for part in parts for each in reader.push(part)]
        spoken += reader.finish(cut=True)
        assert [each.name for each in spoken if isinstance(each, Called)] == [calls[0][0]]
        assert "".join(each.text for each in spoken if isinstance(each, Argued)) == calls[0][1]
        assert not any(isinstance(each, Said) for each in spoken)


pieces = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        '{"name": "f", ',
        '"arguments": {"a": "<"}',
        "}",
        "\n",
        "so <",
        '"',
    ]
)


@given(st.lists(pieces, max_size=12), st.data())
def test_cuts_make_no_difference(written: list[str], data: st.DataObject) -> None:
    text = "".join(written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(parts) == read([text])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(), json_values), st.booleans())
def test_any_arguments_come_as_they_are(arguments: dict[str, object], ascii: bool) -> None:
    written = json.dumps(arguments, ensure_ascii=ascii)
    call = f'<tool_call>\n{{"name": "f", "arguments": {written}}}\n</tool_call>'
    assert read(list(call)) == ("", [("f", written)])
