"""The grammar of an answer is written once, where its prompt is tokenised."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pagedd.core.request import Request
from pagedd.protocol import Generate, Params
from pagedd.server import structure
from pagedd.server.edge import EdgeLimits
from pagedd.server.http.caller import Caller
from pagedd.server.hub import Hub
from pagedd.server.intake import Prompt, prepared, ready, submit
from pagedd.server.model import Model
from pagedd.server.text_work import TextWork
from pagedd.text.tokenizer import TextModel

pytestmark = pytest.mark.anyio
LIMITS = EdgeLimits(vocab_size=300, max_model_len=64, max_num_seqs=4)
FORM = Params(guided_json={"type": "object", "properties": {f"p{n}": {} for n in range(20)}})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Written:
    """Counts the schemas that are written as grammars, and remembers the threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[threading.Thread] = []
        write = structure.json_grammar

        def counted(schema: dict[str, Any]) -> str:
            self.threads.append(threading.current_thread())
            return write(schema)

        monkeypatch.setattr(structure, "json_grammar", counted)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    return Written(monkeypatch)


class _Hub:
    """As much of a hub as requests need on their way; they end here."""

    def __init__(self) -> None:
        self.text_work = TextWork(lambda: None)
        self.submitted: list[Request] = []
        self._last = 0

    def next_connection(self) -> int:
        return 1

    def next_handle(self) -> int:
        self._last += 1
        return self._last

    def begin_preparing(self, preparing: object) -> None:
        pass

    def end_preparing(self, preparing: object) -> None:
        pass

    def submit(self, request: Any) -> None:
        self.submitted.append(request.core)


@pytest.fixture
def model(text_dir: Path) -> Model:
    return cast(Model, SimpleNamespace(limits=LIMITS, text=TextModel.load(text_dir)))


def test_nothing_is_left_to_write_when_it_is_submitted(written: Written, model: Model) -> None:
    frame = Generate(id="a", prompt="abc", params=FORM)
    prompt = prepared(frame, model)
    assert (prompt.tokens, len(written.threads)) == (model.text.encode_bounded("abc", 63), 1)
    hub = _Hub()
    submit(cast(Hub, hub), Caller(cast(Hub, hub), 1000), 7, frame, model, prompt)
    assert [request.params.grammar for request in hub.submitted] == [prompt.grammar]
    assert prompt.grammar is not None
    assert len(written.threads) == 1


async def test_prompts_of_one_body_have_it_written_for_all(written: Written, model: Model) -> None:
    """Text or ids: those of ids have nothing else to wait for."""
    hub = _Hub()
    frames = [Generate(id="a", prompt="x" * n, params=FORM) for n in (1, 2, 3)]
    frames.append(Generate(id="a", prompt_tokens=[5], params=FORM))
    await Caller(cast(Hub, hub), 1000).ask(model, frames)
    assert [len(request.prompt) for request in hub.submitted] == [1, 2, 3, 1]
    grammars = {request.params.grammar for request in hub.submitted}
    assert len(grammars) == 1
    assert None not in grammars
    [thread] = written.threads
    assert thread is not threading.current_thread()


def test_ids_without_a_form_are_ready() -> None:
    assert ready(Generate(id="a", prompt_tokens=[5, 6])) == Prompt([5, 6], None)
    assert ready(Generate(id="a", prompt_tokens=[5, 6], params=FORM)) is None
    assert ready(Generate(id="a", prompt="x")) is None
