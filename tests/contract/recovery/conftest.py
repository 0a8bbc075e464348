"""A store of one's own for each test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage import StoreLimits, open_store

from .lab import Lab


@contextmanager
def opened(file: Path) -> Iterator[Lab]:
    """A Thread on a fresh SQLite database."""
    store = open_store(f"sqlite:///{file}", limits=StoreLimits(), synchronous="OFF")
    try:
        yield Lab(store, file)
    finally:
        store.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A Thread on a fresh SQLite database."""
    with opened(tmp_path / "threads.db") as lab:
        yield lab
