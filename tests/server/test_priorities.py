"""Priorities over the wire: who comes first, who gives way, and that everybody gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.server.harness import Client, Daemon, Frame, new_id

Start = Callable[..., Daemon]
SLOTS = (1, 2)
ABC = [64, 65, 66]  # the tokens of "abc"


def ask(client: Client, id: str, tokens: int, **fields: object) -> None:
    client.send(
        **{
            "type": "generate",
            "id": id,
            "prompt": "abc",
            "params": {"max_tokens": tokens},
            **fields,
        }
    )


def text_of(frames: list[Frame]) -> str:
    return "".join(frame["text"] for frame in frames if frame["type"] == "delta")


def circle(tokens: int, prompt: str = "abc") -> str:
    """What the fake engine makes of a prompt."""
    return (prompt * tokens)[:tokens]


def all_of_in_order(client: Client, ids: list[str]) -> list[Frame]:
    """All frames that come, to the end of the last of these requests."""
    frames: list[Frame] = []
    ended: set[str] = set()
    while not ended >= set(ids):
        frames.append(client.receive())
        if frames[-1]["type"] == "done":
            ended.add(frames[-1]["id"])
    return frames


def all_of(client: Client, ids: list[str]) -> dict[str, list[Frame]]:
    """The frames of each request, to the end of the last."""
    frames = all_of_in_order(client, ids)
    return {id: [frame for frame in frames if frame.get("id") == id] for id in ids}


@pytest.fixture(scope="module")
def single(start_for_module: Start) -> Daemon:
    return start_for_module(engine={"step_s": 0.005, "max_num_seqs": 1})


@pytest.fixture
def client(single: Daemon) -> Iterator[Client]:
    with single.client() as client:
        yield client
    single.until_quiet()


def test_a_waiting_request_that_becomes_urgent_overtakes(single: Daemon, client: Client) -> None:
    with single.client() as watching:
        watching.send(type="subscribe", topic="events")
        ask(client, "runs", 250, priority=-9)  # until it is cancelled
        for id in ("first", "second"):
            ask(client, id, 3, priority=5)
            client.until("accepted", id=id)
        client.send(type="reprioritize", id="second", priority=1)
        changed = watching.until("event")
        while changed["kind"] != "reprioritized":
            changed = watching.until("event")
        assert (changed["request"], changed["before"], changed["priority"]) == ("second", 5, 1)
        assert changed["aged"] is False
        assert changed["text"].endswith(" has priority 1 now, after 5.")
        client.send(type="cancel", id="runs")
    started = [client.until("started")["id"] for _ in range(2)]
    assert started == ["second", "first"]
    assert client.until("done", id="first")["choices"][0]["finish_reason"] == "length"


def test_a_request_is_reprioritised_while_its_prompt_is_tokenised(
    single: Daemon, client: Client
) -> None:
    with single.client() as other:
        for id in ("huge", "large"):  # what tokenises is busy with these
            other.send(type="generate", id=id, prompt="x " * 300_000)
        ask(client, "late", 2, priority=7)
        client.send(type="reprioritize", id="late", priority=-3)
        client.send(type="explain", id="late")
        waiting = client.until("explanation")["reasons"][0]
        assert ("limit" in waiting, waiting["priority"]) == (False, -3)
        client.until("done", id="late")
        client.send(type="explain", id="late")
        accepted = client.until("explanation")["reasons"][0]
        assert (accepted["kind"], accepted["priority"]) == ("accepted", -3)
        assert "priority -3" in accepted["text"]


@pytest.mark.parametrize("type", ["reprioritize", "cancel"])
def test_only_a_handle_reaches_another_connections_request(
    single: Daemon, client: Client, type: str
) -> None:
    more = {"priority": 3} if type == "reprioritize" else {}
    with single.client() as other:
        id = new_id()
        ask(client, id, 200)
        client.until("started")
        other.send(type="explain", id=id)
        handle = other.until("explanation")["reasons"][0]["handle"]
        for name in (id, "#999999", "#01"):
            other.send(type=type, id=name, **more)
            refused = other.receive()
            assert (refused["code"], refused["ref"]) == ("request_not_found", name)
        other.send(type="subscribe", topic="events")
        other.send(type=type, id=f"#{handle}", **more)
        if type == "cancel":
            assert client.until("done", id=id)["choices"][0]["finish_reason"] == "cancelled"
            assert other.until("event")["reason"] == "cancelled"
        else:
            changed = other.until("event")
            assert (changed["kind"], changed["handle"]) == ("reprioritized", handle)
            client.send(type="cancel", id=id)
            client.until("done", id=id)
        other.send(type=type, id=f"#{handle}", **more)
        assert other.until("error")["code"] == "request_not_found", "it has ended"


def test_a_request_that_is_tokenised_is_cancelled_by_its_handle(
    single: Daemon, client: Client
) -> None:
    with single.client() as other:
        client.send(type="generate", id="huge", prompt="x " * 300_000)
        client.send(type="explain", id="huge")
        handle = client.until("explanation")["reasons"][0]["handle"]
        other.send(type="cancel", id=f"#{handle}")
        assert client.until("done", id="huge")["choices"][0]["finish_reason"] == "cancelled"
        again = client.generate("huge", prompt="abc", params={"max_tokens": 2})
        assert text_of(again) == "ab"


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, 2**40, 10**40, 1.5, "1", None])
@pytest.mark.parametrize("type", ["generate", "reprioritize"])
def test_a_priority_has_32_bits(client: Client, type: str, priority: object) -> None:
    more = {"prompt": "abc"} if type == "generate" else {}
    client.send(type=type, id="a", priority=priority, **more)
    error = client.receive()
    assert error["code"] == "bad_request"
    assert error["message"].startswith("priority: ")
    assert error["id" if type == "generate" else "ref"] == "a"


@pytest.mark.parametrize("slots", SLOTS)
def test_an_urgent_request_begins_before_the_others_end(start: Start, slots: int) -> None:
    daemon = start(engine={"step_s": 0.005, "max_num_seqs": slots})
    with daemon.client() as client:
        low = [f"low{at}" for at in range(slots)]
        for id in low:
            ask(client, id, 200, priority=5)
        for id in low:
            client.until("delta", id=id)
        ask(client, "urgent", 10, priority=-5)
        frames = all_of_in_order(client, [*low, "urgent"])
        places = {
            (frame["id"], frame["type"]): at
            for at, frame in enumerate(frames)
            if frame["type"] in ("preempted", "resumed", "started", "done")
        }
        victim = next(id for id in low if (id, "preempted") in places)
        assert places["urgent", "started"] < min(places[id, "done"] for id in low)
        assert places["urgent", "done"] < places[victim, "resumed"]
        for id in low:
            mine = [frame for frame in frames if frame["id"] == id]
            # its first tokens were read before
            assert circle(200).endswith(text_of(mine))
            assert mine[-1]["usage"]["completion_tokens"] == 200
        gave_way = next(frame for frame in frames if frame["type"] == "preempted")
        assert f"{victim} (#" in gave_way["reason"]
        assert "gave way to urgent (#" in gave_way["reason"]
        assert "lacked slots: priority -5 comes before 5" in gave_way["reason"]
    daemon.until_quiet()
    daemon.stop()


def test_equal_priorities_give_way_only_for_pages(start: Start) -> None:
    tight = {"num_pages": 24, "max_num_seqs": 16, "num_host_pages": 24}
    daemon = start(engine=tight)
    with daemon.client() as client:
        ids = [f"e{at}" for at in range(5)]
        for id in ids:
            ask(client, id, 28)  # 31 tokens: 4 pages each, 20 of 24
        frames = all_of(client, ids)
        assert [text_of(frames[id]) for id in ids] == [circle(28)] * 5
        assert client.status()["num_preemptions"] == 0
        for id in ids:
            ask(client, id, 90)  # 93 tokens: 12 pages each, 60 of 24
        frames = all_of(client, ids)
        assert [text_of(frames[id]) for id in ids] == [circle(90)] * 5
        status = client.status()
        assert 0 < status["num_preemptions"] < 5 * 10
        reasons = [
            frame["reason"] for id in ids for frame in frames[id] if frame["type"] == "preempted"
        ]
        assert len(reasons) == status["num_preemptions"]
        assert not [reason for reason in reasons if "slots" in reason]
    daemon.until_quiet()
    daemon.stop()


def test_a_low_one_gets_there_in_an_endless_flow_of_urgent_ones(start: Start) -> None:
    """A level more urgent for each 0.2 s that it waits: after 0.6 s it comes before what comes.

    What came before it would take longer than that, and is cancelled as soon as that is over.
    Prompts of tokens are taken in the order in which they are sent.
    """
    daemon = start(engine={"step_s": 0.002, "max_num_seqs": 1}, config={"priority_aging": 0.2})
    early, late = [f"early{at}" for at in range(20)], [f"late{at}" for at in range(5)]
    with daemon.client() as client:

        def send(id: str, count: int, priority: int = 0) -> None:
            asked = {"prompt_tokens": ABC, "params": {"max_tokens": count}}
            client.send(type="generate", id=id, priority=priority, **asked)

        client.send(type="subscribe", topic="events")
        for id in early:
            send(id, 250)
        send("low", 20, priority=3)
        levels = [3]
        while levels[-1] > 0:
            frame = client.until("started", "event")
            assert (frame["type"], frame.get("id")) != ("started", "low"), "it did not wait"
            if frame.get("request") == "low" and frame["kind"] == "reprioritized":
                assert (frame["before"], frame["aged"]) == (levels[-1], True)
                levels.append(frame["priority"])
        client.send(type="unsubscribe", topic="events")
        for id in late:
            send(id, 1)
        for id in early:
            client.send(type="cancel", id=id)
        frames = all_of_in_order(client, ["low", *late])
        started = [frame["id"] for frame in frames if frame["type"] == "started"]
        assert [id for id in started if id not in early] == ["low", *late]
        mine = [frame for frame in frames if frame.get("id") == "low"]
        assert text_of(mine) == circle(20)
        assert mine[-1]["ledger"]["queued_ms"] >= 600
        client.send(type="explain", id="low")
        reasons = client.until("explanation")["reasons"]
        aged = [record["priority"] for record in reasons if record["kind"] == "reprioritized"]
        assert aged[: len(levels) - 1] == levels[1:]
    daemon.stop()


def test_streams_go_on_during_a_long_prefill(start: Start) -> None:
    """4,000 tokens in chunks of 64: the others get a token in each of the steps."""
    daemon = start(engine={"max_model_len": 4200, "num_pages": 1024, "step_s": 0.001, "budget": 64})
    with daemon.client() as client:
        streams = [f"s{at}" for at in range(3)]
        for id in streams:
            ask(client, id, 1000)
        for id in streams:
            client.until("delta", id=id)
        client.send(type="generate", id="big", prompt_tokens=[65] * 4000, params={"max_tokens": 1})
        client.until("started", id="big")
        drawn = dict.fromkeys(streams, 0)
        while (frame := client.until("delta"))["id"] != "big":
            drawn[frame["id"]] += len(frame["tokens"])
        # one in each step, give or take what waited for the daemon in one delta
        assert min(drawn.values()) > 4000 // 64 // 2
        assert max(drawn.values()) < 4000 // 64 * 2, "the long one waited for them"
    daemon.stop()


def test_fair_share_counts_by_connection_or_by_salt(start: Start) -> None:
    """Two connections with one salt are one client; the third is another, and gets as much."""
    daemon = start(
        engine={"step_s": 0.002, "max_num_seqs": 1}, config={"fair_share": True, "max_queue": 99}
    )
    with daemon.client() as one, daemon.client() as two, daemon.client() as other:
        other.send(type="subscribe", topic="events")
        for at in range(12):
            for client, name in ((one, "one"), (two, "two"), (other, "other")):
                salt = {} if client is other else {"cache_salt": "together"}
                ask(client, f"{name}{at}", 20, **salt)
        order: list[str] = []
        while len(order) < 14:
            event = other.until("event")
            if event["kind"] == "admitted":
                order.append(event["request"])
        others = [id for id in order[2:] if id.startswith("other")]
        assert 5 <= len(others) <= 7, order
        for client in (one, two, other):
            client.drop()  # frames that nobody reads would hold up a goodbye
    daemon.until_quiet()
    daemon.stop()
