"""The metrics of a daemon are exact, whatever happens to its requests."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)

from tests.cli.terminal import environment, run
from tests.engine.fake_engine import CRASH, NAN, SLOW
from tests.server.harness import Client, Daemon, Frame, until
from tests.server.scrape import Scrape, scrape

Start = Callable[..., Daemon]
HTTP = {"http": "127.0.0.1:0"}
FIVE = {"max_tokens": 5}


def quiet(daemon: Daemon) -> tuple[Scrape, Frame]:
    """The metrics and the status once nothing runs."""
    status = daemon.until_quiet()
    return scrape(daemon), status


def agree(metrics: Scrape, status: Frame) -> None:
    """What both count."""
    requests = status["requests"]
    ended = metrics.by("finished_reason", "request_success_total")
    assert ended["stop"] + ended["length"] == requests["finished_total"]
    assert ended["abort"] == requests["cancelled_total"]
    assert ended["error"] == requests["failed_total"]
    assert metrics("prompt_tokens_total") == status["tokens"]["prompt"]
    assert metrics("generation_tokens_total") == status["tokens"]["generated"]
    assert metrics("num_preemptions_total") == status["num_preemptions"]
    assert metrics("swapped_bytes_total") == status["swapped_bytes"]
    assert metrics("recomputed_tokens_total") == status["recomputed_tokens"]
    assert metrics("prefix_cache_hits_total") == status["prefix"]["hits"]
    assert metrics("prompt_tokens_by_source_total") == status["tokens"]["prompt"]
    assert metrics("prompt_tokens_cached_by_source_total") == status["prefix"]["hits"]
    assert metrics("steps_total") == status["num_steps"]
    for kind in ("pages", "host_pages"):
        pages = dict(status[kind])
        assert metrics(kind) == pages.pop("total")
        assert metrics.by("state", kind) == pages


def send(client: Client, id: str, prompt: str = "abc", **params: Any) -> None:
    client.send(type="generate", id=id, prompt=prompt, params={"max_tokens": 9, **params})


def test_every_request_is_counted_once_by_how_it_ended(start: Start) -> None:
    daemon = start(**HTTP)
    with daemon.client() as client, daemon.client() as leaving, daemon.client() as regretting:
        for at in range(5):
            send(client, f"length{at}")
        send(client, "two", n=2, max_tokens=7)
        send(client, "stop", stop=["bca"])
        ended_by_token = {"max_tokens": 9, "stop_token_ids": [99]}
        client.send(type="generate", id="id", prompt_tokens=[97, 98, 99], params=ended_by_token)
        send(client, "nan", seed=NAN)
        send(client, "long", prompt="x" * 300)
        for id in ("cancelled", "late"):
            send(regretting, id, seed=SLOW, max_tokens=200)
        regretting.until("delta", id="cancelled")
        regretting.send(type="cancel", id="cancelled")
        send(leaving, "left", seed=SLOW, max_tokens=200)
        leaving.until("delta", id="left")
        leaving.drop()
        regretting.until("delta", id="late")
        regretting.send(type="cancel", id="late")
        assert {regretting.until("done")["id"] for _ in range(2)} == {"cancelled", "late"}
        ends = [client.until("done", "error") for _ in range(10)]
    refused = [frame["id"] for frame in ends if frame.get("code") == "prompt_too_long"]
    assert refused == ["long"]
    metrics, status = quiet(daemon)
    assert metrics.by("finished_reason", "request_success_total") == {
        "stop": 2,
        "length": 6,
        "abort": 3,
        "error": 1,
    }
    assert metrics.by("code", "request_failures_total") == {"invalid_logits": 1}
    agree(metrics, status)
    usage = Counter[str]()
    for frame in ends:
        if frame["type"] == "done":
            usage.update(frame["usage"])
    assert metrics("request_prompt_tokens_count") == 8
    assert metrics("request_prompt_tokens_sum") == usage["prompt_tokens"]
    assert metrics("request_generation_tokens_sum") == usage["completion_tokens"]
    assert metrics("request_params_n_sum") == 9
    assert metrics("request_params_max_tokens_sum") == 7 * 9 + 7
    assert metrics("request_max_num_generation_tokens_sum") == usage["completion_tokens"] - 7
    for name in ("e2e_request_latency", "request_queue_time", "request_decode_time"):
        assert metrics(f"{name}_seconds_count") == 8
    assert metrics("time_to_first_token_seconds_count") == 8 + 4  # the NaN comes second
    choices = 8 + 1 + 4
    tokens = metrics("generation_tokens_total")
    assert metrics("inter_token_latency_seconds_count") == tokens - choices
    assert metrics("time_per_output_token_seconds_count") == tokens - choices
    assert metrics("iteration_tokens_total_sum") >= tokens
    assert daemon.stop()[0] == 0


def test_what_is_cancelled_on_its_way_to_the_engine_is_counted_too(start: Start) -> None:
    daemon = start(engine={"max_model_len": 4096, "num_pages": 600}, **HTTP)
    with daemon.client() as client:
        for at in range(40):
            send(client, f"r{at}", prompt="word " * 300, seed=SLOW, max_tokens=200)
            client.send(type="cancel", id=f"r{at}")
        assert {client.until("done")["choices"][0]["finish_reason"] for _ in range(40)} == {
            "cancelled"
        }
    metrics, status = quiet(daemon)
    assert metrics("request_success_total", finished_reason="abort") == 40
    agree(metrics, status)


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_preemptions_are_those_that_clients_were_told_of(start: Start, mode: str) -> None:
    daemon = start(
        engine={"num_pages": 24, "num_host_pages": 40},
        config={"preemption_mode": mode},
        **HTTP,
    )
    told = 0
    with daemon.client() as client:
        for at in range(6):
            send(client, f"r{at}", prompt=f"n{at}", max_tokens=80, ignore_eos=True)
        ended = 0
        while ended < 6:
            frame = client.receive()
            told += frame["type"] == "preempted"
            ended += frame["type"] in ("done", "error")
    metrics, status = quiet(daemon)
    other = "recompute" if mode == "swap" else "swap"
    assert metrics.by("mode", "num_preemptions_total") == {mode: told, other: 0}
    assert told > 0
    assert metrics("request_num_preemptions_sum") == told
    moved = "swapped_bytes_total" if mode == "swap" else "recomputed_tokens_total"
    assert metrics(moved) > 0
    assert metrics("request_preempted_time_seconds_sum") > 0
    assert metrics("generation_tokens_total") == 6 * 80
    assert metrics("inter_token_latency_seconds_count") == 6 * 79
    agree(metrics, status)


def test_totals_outlive_the_engine(start: Start) -> None:
    daemon = start(engine={"step_s": 0.003}, **HTTP)
    with daemon.client() as client:
        assert client.generate("before", prompt="abc", params=FIVE)[-1]["type"] == "done"
        assert scrape(daemon)("engine_restarts_total") == 0
        send(client, "crash", seed=CRASH)
        client.until("error", "done", id="crash")
        daemon.until_state("ready")
        send(client, "open", max_tokens=200)
        client.until("delta", id="open")
        with daemon.client() as leaving:
            send(leaving, "left", max_tokens=200)
            leaving.until("delta", id="left")
            os.kill(client.status()["engine_pid"], signal.SIGSTOP)
        client.send(type="cancel", id="open")  # and no engine will ever confirm either
        until(lambda: daemon.status()["connections"] == 2, "the end of the other")
        os.kill(client.status()["engine_pid"], signal.SIGKILL)
        client.until("done", "error", id="open")
        daemon.until_state("ready")
        assert client.generate("after", prompt="abc", params=FIVE)[-1]["type"] == "done"
    metrics, status = quiet(daemon)
    restarts = metrics("engine_restarts_total")
    assert restarts >= 2
    ended = metrics.by("finished_reason", "request_success_total")
    assert (ended["length"], ended["error"] + ended["abort"]) == (2, 3)
    assert ended["abort"] >= 2
    assert metrics("generation_tokens_total") > 10
    agree(metrics, status)


def test_it_says_what_the_queue_waits_for(start: Start) -> None:
    daemon = start(engine={"max_num_seqs": 1}, **HTTP)
    with daemon.client() as client:
        send(client, "slow", seed=SLOW, max_tokens=100)
        client.until("started", id="slow")
        for at in range(4):
            send(client, f"s{at}")
            client.until("accepted", id=f"s{at}")
        client.until("delta", id="slow")
        metrics = scrape(daemon)
        assert metrics("num_requests_running") == 1
        assert metrics("num_requests_waiting") == 4
        assert metrics("num_requests_waiting_by_reason", reason="capacity") == 4
        limits = metrics.by("limit", "num_requests_waiting_by_limit")
        assert {limit: count for limit, count in limits.items() if count} == {"slots": 4}
        assert metrics("connections", kind="websocket") >= 1
    metrics, status = quiet(daemon)
    assert metrics("num_requests_waiting_by_limit") == 0
    agree(metrics, status)


def test_a_full_queue_is_counted(start: Start) -> None:
    daemon = start(engine={"max_num_seqs": 1}, config={"max_queue": 2}, **HTTP)
    with daemon.client() as client:
        for at in range(9):
            client.send(
                type="generate",
                id=f"r{at}",
                prompt_tokens=[97, 98],
                params={"max_tokens": 30, "seed": SLOW},
            )
        codes = Counter(client.until("done", "error").get("code") for _ in range(9))
    assert codes["queue_full"] > 0
    metrics, status = quiet(daemon)
    assert metrics("admission_rejections_total", reason="max_queue") == codes["queue_full"]
    assert metrics("request_failures_total", code="queue_full") == codes["queue_full"]
    agree(metrics, status)


def test_http_requests_are_counted_by_path_and_status(start: Start) -> None:
    daemon = start(**HTTP, api_keys=("secret",))
    url = daemon.status()["endpoints"][-1]

    def ask(path: str, method: str = "GET", body: Any = None, key: str = "secret") -> int:
        headers = {"Authorization": f"Bearer {key}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    body = {"prompt": "abc", "max_tokens": 3}
    assert ask("/v1/completions", "POST", body) == 200
    assert ask("/v1/completions", "POST", body | {"stream": True}) == 200
    assert ask("/v1/completions", "POST", body | {"n": 0}) == 400
    assert ask("/v1/completions", "POST", body, key="wrong") == 401
    assert ask("/v1/completions", "GET") == 405
    for name in "abc":
        assert ask(f"/no/such/{name}") == 404
    request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": "Bearer secret"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        metrics = Scrape(answer.read().decode(), "")
    counted = {
        (sample.labels["handler"], sample.labels["method"], sample.labels["status"]): sample.value
        for sample in metrics.series
        if sample.name == "http_requests_total"
    }
    assert counted == {
        ("/v1/completions", "POST", "2xx"): 2,
        ("/v1/completions", "POST", "4xx"): 2,
        ("/v1/completions", "GET", "4xx"): 1,
        ("other", "GET", "4xx"): 3,
    }
    assert metrics("http_request_duration_seconds_count", method="POST") == 4


def test_the_format_is_the_one_that_was_asked_for(start: Start) -> None:
    daemon = start(**HTTP)
    assert scrape(daemon).content_type.startswith("text/plain; version=0.0.4")
    url = daemon.status()["endpoints"][-1]
    assert url.startswith("http://127.0.0.1:")
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = scrape(daemon, accept)
    assert answer.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    names = {family.name for family in openmetrics_families(answer.text)}
    assert {"pagedd:generation_tokens", "pagedd:pages", "pagedd:step_seconds"} <= names


def test_the_command_says_where_they_are(start: Start, tmp_path: Path) -> None:
    daemon = start(**HTTP, metrics_namespace="vllm")
    env = environment(tmp_path, PAGEDD_SOCKET=daemon.settings.socket)
    said = run("metrics", env=env)
    assert (said.returncode, said.stderr) == (0, b"")
    with urllib.request.urlopen(said.stdout.decode().strip(), timeout=20) as answer:
        assert b"\nvllm:num_requests_running{" in answer.read()
    board = run("metrics", "--dashboard", env=env)
    assert json.loads(board.stdout)["title"] == "pagedd"
    without = start()
    env = environment(tmp_path, PAGEDD_SOCKET=without.settings.socket)
    refused = run("metrics", env=env)
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"serves no HTTP" in refused.stderr
