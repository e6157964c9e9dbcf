"""``curl`` as people type it: whole answers, streams, refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.http.edges import Served

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
BODY = {"model": "fake", "prompt": "abc", "max_tokens": 6}


def curl(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run it without the settings of the person who runs the tests."""
    command = ["curl", "--disable", "--silent", "--show-error", "--noproxy", "*", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def ask(url: str, *arguments: str) -> tuple[int, dict[str, str], Any]:
    """Status, headers in lower case, body as JSON."""
    done = curl("--include", *arguments, url)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
    first, *rest = head.splitlines()
    fields = dict(line.lower().split(": ", 1) for line in rest)
    return int(first.split()[1]), fields, json.loads(body)


def test_a_completion(served: Served) -> None:
    url = f"{served.http}/v1/completions"
    given = ("-H", "Content-Type: application/json", "-d", json.dumps(BODY))
    status, headers, answer = ask(url, *given)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert answer["choices"][0]["text"] == "abcabc"
    # without saying what it is, as many do
    assert ask(url, "-d", json.dumps(BODY))[2]["choices"] == answer["choices"]


def test_a_stream_comes_line_by_line(served: Served) -> None:
    body = json.dumps({**BODY, "stream": True})
    done = curl("-N", "-d", body, f"{served.http}/v1/completions")
    events = done.stdout.strip().split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    *chunks, last = [event.removeprefix("data: ") for event in events]
    assert last == "[DONE]"
    texts = [json.loads(chunk)["choices"][0]["text"] for chunk in chunks]
    assert "".join(texts) == "abcabc"
    assert len(texts) > 2


def test_a_long_body_is_asked_for_before_it_is_sent(served: Served) -> None:
    body = json.dumps({"prompt": "abc " * 300_000})  # beyond 1 MiB curl waits for "100 Continue"
    done = curl("--verbose", "-d", "@-", f"{served.http}/tokenize", stdin=body)
    assert json.loads(done.stdout)["error"]["code"] == "context_length_exceeded"
    assert "100 Continue" in done.stderr


@pytest.mark.parametrize(
    ("path", "arguments", "status", "code"),
    [
        ("/v1/completions", ("-d", "{"), 400, "bad_request"),
        ("/v1/completions", ("-d", '{"prompt": "a", "top_q": 1}'), 400, "bad_request"),
        ("/v1/completions", ("-d", '{"prompt": "a", "model": "b"}'), 404, "model_not_found"),
        ("/v1/completions", (), 405, "method_not_allowed"),
        ("/v1/none", (), 404, "not_found"),
        ("/v1/models", ("-H", "Host: evil.example"), 403, None),
    ],
)
def test_refusals_have_one_form(
    served: Served, path: str, arguments: tuple[str, ...], status: int, code: str | None
) -> None:
    got, headers, answer = ask(served.http + path, *arguments)
    assert got == status
    assert headers["content-type"] == "application/json"
    assert answer["error"].keys() == {"message", "type", "param", "code"}
    assert code in (None, answer["error"]["code"])


def test_what_is_no_openai_endpoint(served: Served) -> None:
    assert ask(f"{served.http}/health")[0] == 200
    assert ask(f"{served.http}/version")[2]["version"]
    assert ask(f"{served.http}/openapi.json")[2]["openapi"].startswith("3.")
    ids = ask(f"{served.http}/tokenize", "-d", '{"prompt": "abc"}')[2]["tokens"]
    text = ask(f"{served.http}/detokenize", "-d", json.dumps({"tokens": ids}))[2]
    assert text == {"prompt": "abc"}
    metrics = curl(f"{served.http}/metrics").stdout
    assert "pagedd:num_requests_running" in metrics
