"""``pagedd doctor`` looks at everything and survives whatever it finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagedd.cli import doctor
from pagedd.config import load_config
from pagedd.paths import cache_dir
from tests.cli.terminal import environment, run, with_built_kernels

NOWHERE = Path("/nonexistent/pagedd.toml")


def test_every_part_of_the_machine_is_named(home: Path) -> None:
    kernels = home / ".cache" / "pagedd" / "kernels"  # the user's, to compile none
    kernels.parent.mkdir(parents=True)
    (cache_dir() / "kernels").mkdir(parents=True, exist_ok=True)
    kernels.symlink_to(cache_dir() / "kernels")
    done = run("doctor", "--json", "--device", "cpu", env=environment(home))
    findings = json.loads(done.stdout)
    subjects = {finding["subject"] for finding in findings}
    assert subjects >= {
        *("python", "memory", "compiler", "cache", "state", "runtime", "socket", "model"),
        *("settings", "torch", "libraries", "device", "kernels"),
    }
    kernels = [f["text"] for f in findings if f["subject"] == "kernels"]
    assert any("not triton: " in text for text in kernels)
    model = next(f for f in findings if f["subject"] == "model")
    assert model["verdict"] == "note"
    assert "pagedd pull" in model["text"]
    assert done.returncode == 0


def test_a_cache_that_the_device_does_not_have_is_bad(home: Path) -> None:
    asked = ("--device", "cpu", "--kv-cache-dtype", "fp8_e5m2")
    done = run("doctor", "--json", *asked, env=with_built_kernels(environment(home)))
    (cache,) = [f for f in json.loads(done.stdout) if f["subject"] == "kv cache"]
    assert cache["verdict"] == "bad"
    assert "--kv-cache-dtype fp8_e5m2 needs a GPU" in cache["text"]
    assert done.returncode == 1


def test_a_missing_model_and_a_wrong_folder_are_bad(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    (home / "pagedd").write_text("in the way")
    config = load_config({"model": "/no/such/model"}, {}, user_file=NOWHERE)
    found = {f.subject: f for f in doctor.look_here(config)}
    assert found["model"].verdict == doctor.BAD
    assert found["runtime"].verdict == found["socket"].verdict == doctor.BAD
    assert found["cache"].verdict == doctor.GOOD


@pytest.mark.parametrize(
    ("module", "text"),
    [("no.such.module", "cannot be used"), ("this", "gave no answer"), ("json.tool", "cannot be")],
)
def test_a_child_that_fails_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, module: str, text: str
) -> None:
    monkeypatch.setattr(doctor, "CHILD", module)
    (found,) = doctor.look_in_child(load_config({}, {}, user_file=NOWHERE))
    assert found.verdict == doctor.BAD
    assert text in found.text


def test_no_compiler_is_a_note(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.delenv("CXX", raising=False)
    found = {f.subject: f for f in doctor.look_here(load_config({}, {}, user_file=NOWHERE))}
    assert found["compiler"].verdict == doctor.NOTE
