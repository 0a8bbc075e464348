"""Migrations at start: under a lock, in one transaction, or not needed at all.

Rule guarded: however many processes open a fresh database at once, one migrates and the others wait and find it done;
a process killed in the middle leaves nothing behind. SQLite: the write lock is the lock. PostgreSQL: an advisory lock.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thread_objects.errors import ConfigError, StoreUnavailable

from .engine import LOCK_WAIT_MS

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection

HEAD = "0006"
"""The revision this code works with. A test compares it with the newest script."""

_ADVISORY_LOCK = 0x7468_7265_6164  # "thread"
_MIGRATION_WAIT_MS = 300_000
"""How long a start waits for another process that migrates a large database."""
_RETRY_SECONDS = 0.01


def migrate_sqlite(path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
    """Create or upgrade the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = connect()
    try:
        if sqlite_revision(connection) == HEAD:
            return
        _switch_to_wal(connection)
    finally:
        connection.close()
    from sqlalchemy import create_engine, event  # noqa: PLC0415 - only a database that is behind pays for these
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
    event.listen(engine, "begin", lambda opened: opened.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as opened:
        _upgrade(opened)


def migrate_postgres(connect: "Callable[[], psycopg.Connection[Any]]") -> None:
    """Create or upgrade the schema."""
    with connect() as connection:
        if postgres_revision(connection) == HEAD:
            return
    from sqlalchemy import create_engine, event, text  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
    event.listen(engine, "begin", lambda opened: opened.exec_driver_sql("BEGIN"))
    with engine.begin() as opened:
        opened.execute(text(f"SET LOCAL lock_timeout = {_MIGRATION_WAIT_MS}"))
        opened.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        _upgrade(opened)


def sqlite_revision(connection: sqlite3.Connection) -> str | None:
    """The file's revision, or None for a fresh one."""
    table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone() if table else None
    return row[0] if row else None


def postgres_revision(connection: "psycopg.Connection[Any]") -> str | None:
    """The schema's revision, or None for a fresh one."""
    table = connection.execute("SELECT to_regclass('alembic_version')").fetchone()
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone() if table and table[0] else None
    return str(row[0]) if row else None


def _upgrade(connection: "Connection") -> None:
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, HEAD)
    except CommandError as error:
        raise ConfigError(setting="database", reason="its schema is newer than this version knows") from error


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """WAL, for ever. The switch does not honour the busy wait, so the wait is here."""
    deadline = time.monotonic() + LOCK_WAIT_MS / 1000
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        else:
            if mode == "wal":
                return
            raise StoreUnavailable(reason=f"this file system cannot hold a write-ahead log (mode {mode})")
        time.sleep(_RETRY_SECONDS)
