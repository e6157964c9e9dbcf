"""Extreme, impossible and seeded sampling with a real model, over both edges (B27 to B32)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.http.edges import EDGES, Answer, Served, Token, ask, refused, together
from tests.http.models import serving
from tests.real_daemon import quiet, wire
from tests.tiny.models import build
from tests.tiny.tokenizer import VOCAB_SIZE

PROMPT = "the story begins"
LENGTH = 12
NAN = Token("NaN")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One engine process, from the first case to the last."""
    with serving() as serve:
        served = serve(lambda folder: build("llama", folder), "--page-size=8", "--max-num-seqs=16")
        with wire(served.socket) as client:
            pid = client.status()["engine_pid"]
            yield served
            assert quiet(client)["engine_pid"] == pid


@pytest.fixture(scope="module")
def greedy(served: Served) -> str:
    """The reference."""
    return ask("http", served, PROMPT, max_tokens=LENGTH, temperature=0, ignore_eos=True).text


def sample(edge: str, served: Served, **params: Any) -> Answer:
    given = {"max_tokens": LENGTH, "ignore_eos": True, **params}
    return ask(edge, served, given.pop("prompt", PROMPT), **given)


def well(served: Served, greedy: str) -> None:
    """Four greedy tokens are what they always were, and health says so."""
    answer = sample("http", served, temperature=0, max_tokens=4)
    assert greedy.startswith(answer.text)
    assert answer.completion_tokens == 4


# --- B27: legal but extreme -----------------------------------------------------------------------

GREEDY = [
    {"temperature": 0},
    {"temperature": 1e-9},
    {"temperature": 1e-5},
    {"temperature": 5e-324},
    {"top_k": 1},
    {"top_p": 1e-9},
    {"min_p": 1},
    {"top_k": 1, "temperature": 100},
]
OFF = [
    *({"top_k": value} for value in (-1, 0, VOCAB_SIZE, VOCAB_SIZE + 1, 10**9)),
    {"top_p": 1},
    {"min_p": 0},
]
EXTREME = [{"temperature": 1e-2}, {"temperature": 2}, {"temperature": 100}, {"top_p": 0.5}]


@pytest.mark.parametrize("params", GREEDY, ids=str)
def test_b27_greedy_by_another_name(
    served: Served, greedy: str, edge: str, params: dict[str, Any]
) -> None:
    assert sample(edge, served, **params).text == greedy


@pytest.mark.parametrize("params", OFF, ids=str)
def test_b27_off_by_another_name(served: Served, edge: str, params: dict[str, Any]) -> None:
    assert sample(edge, served, seed=3, **params).text == sample(edge, served, seed=3).text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0),
        ("top_p", -1e-9),
        ("top_p", 1.0000001),
        ("top_k", -2),
        ("top_k", 2**31),
        ("min_p", 1.1),
        ("min_p", -0.1),
        ("temperature", -1e-9),
        ("temperature", 101),
    ],
)
def test_b27_refused_by_name(served: Served, greedy: str, edge: str, name: str, value: Any) -> None:
    refused(sample(edge, served, **{name: value}), edge, name)
    well(served, greedy)


def test_b27_all_in_one_batch(served: Served, greedy: str) -> None:
    mixed = [*GREEDY[:5], *OFF[:4], *EXTREME[:3]]
    alone = [sample("http", served, seed=1, **params).text for params in mixed]
    calls = [
        lambda at=at, params=params: sample(EDGES[at % 4], served, seed=1, **params)
        for at, params in enumerate(mixed)
    ]
    for _ in range(3):
        assert [answer.text for answer in together(calls)] == alone
    well(served, greedy)


# --- B28: ids outside the vocabulary --------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (str(VOCAB_SIZE), 1.0),
        ("-1", 1.0),
        ("abc", 1.0),
        ("1.5", 1.0),
        (str(10**12), 1.0),
        ("5", NAN),
        ("5", Token("1e400")),
        ("5", 1000),
        ("5", "1"),
        ("5", None),
    ],
    ids=str,
)
def test_b28_bias_that_cannot_be(
    served: Served, greedy: str, edge: str, key: str, value: Any
) -> None:
    bad, neighbour = together(
        [
            lambda: sample(edge, served, logit_bias={key: value}),
            lambda: sample(edge, served, temperature=0),
        ]
    )
    refused(bad, edge, "logit_bias")
    assert isinstance(value, Token) or value == 1000 or key in bad.message or key == "5"
    assert neighbour.text == greedy


@pytest.mark.parametrize("ids", [[VOCAB_SIZE], [-1], [10**12], [1.5], [True], ["a"], "a"], ids=str)
@pytest.mark.parametrize("least", [0, 2])
def test_b28_ends_that_cannot_be(
    served: Served, greedy: str, edge: str, ids: Any, least: int
) -> None:
    bad, neighbour = together(
        [
            lambda: sample(edge, served, stop_token_ids=ids, min_tokens=least),
            lambda: sample(edge, served, temperature=0),
        ]
    )
    refused(bad, edge, "stop_token_ids")
    assert neighbour.text == greedy


def test_b28_the_last_id_and_a_bias_on_every_token(served: Served, greedy: str, edge: str) -> None:
    last = VOCAB_SIZE - 1
    forced = sample(
        edge,
        served,
        temperature=0,
        logit_bias={str(last): 100},
        stop_token_ids=[last],
        min_tokens=2,
    )
    assert (forced.finish_reason, forced.completion_tokens) == ("stop", 3)
    assert forced.choices[0].stop_reason == last
    level = {str(token): -100 for token in range(VOCAB_SIZE)}
    assert sample(edge, served, temperature=0, logit_bias=level).text == greedy
    well(served, greedy)


# --- B31: numbers that JSON allows ----------------------------------------------------------------

BAD_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e400", '"NaN"', '"Infinity"')


@pytest.mark.parametrize("text", BAD_NUMBERS)
@pytest.mark.parametrize(
    "name",
    [
        "temperature",
        "top_p",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
    ],
)
def test_b31_numbers_that_are_none(
    served: Served, greedy: str, edge: str, name: str, text: str
) -> None:
    refused(sample(edge, served, **{name: Token(text)}), edge, name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 2**63),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("seed", "7"),
        ("seed", 1.5),
        ("seed", True),
        ("seed", []),
        ("max_tokens", 10**30),
        ("max_tokens", Token("1e30")),
        ("n", 10**9),
        ("n", 10**30),
        ("n", 0),
        ("n", -1),
        ("stop", ""),
        ("stop", [""]),
        ("stop", ["a", ""]),
        ("stop", [None]),
        ("stop", ["a"] * 10_000),
        ("stop", "a" * 100_000),
        ("priority", 10**40),
        ("priority", -(10**40)),
        ("priority", 0.5),
        ("min_tokens", 10**30),
        ("logprobs", 10**30),
        ("top_k", 1e30),
    ],
    ids=lambda value: str(value)[:20],
)
def test_b31_numbers_that_no_tensor_holds(
    served: Served, greedy: str, edge: str, name: str, value: Any
) -> None:
    refused(sample(edge, served, **{name: value}), edge, name)
    well(served, greedy)


@pytest.mark.parametrize("n", [17, 10**8, 2**31 - 1])
def test_b31_nothing_is_made_for_choices_that_cannot_be(served: Served, edge: str, n: int) -> None:
    chat = [{"role": "user", "content": "hi"}]
    refused(ask(edge, served, messages=chat, n=n), edge, "n")
    refused(sample(edge, served, n=n), edge, "n")


@pytest.mark.parametrize(
    "params",
    [
        {"seed": -1},
        {"seed": None},
        {"seed": 2**63 - 1},
        {"seed": -(2**63)},
        {"stop": []},
        {"stop": None},
        {"priority": -(2**31)},
    ],
    ids=str,
)
def test_b31_values_that_are_fine(
    served: Served, greedy: str, edge: str, params: dict[str, Any]
) -> None:
    assert sample(edge, served, temperature=0, **params).text == greedy


# --- B32: seeds -----------------------------------------------------------------------------------


def test_b32_a_seeded_text_is_the_same_in_all_company(served: Served, edge: str) -> None:
    alone = sample(edge, served, seed=7).text

    def seeded() -> Answer:
        return sample(edge, served, seed=7)

    for seed in (None, 8):
        for place in (0, 8):
            calls: list[Callable[[], Answer]] = [
                lambda at=at, seed=seed: sample("wire", served, prompt=f"mate {at}", seed=seed)
                for at in range(9)
            ]
            calls[place] = seeded
            assert together(calls)[place].text == alone


def test_b32_choices_of_one_seed_differ_and_repeat(served: Served, edge: str) -> None:
    first, second = (sample(edge, served, seed=7, n=4) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert len(set(texts)) == 4
    assert texts == [choice.text for choice in second.choices]
    assert texts[0] == sample(edge, served, seed=7).text


def test_b32_without_a_seed_texts_differ(served: Served, edge: str) -> None:
    one_by_one = {sample(edge, served).text for _ in range(5)}
    at_once = together([lambda: sample(edge, served) for _ in range(5)])
    assert len(one_by_one) > 1
    assert len({answer.text for answer in at_once}) > 1
