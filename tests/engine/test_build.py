"""The engine's composition, with a real tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagedd.engine.main import build_engine
from pagedd.engine.messages import EngineConfig
from pagedd.errors import ModelError
from tests.tiny.models import build


def test_random_weights_need_no_weights_in_the_folder(tmp_path: Path) -> None:
    folder = build("llama", tmp_path / "llama")
    (folder / "model.safetensors").unlink()
    config = EngineConfig(model=str(folder), load_format="dummy", num_pages=4, page_size=4)
    assert build_engine(config, lambda phase, fraction: None).ready.num_pages == 4
    with pytest.raises(ModelError, match="holds no"):
        build_engine(EngineConfig(model=str(folder)), lambda phase, fraction: None)


def test_the_daemon_is_told_what_memory_goes_where(tmp_path: Path) -> None:
    folder = build("llama", tmp_path / "llama")
    config = EngineConfig(model=str(folder), num_pages=4, page_size=4, dtype="float32")
    engine = build_engine(config, lambda phase, fraction: None)
    stored = (folder / "model.safetensors").stat().st_size
    # packed weights end with padding, and the file has a head
    assert 0.95 * stored < engine.ready.weights_bytes < 1.15 * stored
    assert any(note.startswith("weights: ") for note in engine.ready.notes)
    per_token = engine.ready.page_bytes // 4
    config = EngineConfig(model=str(folder), num_pages=4, page_size=8, dtype="float32")
    assert build_engine(config, lambda phase, fraction: None).ready.page_bytes == 8 * per_token
    assert engine.ready.free_bytes is None, "the cache is in the host's memory"
