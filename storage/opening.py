"""Opening a database by its URL: migrated, checked, with the settings that correctness needs."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from thread_objects.admission import AdmissionRules
from thread_objects.errors import ConfigError, StoreUnavailable

from . import migrating, postgres, sqlite
from .limits import StoreLimits
from .reader import PostgresListen, SqlitePoll, SqlReader
from .store import SqlStore

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_READER_CONNECTIONS = 2


def open_store(
    database_url: str,
    *,
    limits: StoreLimits,
    rules: AdmissionRules | None = None,
    synchronous: str = "FULL",
    pool_size: int = 8,
) -> SqlStore:
    """Migrate (under a lock) and open. Raises `ConfigError` or `StoreUnavailable`; nothing stays open then.

    `synchronous` is SQLite's; FULL survives a power cut. `pool_size` bounds the connections of this store.
    """
    if synchronous not in _SYNCHRONOUS:
        raise ConfigError(setting="synchronous", reason=f"must be one of {', '.join(_SYNCHRONOUS)}")
    if pool_size < 1:
        raise ConfigError(setting="pool_size", reason="must be at least 1")
    if database_url.startswith(_SQLITE):
        path = _path(database_url)
        with sqlite.translated():
            migrating.migrate_sqlite(path, lambda: sqlite.connect(path, synchronous=synchronous, create=True))
        return SqlStore(sqlite.SqliteDatabase(path, synchronous=synchronous, readers_max=pool_size), limits, rules)
    if database_url.startswith(_POSTGRES):
        with postgres.translated():
            migrating.migrate_postgres(lambda: postgres.connect(database_url, statement_timeout_ms=0))
        return SqlStore(postgres.PostgresDatabase(database_url, pool_size=pool_size), limits, rules)
    raise _unknown(database_url)


def open_reader(database_url: str) -> SqlReader:
    """Open for reading. Never migrates, never creates: a database that is not there is `StoreUnavailable`."""
    if database_url.startswith(_SQLITE):
        path = _path(database_url)
        if not path.exists():
            raise StoreUnavailable(reason=f"no database at {path}, only a worker makes one")
        connect: Callable[[], sqlite3.Connection] = lambda: sqlite.connect(path, synchronous="FULL")  # noqa: E731
        with sqlite.translated():
            watch = SqlitePoll(connect)
        return SqlReader(sqlite.SqliteDatabase(path, synchronous="FULL", readers_max=_READER_CONNECTIONS), watch)
    if database_url.startswith(_POSTGRES):
        listen = PostgresListen(lambda: postgres.connect(database_url))
        return SqlReader(postgres.PostgresDatabase(database_url, pool_size=_READER_CONNECTIONS), listen)
    raise _unknown(database_url)


def _path(database_url: str) -> Path:
    path = unquote(database_url.removeprefix(_SQLITE))
    if not path or path == ":memory:":
        raise ConfigError(setting="database_url", reason="a SQLite database needs a file: every process opens its own")
    return Path(path)


def _unknown(database_url: str) -> ConfigError:
    scheme = database_url.partition("://")[0]
    return ConfigError(setting="database_url", reason=f"must be sqlite:///path or postgresql://..., is {scheme}")
