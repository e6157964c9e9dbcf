"""The small endpoints: tokens and their text, models, version, the OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.edges import HTTP, Served, dumps, post
from tests.tiny.tokenizer import BOS, VOCAB_SIZE


def said(served: Served, path: str, **body: Any) -> Any:
    got = post(served.http + path, dumps(body))
    assert got.status_code == 200, got.text
    return got.json()


def refused(served: Served, path: str, **body: Any) -> tuple[int, str, str | None]:
    got = post(served.http + path, dumps(body))
    error = got.json()["error"]
    return got.status_code, error["message"], error["param"]


def test_tokens_of_a_text_and_back(served: Served) -> None:
    found = said(served, "/tokenize", prompt="abc abc \N{PILE OF POO}")
    assert found["count"] == len(found["tokens"]) > 3
    assert found["max_model_len"] == 256
    assert "token_strs" not in found
    assert said(served, "/detokenize", tokens=found["tokens"]) == {
        "prompt": "abc abc \N{PILE OF POO}"
    }


def test_tokens_by_name(served: Served) -> None:
    found = said(served, "/tokenize", prompt="abc", return_token_strs=True)
    assert "".join(found["token_strs"]) == "abc"
    assert len(found["token_strs"]) == found["count"]


def test_a_chat_has_one_bos_and_may_end_before_the_answer(served: Served) -> None:
    messages = [{"role": "user", "content": "abc"}]
    open_end = said(served, "/tokenize", messages=messages)["tokens"]
    closed = said(served, "/tokenize", messages=messages, add_generation_prompt=False)["tokens"]
    assert open_end[: len(closed)] == closed
    assert len(open_end) > len(closed)
    assert open_end.count(BOS) == 1


def test_a_text_that_is_too_long_to_answer_can_be_counted(served: Served) -> None:
    found = said(served, "/tokenize", prompt="a b " * 2000)
    assert found["count"] > 10 * found["max_model_len"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("/tokenize", {"prompt": "a", "model": "other"}, "model"),
        ("/tokenize", {"prompt": 7}, "prompt"),
        ("/detokenize", {"tokens": [VOCAB_SIZE + 1000]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {}, None),
    ],
)
def test_what_cannot_be_told(served: Served, path: str, body: Any, param: str | None) -> None:
    status, message, named = refused(served, path, **body)
    assert status == (404 if "model" in body else 400)
    assert named == param or param is None
    assert message


def test_models_are_listed_and_found_by_name(served: Served) -> None:
    (card,) = HTTP.get(f"{served.http}/v1/models").json()["data"]
    assert card["id"] == "fake"
    assert card["object"] == "model"
    assert HTTP.get(f"{served.http}/v1/models/fake").json() == card
    assert HTTP.get(f"{served.http}/v1/models/some-model").json() == card  # as it was asked for
    missing = HTTP.get(f"{served.http}/v1/models/other/name")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


def test_the_document_names_what_is_served(served: Served) -> None:
    document = HTTP.get(f"{served.http}/openapi.json").json()
    assert document["info"]["version"] == HTTP.get(f"{served.http}/version").json()["version"]
    for path, operations in document["paths"].items():
        for method in operations:
            assert HTTP.request(
                method, served.http + path.replace("{name}", "fake")
            ).status_code not in (404, 405), path
    text = HTTP.get(f"{served.http}/openapi.json").text
    assert '"$ref":"#/components/schemas/ChatBody"' in text
    for reference in set(text.split('"#/components/schemas/')[1:]):
        assert reference.partition('"')[0] in document["components"]["schemas"]
