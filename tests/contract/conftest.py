"""Every case of this tier runs on SQLite and on PostgreSQL, each time on a fresh, migrated database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import StoreLimits, open_store
from storage.store import SqlStore
from tests.contract.world import World
from tests.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that nobody has opened yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'threads.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.url()
    yield url
    server.drop(url)


@pytest.fixture
def open_world(database_url: str) -> Iterator[Callable[..., World]]:
    """Opens stores on the case's database, with limits of one's own."""
    opened: list[SqlStore] = []

    def start(**limits: int) -> World:
        store = open_store(database_url, limits=StoreLimits(**limits), synchronous="OFF", pool_size=4)
        opened.append(store)
        return World(store, database_url)

    yield start
    for store in opened:
        store.close()


@pytest.fixture
def world(open_world: Callable[..., World]) -> World:
    """A store with the default limits."""
    return open_world()
