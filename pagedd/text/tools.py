"""Tools for a chat template that knows nothing of them, in the form of the Hermes models.

A system message lists the functions; the assistant writes each call as JSON between
``<tool_call>`` and ``</tool_call>``; what a function returned comes back in a user's turn between
``<tool_response>`` marks. Source: the prompt format of the Hermes function-calling dataset, which
Qwen's templates write too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

CALL_BEGIN, CALL_END = "<tool_call>", "</tool_call>"

_INSTRUCTIONS = """\
You may call one or more functions to help with the request. Their signatures are:
<tools>
{tools}
</tools>
For each call write a JSON object with the function's name and its arguments:
<tool_call>
{{"name": NAME, "arguments": ARGUMENTS}}
</tool_call>"""


def as_plain_chat(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> list[Mapping[str, Any]]:
    """Messages of role and text alone that say the same; a chat without tools is as it was."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    listed = "\n".join(_json(tool) for tool in tools)
    instructions = _INSTRUCTIONS.format(tools=listed)
    if plain and plain[0]["role"] == "system":
        text = f"{plain[0]['content']}\n\n{instructions}"
        return [{**plain[0], "content": text}, *plain[1:]]
    return [{"role": "system", "content": instructions}, *plain]


def _plain(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if "tool_calls" in message:
        calls = [_call(call["function"]) for call in message["tool_calls"]]
        text = message.get("content") or ""
        return {"role": message["role"], "content": "\n".join([*([text] if text else []), *calls])}
    if message["role"] == "tool" and "tool_call_id" in message:
        text = f"<tool_response>\n{message['content']}\n</tool_response>"
        return {"role": "user", "content": text}
    return message


def _call(function: Mapping[str, Any]) -> str:
    written = _json({"name": function["name"], "arguments": function["arguments"]})
    return f"{CALL_BEGIN}\n{written}\n{CALL_END}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
