"""Migrated databases for the cases of this tier, without the cost of migrating one for each of them.

SQLite: a copy of one migrated file. PostgreSQL: a database that a case gives back empty, for the next one. One that
cannot be emptied (a schema that the case changed, a transaction it left open) is dropped and replaced.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from storage import StoreLimits, open_store
from storage.migrating import HEAD
from tests.postgres_server import PostgresServer

_EMPTYING_MS = 2_000
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"


class MigratedFile:
    """Copies of a SQLite file with today's schema."""

    def __init__(self, folder: Path) -> None:
        self._original = folder / "migrated.db"
        open_store(f"sqlite:///{self._original}", limits=StoreLimits(), synchronous="OFF").close()

    def copy(self, folder: Path) -> str:
        """The URL of a copy in this folder."""
        path = folder / "threads.db"
        shutil.copyfile(self._original, path)
        return f"sqlite:///{path}"


class MigratedDatabases:
    """Empty PostgreSQL databases with today's schema."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._idle: list[str] = []

    @contextmanager
    def lent(self) -> Iterator[str]:
        """The URL of one that is the borrower's until the block ends."""
        url = self._idle.pop() if self._idle else self._made()
        try:
            yield url
        finally:
            with suppress(psycopg.Error):
                self._empty(url)
                self._idle.append(url)
            if url not in self._idle:
                self._server.drop(url)

    def _made(self) -> str:
        url = self._server.url()
        open_store(url, limits=StoreLimits(), pool_size=1).close()
        return url

    def _empty(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True, options=f"-c lock_timeout={_EMPTYING_MS}") as connection:
            version = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            if version != (HEAD,):
                raise psycopg.ProgrammingError("its schema was changed")
            tables = [name for (name,) in connection.execute(_TABLES)]
            connection.execute(f"TRUNCATE {', '.join(tables)}")
