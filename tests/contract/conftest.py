"""Every case of this tier runs on SQLite and on PostgreSQL, each time on an empty database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import StoreLimits, open_store
from storage.store import SqlStore
from tests.contract.databases import MigratedDatabases, MigratedFile
from tests.contract.world import World
from tests.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """The kind of database that a case runs on."""
    return str(request.param)


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that nobody has opened yet: for cases about opening."""
    if database_kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'threads.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.url()
    yield url
    server.drop(url)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> MigratedFile:
    """A SQLite file to copy."""
    return MigratedFile(tmp_path_factory.mktemp("migrated"))


@pytest.fixture(scope="session")
def migrated_databases(postgres: PostgresServer) -> MigratedDatabases:
    """PostgreSQL databases to borrow."""
    return MigratedDatabases(postgres)


@pytest.fixture
def migrated_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database with today's schema."""
    if database_kind == "sqlite":
        file: MigratedFile = request.getfixturevalue("migrated_file")
        yield file.copy(tmp_path)
        return
    databases: MigratedDatabases = request.getfixturevalue("migrated_databases")
    with databases.lent() as url:
        yield url


@pytest.fixture
def open_world(migrated_url: str) -> Iterator[Callable[..., World]]:
    """Opens stores on the case's database, with limits of one's own."""
    opened: list[SqlStore] = []

    def start(**limits: int) -> World:
        store = open_store(migrated_url, limits=StoreLimits(**limits), synchronous="OFF", pool_size=4)
        opened.append(store)
        return World(store, migrated_url)

    yield start
    for store in opened:
        store.close()


@pytest.fixture
def world(open_world: Callable[..., World]) -> World:
    """A store with the default limits."""
    return open_world()
