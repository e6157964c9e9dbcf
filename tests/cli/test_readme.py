"""The examples of README.md, as they stand there, against a daemon with the embedded model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagedd.models.catalog import DEFAULT_MODEL
from tests.real_daemon import daemon, wire

README = (Path(__file__).parents[2] / "README.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
CURL = [
    command.replace("\n$ ", "\n")
    for block in re.findall(r"^```console\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    for command in re.findall(r"^\$ (curl .*?chat/completions.*?)(?=^\$|\Z)", block, re.S | re.M)
]


@pytest.fixture(scope="module")
def here() -> Iterator[dict[str, str]]:
    """Where the README has the daemon, and where it is."""
    with tempfile.TemporaryDirectory(prefix="pagedd-") as home:
        flags = ("--http=127.0.0.1:0", "--listen=127.0.0.1:0", "--kv-cache-memory=256MiB")
        with daemon(Path(home), DEFAULT_MODEL, *flags) as address:
            with wire(address) as client:
                _, websocket, http = client.status()["endpoints"]
            yield {"http://127.0.0.1:8411": http, "ws://127.0.0.1:7411": websocket}


def ran(here: dict[str, str], *command: str) -> str:
    """What it prints; the last word is of the README."""
    *words, text = command
    for told, found in here.items():
        text = text.replace(told, found)
    done = subprocess.run([*words, text], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def curl(here: dict[str, str], command: str) -> Any:
    """The message of the answer."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    answer = json.loads(ran(here, "sh", "-c", command))
    return answer["choices"][0]["message"]


def test_all_examples_are_known() -> None:
    assert [block.split("\n", 1)[0].split("  #")[0] for block in PYTHON] == [
        "from openai import OpenAI",
        "from typing import Literal",
        "import json",
    ]
    assert len(CURL) == README.count("$ curl http://127.0.0.1:8411/v1/chat") == 2


def test_an_answer_has_the_form_that_is_told(here: dict[str, str]) -> None:
    client, review, _ = PYTHON
    lines = ran(here, sys.executable, "-c", client + review).splitlines()
    assert lines == [
        "The capital of France is Paris.",
        *re.findall(r"parsed\)  # (.*)$", review, re.MULTILINE),
    ]
    assert len(lines) == 2


def test_the_websocket_says_hello_and_streams(here: dict[str, str]) -> None:
    hello, _, text = ran(here, sys.executable, "-c", PYTHON[2]).partition("\n")
    assert hello.startswith("{'type': 'hello'")
    assert DEFAULT_MODEL in hello
    assert len(text.split()) > 10


def test_curl_gets_an_answer(here: dict[str, str]) -> None:
    message = curl(here, CURL[0])
    assert message["role"] == "assistant"
    assert message["content"].strip()


def test_a_function_is_called(here: dict[str, str]) -> None:
    (call,) = curl(here, CURL[1])["tool_calls"]
    assert call["function"]["name"] == "weather"
    arguments = json.loads(call["function"]["arguments"])
    assert list(arguments) == ["city"]
    assert "Paris" in arguments["city"]
