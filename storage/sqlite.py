"""SQLite: one writing connection behind a lock, and a few reading ones.

SQLite admits one writer at a time. Inside a process the lock hands over at once, where SQLite's own busy wait would
sleep and starve; between processes the busy wait decides, bounded. The writer keeps its page cache warm.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from thread_objects.errors import CorruptRecord, LedgerError, StoreUnavailable

from .engine import LOCK_WAIT_MS, Duplicate, Params, Row, Transaction, for_sqlite, restored, storable

T = TypeVar("T")

_STATEMENTS_CACHED = 256
_WAL_KEPT_BYTES = 67_108_864
"""What stays of a write-ahead log that a burst, or a long read, made large."""


def connect(path: Path, *, synchronous: str, create: bool = False) -> sqlite3.Connection:
    """A connection with our settings. The busy wait comes first: the others may meet a lock."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={'rwc' if create else 'rw'}",
        uri=True,
        timeout=LOCK_WAIT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_CACHED,
    )
    connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_MS}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
    return connection


class SqliteTransaction:
    """A transaction on one connection."""

    __slots__ = ("_connection", "careful", "notify")

    def __init__(self, connection: sqlite3.Connection, careful: bool) -> None:
        self._connection = connection
        self.careful = careful
        self.notify = False

    def all(self, sql: str, params: Params) -> Sequence[Row]:
        """All rows."""
        return [restored(row) for row in self._connection.execute(for_sqlite(sql), storable(params))]

    def one(self, sql: str, params: Params) -> Row | None:
        """The first row."""
        row: Row | None = self._connection.execute(for_sqlite(sql), storable(params)).fetchone()
        return None if row is None else restored(row)

    def run(self, sql: str, params: Params) -> int:
        """Execute and count the affected rows."""
        return self._connection.execute(for_sqlite(sql), storable(params)).rowcount

    def many(self, sql: str, rows: Sequence[Params]) -> None:
        """Execute once per row."""
        self._connection.executemany(for_sqlite(sql), [storable(row) for row in rows])

    def size_bytes(self) -> int:
        """Pages in use by the file."""
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(page_bytes)


class SqliteDatabase:
    """The `Database` on a file that is migrated already."""

    def __init__(self, path: Path, *, synchronous: str, readers_max: int) -> None:
        self._path = path
        self._synchronous = synchronous
        self._readers_max = readers_max
        self._writing = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._idle: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._closed = False

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run a unit in a BEGIN IMMEDIATE transaction."""
        if not self._writing.acquire(timeout=LOCK_WAIT_MS / 1000):
            raise StoreUnavailable(reason="another writer of this process holds the database")
        try:
            with translated():
                self._refuse_closed()
                if self._writer is None:
                    self._writer = connect(self._path, synchronous=self._synchronous)
                try:
                    return _transact(self._writer, work, careful=False)
                except Duplicate:
                    return _transact(self._writer, work, careful=True)
        finally:
            self._writing.release()

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run a unit in a deferred transaction: one snapshot, beside any writer."""
        with self.snapshot() as transaction:
            return work(transaction)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """A deferred transaction: one snapshot, beside any writer."""
        with translated():
            with self._guard:
                self._refuse_closed()
                connection = self._idle.pop() if self._idle else None
            connection = connection or connect(self._path, synchronous=self._synchronous)
            try:
                connection.execute("BEGIN")
                try:
                    yield SqliteTransaction(connection, careful=False)
                finally:
                    connection.execute("ROLLBACK")
            finally:
                with self._guard:
                    keep = len(self._idle) < self._readers_max and not self._closed
                    if keep:
                        self._idle.append(connection)
                if not keep:
                    connection.close()

    def close(self) -> None:
        """Close all connections; a running transaction ends first."""
        with self._writing, self._guard:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            while self._idle:
                self._idle.pop().close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(reason="closed")


def _transact(connection: sqlite3.Connection, work: Callable[[Transaction], T], *, careful: bool) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(SqliteTransaction(connection, careful))
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.IntegrityError) and "UNIQUE" in str(error):
            raise Duplicate(str(error)) from error
        raise
    return result


@contextmanager
def translated() -> Iterator[None]:
    """The driver's failures as typed errors."""
    try:
        yield
    except (Duplicate, sqlite3.IntegrityError) as error:
        raise LedgerError("a constraint refused the write", operation="write") from error
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" in str(error):
            raise CorruptRecord(thread_id="", decoder="utf-8") from error
        if "no such table" in str(error):
            raise StoreUnavailable(reason="the file holds no database of a worker's, or not yet") from error
        raise StoreUnavailable(reason=str(error).partition(":")[0]) from error
    except sqlite3.DatabaseError as error:
        raise StoreUnavailable(reason=str(error)) from error
