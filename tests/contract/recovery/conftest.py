"""A Thread of one's own for each test, on each database."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storage import StoreLimits, open_store

from .lab import Lab


@contextmanager
def opened(url: str) -> Iterator[Lab]:
    """A Thread on a fresh database."""
    store = open_store(url, limits=StoreLimits(), synchronous="OFF", pool_size=4)
    try:
        yield Lab(store, url)
    finally:
        store.close()


@pytest.fixture
def lab(migrated_url: str) -> Iterator[Lab]:
    """A Thread on an empty database of each kind."""
    with opened(migrated_url) as lab:
        yield lab
