"""Opening a database by its URL: migrated, checked, with the settings that correctness needs."""

from pathlib import Path
from urllib.parse import unquote

from thread_objects.errors import ConfigError

from .engine import Database
from .limits import StoreLimits
from .sqlite import SqliteDatabase
from .store import SqlStore

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def open_store(database_url: str, *, limits: StoreLimits, synchronous: str = "FULL", pool_size: int = 8) -> SqlStore:
    """Migrate (under a lock) and open. Raises `ConfigError` or `StoreUnavailable`; nothing stays open then."""
    return SqlStore(_open(database_url, synchronous=synchronous, pool_size=pool_size), limits)


def _open(database_url: str, *, synchronous: str, pool_size: int) -> Database:
    if synchronous not in _SYNCHRONOUS:
        raise ConfigError(setting="synchronous", reason=f"must be one of {', '.join(_SYNCHRONOUS)}")
    if database_url.startswith(_SQLITE):
        path = sqlite_path(database_url)
        from sqlalchemy import create_engine
        from sqlmodel import SQLModel

        engine = create_engine(database_url)
        SQLModel.metadata.create_all(engine)
        engine.dispose()
        import sqlite3

        c = sqlite3.connect(path)
        c.execute("PRAGMA journal_mode=WAL")
        c.close()
        return SqliteDatabase(path, synchronous=synchronous, readers_max=pool_size)
    raise ConfigError(setting="database_url", reason="must begin with sqlite:/// or postgresql://")


def sqlite_path(database_url: str) -> Path:
    """The file of a SQLite URL."""
    path = unquote(database_url.removeprefix(_SQLITE))
    if not path or path == ":memory:":
        raise ConfigError(setting="database_url", reason="a SQLite database needs a file: every process opens its own")
    return Path(path)
