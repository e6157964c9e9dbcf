"""schemathesis over the daemon's own OpenAPI document: no fault, no dead engine, right answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from jsonschema_rs import meta
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.http.edges import HTTP, Served, ask, health
from tests.http.models import serving
from tests.real_daemon import quiet, wire
from tests.tiny.models import build

SECONDS = 20.0  # of one request
CHECKED = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
BUSY = (429, 503)  # declared, but nothing here is ever overloaded
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "once"}], "max_tokens": 4}
TEXT: dict[str, Any] = {"prompt": ["once", "twice"], "max_tokens": 4, "n": 2, "logprobs": 1}
RIGHT = {  # by path: bodies that must be answered with 200
    "/v1/chat/completions": [CHAT, CHAT | {"stream": True}],
    "/v1/completions": [TEXT, TEXT | {"stream": True}],
    "/tokenize": [{"prompt": "once"}],
    "/detokenize": [{"tokens": [1, 2]}],
}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as serve:
        yield serve(lambda folder: build("llama", folder), "--page-size=8")


def fuzz(served: Served, examples: int) -> Counter[str]:
    """``examples`` cases of each operation and way; how often each status came."""
    document = HTTP.get(f"{served.http}/openapi.json").json()
    reference = ask("http", served, "once", max_tokens=4, temperature=0)
    with wire(served.socket) as client:
        engine = client.status()["engine_pid"]
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=served.http)
    seen: Counter[str] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()
        for body in RIGHT.get(operation.path, ()):
            case = operation.Case(body=body, media_type="application/json")
            assert send(case, seen) == 200
        modes = list(GenerationMode) if operation.method == "post" else [GenerationMode.POSITIVE]
        for mode in modes:
            ask_with(operation, mode, examples, seen)
    with wire(served.socket) as client:
        assert quiet(client)["engine_pid"] == engine
    assert health(served) == (200, {"status": "ready"})
    assert ask("http", served, "once", max_tokens=4, temperature=0).text == reference.text
    return seen


def ask_with(operation: Any, mode: GenerationMode, examples: int, seen: Counter[str]) -> None:
    """Cases that the schema allows, or that it does not."""

    @seed(6)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def one(case: schemathesis.Case) -> None:
        send(case, seen)

    one()


def send(case: schemathesis.Case, seen: Counter[str]) -> int:
    """The status of the answer, which must be as the document says."""
    answer = case.call(timeout=SECONDS, verify=False)
    case.validate_response(answer, checks=CHECKED)
    assert answer.status_code not in BUSY
    seen[f"{case.path} {answer.status_code}"] += 1
    return answer.status_code


def test_the_document_is_valid(served: Served) -> None:
    """OpenAPI 3.1: its schemas are JSON Schema, and every reference leads somewhere."""
    document = HTTP.get(f"{served.http}/openapi.json").json()
    assert document["openapi"].startswith("3.1.")
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        meta.validate(schema)
    text = str(document)
    for name in schemas:
        assert f"#/components/schemas/{name}'" in text, f"{name} is not used"
    posts = {path for path, item in document["paths"].items() if "post" in item}
    assert posts == {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"}


def test_some_cases_of_every_operation(served: Served) -> None:
    seen = fuzz(served, 12)
    assert seen["/v1/completions 400"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_thousand_cases(served: Served) -> None:
    seen = fuzz(served, 280)
    print(seen)
    assert seen.total() >= 2000
    assert seen["/v1/completions 200"] > len(RIGHT["/v1/completions"])  # generated ones too
