"""A fresh rig and script for each test."""

from pathlib import Path

import pytest

from tests.unit.attempt.rig import Rig, Script


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A rig without bindings."""
    return Rig(tmp_path, monkeypatch)


@pytest.fixture
def script() -> Script:
    """A model without steps."""
    return Script()
