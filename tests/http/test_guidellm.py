"""guidellm, as people run it: its load is answered to the last token, and it can read that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.edges import Served
from tests.http.models import serving
from tests.tiny.models import build

REQUESTS, INPUT_LEN, OUTPUT_LEN = 24, 20, 8
GUIDELLM = (sys.executable, "-m", "guidellm", "run", "--disable-console")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("llama", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[Served]:
    with serving() as serve:
        yield serve(lambda _: model, "--page-size=8")


def guide(served: Served, model: Path, report: Path) -> Any:
    """Its only benchmark, of eight requests at a time to /v1/chat/completions."""
    lengths = f"prompt_tokens={INPUT_LEN},output_tokens={OUTPUT_LEN}"
    options = {
        "--backend": f"kind=openai_http,target={served.http}",
        "--profile": "kind=concurrent,streams=8",
        "--constraint": f"kind=max_requests,count={REQUESTS}",
        "--tokenizer": f"kind=huggingface_auto,model={model}",
        "--data": f"kind=synthetic_text,{lengths}",
        "--output": f"kind=json,path={report}",
    }
    command = [*GUIDELLM, *(word for option in options.items() for word in option)]
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    subprocess.run(command, env=offline, check=True, timeout=120, stdout=subprocess.DEVNULL)
    (benchmark,) = json.loads(report.read_bytes())["benchmarks"]
    return benchmark


def test_every_request_is_answered(served: Served, model: Path, tmp_path: Path) -> None:
    metrics = guide(served, model, tmp_path / "report.json")["metrics"]
    totals = {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
    assert metrics["request_totals"] == totals
    tokens = metrics["output_token_count"]["successful"]
    assert (tokens["count"], tokens["min"], tokens["max"]) == (REQUESTS, OUTPUT_LEN, OUTPUT_LEN)
    assert metrics["prompt_token_count"]["successful"]["min"] >= INPUT_LEN
