"""Nothing a client sends reaches the engine unchecked, ends the connection or hurts a neighbour."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.harness import Client, Daemon, Frame

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module", autouse=True)
def _neighbour(daemon: Daemon) -> Iterator[None]:
    """One engine process, from the first case to the last."""
    pid = daemon.status()["engine_pid"]
    yield
    assert daemon.until_quiet()["engine_pid"] == pid


@pytest.fixture(params=["json", "msgpack"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Client]:
    with daemon.client(json_frames=request.param == "json") as client:
        yield client


def well(client: Client) -> None:
    """The connection and the engine go on."""
    frames = client.generate("well", prompt="ok", params={"max_tokens": 4})
    assert "".join(f["text"] for f in frames if f["type"] == "delta") == "okok"


def refused(client: Client, *names: str, code: str = "bad_request", **fields: Any) -> Frame:
    """The request is answered by one error with its id that says these words."""
    frames = client.generate("bad", **fields)
    assert [frame["type"] for frame in frames] == ["error"], frames
    assert (frames[0]["code"], frames[0]["id"], frames[0]["retryable"]) == (code, "bad", False)
    for name in names:
        assert name in frames[0]["message"]
    well(client)
    return frames[0]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("temperature", -0.1, "got -0.1"),
        ("temperature", 100.5, "<= 100"),
        ("temperature", "1", "got `str`"),
        ("top_p", 0, "> 0"),
        ("top_p", 1.01, "<= 1"),
        ("top_k", -2, "got -2"),
        ("top_k", 2**31, "2147483647"),
        ("min_p", -1, ">= 0"),
        ("presence_penalty", 2.5, "<= 2"),
        ("frequency_penalty", -3, ">= -2"),
        ("repetition_penalty", 0, ">= 0.01"),
        ("max_tokens", 0, "got 0"),
        ("max_tokens", -1, ">= 1"),
        ("max_tokens", "5", "got `str`"),
        ("max_tokens", 1.5, "got `float`"),
        ("min_tokens", -1, ">= 0"),
        ("n", 0, ">= 1"),
        ("n", True, "got `bool`"),
        ("n", 17, "max_num_seqs"),
        ("n", 10**9, "max_num_seqs"),
        ("seed", "7", "got `str`"),
        ("seed", True, "got `bool`"),
        ("seed", 1.5, "got `float`"),
        ("seed", 2**63, "9223372036854775807"),
        ("logprobs", 21, "<= 20"),
        ("logprobs", -1, ">= 0"),
        ("stop", "", "length"),
        ("stop", [""], "stop[0]"),
        ("stop", ["a", ""], "stop[1]"),
        ("stop", 5, "got `int`"),
        ("stop", ["x"] * 65, "64"),
        ("stop_token_ids", [300], "id 300"),
        ("stop_token_ids", [-1], "got -1"),
        ("stop_token_ids", [10**12], "got 1000000000000"),
        ("logit_bias", {"300": 1.0}, "id 300"),
        ("logit_bias", {"-1": 1.0}, "'-1'"),
        ("logit_bias", {"1000000000000": 1.0}, "'1000000000000'"),
        ("logit_bias", {"abc": 1.0}, "'abc'"),
        ("logit_bias", {"5": 1000}, "<= 100"),
        ("no_such", 1, "no_such"),
    ],
)
def test_a_parameter_out_of_range(client: Client, name: str, value: Any, says: str) -> None:
    if name == "logit_bias" and not client.json_frames:
        value = {int(key) if key.lstrip("-").isdecimal() else key: v for key, v in value.items()}
        says = says if "abc" in says else says.strip("'")
    refused(client, name, says, prompt="x", params={name: value})


@pytest.mark.parametrize("value", [NAN, INF, -INF])
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
def test_numbers_that_are_none(daemon: Daemon, name: str, value: float) -> None:
    with daemon.client(json_frames=False) as client:
        refused(client, name, prompt="x", params={name: value})
        refused(client, "logit_bias", prompt="x", params={"logit_bias": {5: value}})


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e400", "1" + "0" * 30, "-1" + "0" * 5000])
def test_numbers_that_json_writes_and_tensors_cannot_hold(daemon: Daemon, value: str) -> None:
    with daemon.client() as client:
        for name in ("temperature", "seed", "max_tokens", "n", "logprobs"):
            frame = {"type": "generate", "id": "bad", "prompt": "x", "params": {name: 0}}
            client.send_raw(json.dumps(frame).replace(f'"{name}": 0', f'"{name}": {value}'))
            assert client.receive()["code"] == "bad_request"
        client.send_raw(f'{{"type":"generate","id":"bad","prompt":"x","priority":{value}}}')
        assert client.receive()["code"] == "bad_request"
        well(client)


@pytest.mark.parametrize(
    "params",
    [
        {"stop": []},
        {"stop": None},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"seed": None},
        {"temperature": 1e-9},
        {"top_p": 1e-9},
        {"top_k": -1},
        {"top_k": 10**9},
        {"min_p": 1},
        {"logit_bias": {}},
        {"max_tokens": None},
        {"max_tokens": 2**31 - 1},
        {"min_tokens": 3, "max_tokens": 3},
        {"n": 16},
    ],
    ids=str,
)
def test_values_at_the_edge_that_are_fine(client: Client, params: Frame) -> None:
    frames = client.generate("good", prompt="x", params={"max_tokens": 3, **params})
    assert frames[-1]["type"] == "done"


def test_bias_and_stop_of_the_last_id_are_fine(client: Client) -> None:
    bias: dict[Any, float] = {"299": -100} if client.json_frames else {299: -100}
    params = {"max_tokens": 3, "logit_bias": bias, "stop_token_ids": [299]}
    assert client.generate("good", prompt_tokens=[299, 1], params=params)[-1]["type"] == "done"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "exactly one"),
        ({"prompt": "x", "prompt_tokens": [1]}, "exactly one"),
        ({"prompt": "x", "messages": []}, "exactly one"),
        ({"prompt": ""}, "prompt: must not be empty"),
        ({"prompt_tokens": []}, "prompt_tokens: must not be empty"),
        ({"messages": []}, "messages: must not be empty"),
        ({"prompt_tokens": [-1]}, "prompt_tokens[0]"),
        ({"prompt_tokens": [1, 300]}, "id 300"),
        ({"prompt_tokens": [1.5]}, "prompt_tokens[0]"),
        ({"prompt_tokens": [True]}, "prompt_tokens[0]"),
        ({"prompt_tokens": ["a", 1]}, "prompt_tokens[0]"),
        ({"prompt_tokens": [[1]]}, "prompt_tokens[0]"),
        ({"prompt": [1]}, "prompt"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": None}]}, "content"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "content"),
        ({"messages": [{"role": "", "content": "a"}]}, "role"),
        ({"prompt": "x", "priority": 2**31}, "priority"),
        ({"prompt": "x", "priority": 0.5}, "priority"),
        ({"prompt": "x", "stream": 1}, "stream"),
        ({"prompt": "x", "cache_salt": "s" * 257}, "cache_salt"),
        ({"prompt": "x", "unknown": 1}, "unknown"),
        ({"prompt": "x", "params": {"min_tokens": 5, "max_tokens": 4}}, "min_tokens"),
        ({"prompt": "x", "params": {"min_tokens": 256}}, "min_tokens"),
    ],
    ids=str,
)
def test_a_request_that_is_none(client: Client, fields: Frame, says: str) -> None:
    refused(client, says, **fields)


def test_prompt_lengths_around_the_limit(client: Client) -> None:
    for length, params in ((255, {"max_tokens": 1}), (255, {}), (254, {})):
        frames = client.generate("good", prompt_tokens=[5] * length, params=params)
        assert frames[-1]["usage"]["completion_tokens"] == 256 - length
        assert frames[-1]["choices"][0]["finish_reason"] == "length"
    for length in (256, 257):
        error = refused(
            client,
            str(length),
            "256",
            code="prompt_too_long",
            prompt_tokens=[5] * length,
            params={"max_tokens": 1},
        )
        assert error["detail"] == {"prompt_tokens": length, "max_model_len": 256}
    refused(client, "prompt: at least 300 tokens", "255", code="prompt_too_long", prompt="#" * 300)
    refused(client, "255", code="prompt_too_long", prompt="# " * 250_000)


@pytest.mark.parametrize(
    "id", ["", "x" * 129, "x" * 1_000_000, "a\nb", "a\0b", "\x1b[31m", 7, None]
)
def test_an_id_that_is_none_is_not_repeated(client: Client, id: Any) -> None:
    client.send(type="generate", id=id, prompt="x")
    error = client.receive()
    assert (error["type"], error["code"]) == ("error", "bad_request")
    assert "id" not in error
    assert "ref" not in error
    assert "id" in error["message"]
    assert len(error["message"]) < 200
    well(client)


def test_ids_of_any_script_and_reuse_after_the_end(client: Client) -> None:
    for id in ("🙂 日本", "a b", "x" * 128, "x" * 128):
        assert client.generate(id, prompt="x", params={"max_tokens": 2})[-1]["type"] == "done"
