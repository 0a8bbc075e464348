"""A store of one's own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import StoreLimits, open_store

from .lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A Thread on a fresh SQLite database."""
    file = tmp_path / "threads.db"
    store = open_store(f"sqlite:///{file}", limits=StoreLimits(), synchronous="OFF")
    yield Lab(store, file)
    store.close()
