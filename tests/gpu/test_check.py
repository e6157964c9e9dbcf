"""What ``make gpu-check`` makes of its figures; the figures are invented."""

from __future__ import annotations

import json

import pytest

from tests.gpu.check import Check, Row, check_attention, check_steps, check_tests, table


class Told(Check):
    """Children that say what they are told to."""

    def __init__(self, dry: bool, *said: str | None) -> None:
        super().__init__(dry)
        self._said = list(said)

    def run(self, what: str, *command: str, **environment: str) -> str | None:
        return self._said.pop(0)


def attention(batch: int, paged: float) -> str:
    found = {"batch": batch, "context": 512, "paged": paged, "contiguous": paged, "copy": 4e12}
    return json.dumps(found)


@pytest.mark.parametrize("dry", [False, True])
def test_attention_has_to_be_fast_for_large_batches(dry: bool) -> None:
    said = "\n".join((attention(8, 1e12), attention(32, 3.3e12), attention(128, 3.1e12)))
    check = Told(dry, said)
    check_attention(check)
    assert [row.good for row in check.rows] == [True, True, dry]
    assert check.rows[1].found == "3,300 GB/s, 82% of a copy, tables +0.0%"


def test_steps_are_compared_with_the_floor() -> None:
    def step(model: str, seconds: float) -> str:
        found = {"model": model, "batch": 1, "context": 512, "seconds": seconds, "floor": 4e-3}
        return json.dumps(found | {"tokens_per_s": 1 / seconds})

    check = Told(False, step("8b", 5e-3) + "\n" + step("8b", 7e-3), step("0.6b", 40e-3))
    check_steps(check)
    assert [row.good for row in check.rows] == [True, False, True]


@pytest.mark.parametrize(
    ("last", "good"), [("9 passed, 2 skipped in 3s", True), ("11 skipped in 1s", False)]
)
def test_some_tests_have_to_run(last: str, good: bool) -> None:
    check = Told(False, f"...\n{last}\n")
    check_tests(check)
    assert [row.good for row in check.rows] == [good]


def test_the_table_says_what_is_not_as_it_should_be() -> None:
    rows = [Row("a", "1 ms"), Row("bb", "2 ms", "< 1 ms", good=False), Row("c", "0 ms", "< 1 ms")]
    assert table(rows).splitlines() == [
        "",
        "a   1 ms",
        "bb  2 ms  < 1 ms  NOT",
        "c   0 ms  < 1 ms  ok",
    ]
