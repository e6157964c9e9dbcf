"""Chat templates: what they may use, how they refuse, how they are bounded (case B24)."""

from __future__ import annotations

from datetime import datetime

import pytest

from pagedd.errors import BadRequest
from pagedd.text import chat
from pagedd.text.chat import ChatTemplate

TALK = [
    {"role": "system", "content": "Be <kind> & 'brief'."},
    {"role": "user", "content": "é\x1b[2J"},
]
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}{{ m.content }}"
    "{% endfor %}"
)


def render(source: str, messages: list[dict[str, object]] | None = None, **named: str) -> str:
    template = ChatTemplate(source, named, lambda: datetime(2024, 2, 3))
    return template.render(TALK if messages is None else messages)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages[1].content }}", "é\x1b[2J"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ messages[0] | tojson }}", '{"role": "system", "content": "Be <kind> & \'brief\'."}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{% for m in messages %}{{ loop.index }}/{{ loop.length }}"
         "{% if loop.last %}!{% endif %}{% break %}{% endfor %}", "1/2"),
        ("{% for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
         "02"),
        ("{% generation %}a{% set x = 1 %}{% endgeneration %}{{ x }}", "a1"),
        ("{{ strftime_now('%d %b %Y') }}", "03 Feb 2024"),
        ("{{ bos_token }}|{{ eos_token }}", "<s>|"),
        ("{% if tools %}t{% endif %}{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
         "{% endfor %}{{ ns.n }}", "2"),
        ("{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{{ f('ab') }}", "abab"),
        ("{% for a in [1, [2, 3]] recursive %}{{ loop(a) if a is iterable else a }}{% endfor %}",
         "123"),
    ],
)  # fmt: skip
def test_what_templates_use(source: str, expected: str) -> None:
    assert render(source, bos_token="<s>") == expected


def test_no_role_is_refused_but_by_the_template() -> None:
    assert render("{{ messages[0].role }}", [{"role": "wizard", "content": "x"}]) == "wizard"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (STRICT, "roles must alternate user/assistant"),
        ("{{ messages[7].content.upper() }}", "has no element 7"),
        ("{{ nobody.name }}", "'nobody' is undefined"),
        ("{{ 'a' + messages[0].count }}", "messages: "),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for i in range(10000000) %}{% endfor %}", "too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_a_refusal_is_the_clients_to_read(source: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        render(source)


def test_a_refusal_is_short() -> None:
    with pytest.raises(BadRequest) as raised:
        render("{{ raise_exception('x' * 100000) }}")
    assert len(raised.value.message) < 700


@pytest.mark.parametrize(
    "source",
    [
        "{% set r = range(2000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    ],
)
def test_steps_are_bounded(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_STEPS", 10_000)
    with pytest.raises(BadRequest, match="more than 10000 steps"):
        render(source)


def test_each_rendering_has_its_own_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_STEPS", 10)
    template = ChatTemplate("{% for i in range(8) %}x{% endfor %}", {})
    assert [template.render(TALK) for _ in range(3)] == ["x" * 8] * 3


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_CHARS", 100)
    with pytest.raises(BadRequest, match="over 100 characters"):
        render("{% for i in range(50) %}{{ 'abc' }}{% endfor %}")


def test_a_model_without_a_template_names_the_alternative() -> None:
    template = ChatTemplate(None, {})
    assert not template.usable
    with pytest.raises(BadRequest, match=r"no chat template.*prompt"):
        template.render(TALK)


@pytest.mark.parametrize("source", ["{% if %}", "{% nope %}", "{{ 'a' | nope }}", "{{"])
def test_a_broken_template_refuses_chats_only(source: str) -> None:
    template = ChatTemplate(source, {})
    assert not template.usable
    with pytest.raises(BadRequest, match="template is invalid"):
        template.render(TALK)
