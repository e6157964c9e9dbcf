"""The ``events`` feed over the wire: what happens, history, and readers that do not read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from pagedd.protocol import MAX_HISTORY
from tests.server.harness import Client, Daemon, Frame, new_id, until

Start = Callable[..., Daemon]


@pytest.fixture(params=["json", "msgpack"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Client]:
    with daemon.client(json_frames=request.param == "json") as client:
        yield client
    daemon.until_quiet()


def subscribe(client: Client, **fields: object) -> None:
    """The status is answered after it: from then on nothing is missed."""
    client.send(type="subscribe", topic="events", **fields)
    if "history" not in fields:
        client.status()


def events(client: Client, count: int) -> list[Frame]:
    return [client.until("event") for _ in range(count)]


def test_a_request_of_anybody_from_beginning_to_end(client: Client, daemon: Daemon) -> None:
    subscribe(client)
    began, id = time.time(), new_id()
    with daemon.client() as other:
        done = other.generate(id, prompt="abc", params={"max_tokens": 4})[-1]
    accepted, admitted, finished = events(client, 3)
    assert [each["kind"] for each in (accepted, admitted, finished)] == [
        "accepted",
        "admitted",
        "finished",
    ]
    assert {each["request"] for each in (accepted, admitted, finished)} == {id}
    assert len({each["handle"] for each in (accepted, admitted, finished)}) == 1
    assert began - 1 < accepted["at"] <= admitted["at"] <= finished["at"] < time.time() + 1
    assert finished["text"].startswith(f"{id} (#{finished['handle']}) finished: queued ")
    assert f"at most {done['ledger']['pages_peak']} page" in finished["text"]


def test_history_comes_first(client: Client, daemon: Daemon) -> None:
    ids = [new_id() for _ in range(3)]
    with daemon.client() as other:
        for id in ids:
            other.generate(id, prompt="abc", params={"max_tokens": 1})
        subscribe(client, history=6)
        before = events(client, 6)
        assert [each["request"] for each in before] == [id for id in ids[1:] for _ in range(3)]
        last = new_id()
        other.generate(last, prompt="abc", params={"max_tokens": 1})
    assert {each["request"] for each in events(client, 3)} == {last}


def test_to_subscribe_twice_and_to_leave_twice_is_harmless(client: Client, daemon: Daemon) -> None:
    with daemon.client() as other:

        def kinds_after(id: str) -> list[str]:
            """Of the events that came by the time that the request has ended."""
            other.generate(id, prompt="abc", params={"max_tokens": 1})
            client.send(type="status", ref=id)
            kinds = []
            while (frame := client.receive())["type"] != "status":
                kinds += [frame["kind"]] if frame.get("request") == id else []
            return kinds

        assert kinds_after(new_id()) == [], "nobody asked for events"
        subscribe(client)
        subscribe(client)
        client.send(type="subscribe", topic="events", history=50)
        assert kinds_after(new_id()) == ["accepted", "admitted", "finished"]
        client.send(type="unsubscribe", topic="events")
        client.send(type="unsubscribe", topic="events")
        assert kinds_after(new_id()) == []


def test_several_read_at_once_and_one_leaves(daemon: Daemon) -> None:
    id = new_id()
    with daemon.client() as one, daemon.client(json_frames=False) as two:
        with daemon.client() as gone:
            for each in (one, two, gone):
                subscribe(each)
            gone.drop()
        one.generate(id, prompt="abc", params={"max_tokens": 1})
        subscribe(one, history=0)
        seen = events(two, 3)
        with daemon.client() as late:
            subscribe(late, history=3)
            assert events(late, 3) == seen
    assert {each["request"] for each in seen} == {id}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("history", -1),
        ("history", MAX_HISTORY + 1),
        ("history", 1.5),
        ("history", "all"),
        ("topic", "weather"),
        ("topic", ""),
        ("hz", 0),
        ("hz", 31),
    ],
)
def test_what_is_no_subscription_is_refused_by_name(
    client: Client, field: str, value: object
) -> None:
    client.send(**{"type": "subscribe", "topic": "events", field: value})
    error = client.receive()
    assert (error["type"], error["code"]) == ("error", "bad_request")
    assert error["message"].lower().startswith((f"{field}:", "invalid enum value"))
    assert "ref" not in error


def test_what_is_evicted(start: Start) -> None:
    daemon = start(engine={"num_pages": 16, "num_host_pages": 8})
    with daemon.client() as client:
        subscribe(client)
        for at in range(6):
            # 8 pages each, of which a full prompt stays in the cache
            prompt = [65 + at] * 56
            client.send(type="generate", id="a", prompt_tokens=prompt, params={"max_tokens": 6})
            client.until("done")
        status = client.status()
        client.send(type="subscribe", topic="events")
    with daemon.client() as client:
        subscribe(client, history=MAX_HISTORY)
        evicted, seen = 0, 0
        while evicted < 6 * 7 - 16:
            event = client.until("event")
            if event["kind"] == "evicted":
                assert not {"request", "handle"} & set(event)
                assert event["text"].startswith(f"{event['pages']} cached page")
                evicted += event["pages"]
                seen += event["saved"]
        assert seen == status["spilled_pages"] > 0
    daemon.stop()


FLOOD = MAX_HISTORY + 4000  # what the buffers on the way hold, and then more than is remembered
LONG = "changing" * 16  # it is named twice in each event, so that the buffers hold fewer


def flood(client: Client) -> None:
    """So many events: a request gets another priority again and again."""
    client.send(type="generate", id=LONG, prompt="abc")
    client.until("started")
    for priority in range(1, FLOOD + 1):
        client.send(type="reprioritize", id=LONG, priority=priority)
    client.send(type="cancel", id=LONG)
    client.until("done")


def check_counts(told: list[Frame]) -> None:
    """Of what happened from the first request to the end, each gap is counted exactly.

    Each event of the flood says which it is; between them comes the end of the other request.
    """
    place, before_flood, other_ended = 0, 4, False
    for event in told:
        if event["kind"] == "missed":
            assert event["count"] > 0
            assert event["text"].startswith(f"{event['count']:,} event")
            place += event["count"]
            continue
        if event["kind"] == "reprioritized":
            ended = place - event["before"] - before_flood
            assert ended in ((1,) if other_ended else (0, 1))
            other_ended = ended == 1
        other_ended |= event["kind"] == "finished"
        place += 1
    assert place == before_flood + FLOOD + 2, "each is told or counted"


def test_who_does_not_read_misses_events_and_keeps_its_request(start: Start) -> None:
    daemon = start(outbox_bytes=100_000, engine={"step_s": 0.02})
    with daemon.client(max_queue=1) as silent, daemon.client() as other:
        subscribe(silent)
        silent.send(type="generate", id="own", prompt="abc", params={"max_tokens": 20})
        silent.until("started")
        flood(other)
        until(lambda: other.status()["requests"]["finished_total"], "its own request to end")
        with daemon.client() as late:
            subscribe(late, history=MAX_HISTORY)
            remembered = events(late, MAX_HISTORY)
        frames: list[Frame] = []
        while not frames or frames[-1] != remembered[-1]:
            frames.append(silent.receive())
        assert [frame["type"] for frame in frames if frame.get("id") == "own"][-1] == "done"
        told = [frame for frame in frames if frame["type"] == "event"]
        check_counts(told)
        # a step that brings more events than are remembered makes a gap too, so there may be two
        last = max(at for at, event in enumerate(told) if event["kind"] == "missed")
        assert told[last + 1 :][-MAX_HISTORY:] == remembered, "all that was not forgotten"
        assert silent.generate("more", prompt="abc", params={"max_tokens": 1})[-1]["type"] == "done"
        silent.drop()  # events that nobody reads would hold up a goodbye
    daemon.stop()
