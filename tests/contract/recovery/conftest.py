"""A Thread of one's own for each test, on each database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage import StoreLimits, open_store
from tests.postgres_server import PostgresServer

from .lab import Lab


@pytest.fixture(scope="session")
def recovery_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """One server for all tests; each takes a database of its own."""
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@contextmanager
def opened(url: str) -> Iterator[Lab]:
    """A Thread on a fresh database."""
    store = open_store(url, limits=StoreLimits(), synchronous="OFF")
    try:
        yield Lab(store, url)
    finally:
        store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A Thread on a fresh database of each kind."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'threads.db'}"
    else:
        url = request.getfixturevalue("recovery_postgres").url()
    with opened(url) as lab:
        yield lab
