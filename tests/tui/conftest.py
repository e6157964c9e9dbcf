"""The dashboard looks the same wherever its tests run."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def neutral_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wish for no colour, and no SSH."""
    for name in ("NO_COLOR", "SSH_CONNECTION", "TEXTUAL_ANIMATIONS"):
        monkeypatch.delenv(name, raising=False)
