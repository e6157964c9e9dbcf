"""The manual gives the limits that requests have, as they are."""

from __future__ import annotations

import re
from pathlib import Path

from pagedd import protocol
from pagedd.engine import desk
from pagedd.server import refusal, structure
from pagedd.server.http import bodies, completions, gateway, plain
from pagedd.server.http import protocol as connection
from pagedd.server.http.reading import BODY_TIMEOUT_S
from pagedd.text import guidance

PAGE = Path(__file__).parents[2] / "man" / "pagedd-protocol.7"
ITEMS = {
    f"{protocol.MAX_FRAME_BYTES >> 20} MiB": "1009",
    str(refusal._MAX_VALUES): "MessagePack",
    "1 to 128": f"{gateway.MAX_NAME} of the header",
    "max_model_len": "prompt_too_long",
    "max-num-seqs": "Choices",
    "max-queue": "queue_full",
    str(bodies.MAX_PROMPTS): f"at most {completions.MAX_REPEATED >> 20} MiB",
    str(protocol.MAX_STOP_STRINGS): f"each of 1 to {protocol.MAX_STOP_LENGTH}",
    str(structure.MAX_REGEX): "guided_regex",
    str(guidance.MAX_GRAMMAR): f"at most {guidance.MAX_SCHEMA}.",
    str(structure.MAX_MULTIPLE): "multipleOf",
    f"{desk.BUILD_S:g} s": f"at most {guidance.MAX_STATES} states",
    str(protocol.MAX_TOOLS): "tools",
    str(plain.MOST_COUNTED): f"at most {plain.MOST_CHARACTERS} characters",
    f"0 to {protocol.MAX_TIMEOUT_S} s": "deadline_exceeded",
    "outbox-bytes": "slow_consumer",
    "max-connections": f"{connection.HEAD_BYTES >> 10} KiB",
}


def test_the_manual_has_an_item_for_each_limit() -> None:
    section = PAGE.read_text().partition(".Sh LIMITS")[2].partition("\n.Sh ")[0]
    found = dict(re.findall(r"^\.It (.*)\n((?:(?!\.It |\.El).*\n)+)", section, re.MULTILINE))
    assert found.keys() == ITEMS.keys()
    for limit, said in ITEMS.items():
        assert said in found[limit], limit
    last = found["max-connections"]
    assert f"{connection.HEAD_TIMEOUT_S:g} s (408)" in last
    assert f"{BODY_TIMEOUT_S:g} s (408)" in last
    assert f"{connection.UNREAD_TIMEOUT_S:g} s is cut" in last
    assert str(completions.MAX_ECHO) in found[str(bodies.MAX_PROMPTS)]
