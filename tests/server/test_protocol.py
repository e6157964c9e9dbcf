"""The life of a request over the socket, in both forms of the wire."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from tests.engine.fake_engine import SLOW
from tests.server.harness import Client, Daemon, Frame, new_id
from tests.tiny.tokenizer import BOS, EOS


@pytest.fixture(params=["json", "msgpack"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Client]:
    with daemon.client(json_frames=request.param == "json") as client:
        yield client


def deltas(frames: list[Frame], index: int = 0) -> list[Frame]:
    return [frame for frame in frames if frame["type"] == "delta" and frame["index"] == index]


def text_of(frames: list[Frame], index: int = 0) -> str:
    return "".join(frame["text"] for frame in deltas(frames, index))


def test_hello_is_first_and_tells_the_limits(client: Client) -> None:
    hello = client.hello
    assert hello["type"] == "hello"
    assert hello["version"] == 1
    assert (hello["model"], hello["max_model_len"], hello["page_size"]) == ("fake", 256, 8)
    assert hello["num_pages"] == 64
    assert hello["limits"] == {
        "max_frame": 16 * 1024 * 1024,
        "max_queue": 64,
        "max_num_seqs": 16,
        "max_n": 16,
        "max_logprobs": 20,
        "vocab_size": 300,
    }
    assert {"generate", "cancel", "status", "logprobs"} <= set(hello["features"])


def test_a_stream_is_accepted_started_deltas_done(client: Client) -> None:
    frames = client.generate("a", prompt="one two ", params={"max_tokens": 12})
    kinds = [frame["type"] for frame in frames]
    assert kinds[:2] == ["accepted", "started"]
    assert set(kinds[2:-1]) == {"delta"}
    assert kinds[-1] == "done"
    parts = deltas(frames)
    assert [part["seq"] for part in parts] == list(range(1, len(parts) + 1))
    tokens = [token for part in parts for token in part["tokens"]]
    assert len(tokens) == 12
    assert text_of(frames).startswith("one two one")
    assert parts[-1]["finish_reason"] == "length"
    done = frames[-1]
    assert done["choices"] == [{"index": 0, "finish_reason": "length"}]
    assert done["usage"]["completion_tokens"] == 12
    assert done["usage"]["prompt_tokens"] == frames[0]["prompt_tokens"]
    assert done["ledger"]["preemptions"] == 0
    assert done["ledger"]["pages_peak"] > 0


def test_without_stream_the_same_text_is_in_done(client: Client) -> None:
    streamed = client.generate("a", prompt="naïve 🙂 ", params={"max_tokens": 20})
    frames = client.generate("b", prompt="naïve 🙂 ", params={"max_tokens": 20}, stream=False)
    assert [frame["type"] for frame in frames] == ["accepted", "started", "done"]
    choice = frames[-1]["choices"][0]
    assert choice["text"] == text_of(streamed)
    assert choice["tokens"] == [token for part in deltas(streamed) for token in part["tokens"]]


def test_no_delta_holds_half_a_character(client: Client) -> None:
    frames = client.generate("a", prompt="🙂é", params={"max_tokens": 18})
    assert all("�" not in part["text"] for part in deltas(frames))
    assert text_of(frames) == "🙂é" * 3
    cut = client.generate("b", prompt="🙂é", params={"max_tokens": 3})
    assert text_of(cut) == "�"


def test_choices_are_told_apart_and_counted(client: Client) -> None:
    frames = client.generate("a", prompt="abc", params={"max_tokens": 6, "n": 3})
    assert [text_of(frames, index) for index in range(3)] == ["abcabc"] * 3
    assert [choice["index"] for choice in frames[-1]["choices"]] == [0, 1, 2]
    assert frames[-1]["usage"]["completion_tokens"] == 18
    assert frames[-1]["usage"]["prompt_tokens"] == 3
    seqs = [frame["seq"] for frame in frames if frame["type"] == "delta"]
    assert seqs == list(range(1, len(seqs) + 1))


def test_logprobs_have_one_entry_per_token(client: Client) -> None:
    frames = client.generate("a", prompt="é", params={"max_tokens": 4, "logprobs": 2})
    entries = [entry for part in deltas(frames) for entry in part["logprobs"]]
    assert [entry["id"] for entry in entries] == [
        token for part in deltas(frames) for token in part["tokens"]
    ]
    assert len(entries) == 4
    raw = entries[0]["bytes"]
    assert (base64.b64decode(raw) if client.json_frames else raw) == "é".encode()[:1]
    assert [other["id"] for other in entries[0]["top"]] == [0, 1]
    bare = client.generate("b", prompt="é", params={"max_tokens": 2, "logprobs": 0})
    assert [entry["top"] for part in deltas(bare) for entry in part["logprobs"]] == [[], []]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("include", "text"), [(False, "on tw"), (True, "on two on")])
def test_a_stop_string_over_several_tokens(
    client: Client, stream: bool, include: bool, text: str
) -> None:
    params = {"max_tokens": 100, "stop": ["zzz", "o on"], "include_stop_str_in_output": include}
    frames = client.generate("a", prompt="on two ", params=params, stream=stream)
    choice = frames[-1]["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "o on")
    assert (text_of(frames) if stream else choice["text"]) == text


def test_min_tokens_holds_a_stop_string_off(client: Client) -> None:
    frames = client.generate(
        "a", prompt="abc", params={"max_tokens": 50, "stop": "c", "min_tokens": 5}
    )
    assert text_of(frames) == "abcab"
    assert frames[-1]["usage"]["completion_tokens"] == 6


def test_end_tokens_and_stop_tokens(client: Client) -> None:
    prompt = [65, 66, EOS]
    frames = client.generate("a", prompt_tokens=prompt, params={"max_tokens": 10})
    assert text_of(frames) == "bc"
    assert frames[-1]["choices"] == [{"index": 0, "finish_reason": "stop"}]
    assert frames[-1]["usage"]["completion_tokens"] == 3
    ignored = client.generate(
        "b", prompt_tokens=prompt, params={"max_tokens": 7, "ignore_eos": True}
    )
    assert text_of(ignored) == "bcbcb"
    assert ignored[-1]["choices"][0]["finish_reason"] == "length"
    stopped = client.generate("c", prompt_tokens=prompt, params={"stop_token_ids": [66]})
    assert text_of(stopped) == "b"
    assert stopped[-1]["choices"] == [{"index": 0, "finish_reason": "stop", "stop_reason": 66}]
    shown = client.generate(
        "d",
        prompt_tokens=prompt,
        params={"stop_token_ids": [66], "include_stop_str_in_output": True},
    )
    assert text_of(shown) == "bc"


def test_a_chat_has_one_bos_and_the_templates_refusal_is_the_clients(client: Client) -> None:
    frames = client.generate(
        "a",
        messages=[{"role": "user", "content": "hi"}],
        params={"max_tokens": 2, "skip_special_tokens": False},
    )
    assert deltas(frames)[0]["tokens"] == [BOS]
    assert text_of(frames).startswith("<|bos|>[")
    refused = client.generate("b", messages=[{"role": "tool", "content": "hi"}])
    assert refused[-1]["code"] == "bad_request"
    assert "no tools" in refused[-1]["message"]


def test_many_requests_interleave_over_one_connection(client: Client) -> None:
    words = {f"q{at}": f"word {at} " for at in range(12)}
    for id, prompt in words.items():
        client.send(type="generate", id=id, prompt=prompt, params={"max_tokens": 30})
    texts = dict.fromkeys(words, "")
    ended: list[str] = []
    while len(ended) < len(words):
        frame = client.receive()
        assert frame["id"] not in ended
        if frame["type"] == "delta":
            texts[frame["id"]] += frame["text"]
        elif frame["type"] == "done":
            ended.append(frame["id"])
    for id, prompt in words.items():
        assert (prompt * 30).startswith(texts[id])
        assert len(texts[id]) >= 30


def test_cancel_ends_with_done_and_what_was_generated(client: Client) -> None:
    slow = {"max_tokens": 200, "seed": SLOW}  # not over before the cancel comes
    client.send(type="generate", id="a", prompt="abc", params=slow)
    first = client.until("delta")
    client.send(type="cancel", id="a")
    frames = [first, *client.rest("a")]
    choice = frames[-1]["choices"][0]
    assert choice["finish_reason"] == "cancelled"
    assert deltas(frames)[-1]["finish_reason"] == "cancelled"
    assert frames[-1]["usage"]["completion_tokens"] == sum(len(d["tokens"]) for d in deltas(frames))
    client.send(type="cancel", id="a")
    late = client.receive()
    assert (late["type"], late["code"], late["ref"]) == ("error", "request_not_found", "a")
    assert "id" not in late
    again = client.generate("a", prompt="xyz", params={"max_tokens": 3})
    assert text_of(again) == "xyz"


def test_cancel_reaches_a_request_whose_prompt_is_being_tokenised(client: Client) -> None:
    client.send(type="generate", id="a", prompt="x " * 3_000_000)
    client.send(type="cancel", id="a")
    frames = client.rest("a")
    assert [frame["type"] for frame in frames] == ["done"]
    assert frames[0]["choices"][0]["finish_reason"] == "cancelled"


def test_a_cancel_is_for_its_own_connection_only(daemon: Daemon, client: Client) -> None:
    with daemon.client() as other:
        client.send(type="generate", id="a", prompt="abc", params={"max_tokens": 100})
        client.until("delta")
        other.send(type="cancel", id="a")
        assert other.receive()["code"] == "request_not_found"
        mine = other.generate("a", prompt="xyz", params={"max_tokens": 3})
        assert text_of(mine) == "xyz"
        assert client.rest("a")[-1]["choices"][0]["finish_reason"] == "length"


def test_an_id_in_use_is_refused_and_its_request_goes_on(client: Client) -> None:
    client.send(type="generate", id="a", prompt="abc", params={"max_tokens": 100})
    client.send(type="generate", id="a", prompt="xyz", params={"max_tokens": 100})
    client.send(type="generate", id="a", prompt="xyz", params={"n": 0})
    texts, refusals = "", []
    while (frame := client.receive())["type"] != "done":
        if frame["type"] == "delta":
            texts += frame["text"]
        elif frame["type"] == "error":
            refusals.append((frame["code"], frame["ref"], "id" in frame))
    assert refusals == [("duplicate_id", "a", False), ("bad_request", "a", False)]
    assert texts == ("abc" * 34)[:100]


def test_status_is_answered_with_the_ref(client: Client) -> None:
    client.send(type="status", ref="r-1")
    status = client.receive()
    assert (status["type"], status["ref"], status["state"]) == ("status", "r-1", "ready")
    assert status["connections"] >= 1
    assert [where.split(":")[0] for where in status["endpoints"]] == ["unix", "ws"]
    pages = status["pages"]
    assert sum(pages[name] for name in ("free", "cached", "owned", "shared")) == pages["total"]


def test_counters_follow_the_requests(client: Client) -> None:
    before = client.status()
    client.generate(new_id(), prompt="abcdef", params={"max_tokens": 10})
    slow = {"max_tokens": 200, "seed": SLOW}
    client.send(type="generate", id="x", prompt="abc", params=slow)
    client.until("delta")
    client.send(type="cancel", id="x")
    client.until("done")
    after = client.status()
    requests = {
        name: after["requests"][name] - before["requests"][name] for name in after["requests"]
    }
    assert requests["finished_total"] == requests["cancelled_total"] == 1
    assert requests["failed_total"] == 0
    assert after["tokens"]["generated"] - before["tokens"]["generated"] > 10
    assert after["tokens"]["per_second"] > 0
    assert {"plan", "build", "execute", "sample", "commit", "send"} == set(after["step_ms"])


def test_what_can_be_subscribed_to_is_named(client: Client) -> None:
    assert {"explain", "reprioritize", "events", "state"} <= set(client.hello["features"])
    client.send(type="subscribe", topic="weather")
    assert client.receive()["code"] == "bad_request"
