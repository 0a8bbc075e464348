"""PostgreSQL: a bounded pool of connections, one transaction each, retried where the server asks for it.

A unit of work takes exactly one connection and never a second one, so a pool of any size serves any number of
threads: they queue, bounded, and nobody waits for somebody who waits.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from thread_objects.errors import LedgerError, StoreUnavailable

from .engine import LOCK_WAIT_MS, NOTIFY_CHANNEL, Params, Row, Transaction, for_postgres, restored, storable

T = TypeVar("T")
Connection = psycopg.Connection[Row]

_RUNS_MAX = 8
_VIOLATIONS_MAX = 3
_RETRY_BASE_SECONDS = 0.005
_STATEMENT_TIMEOUT_MS = 60_000
_CONNECT_TIMEOUT_SECONDS = 5
_IDLE_TIMEOUT_MS = 60_000
_SIZE_KEPT_SECONDS = 10.0
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def connect(url: str, *, statement_timeout_ms: int = _STATEMENT_TIMEOUT_MS) -> Connection:
    """A connection with bounded waits. What the URL says comes after ours, so it wins."""
    bounds = {
        "lock_timeout": LOCK_WAIT_MS,
        "statement_timeout": statement_timeout_ms,
        "idle_in_transaction_session_timeout": _IDLE_TIMEOUT_MS,
        "plan_cache_mode": "force_generic_plan",
    }
    given = conninfo_to_dict(url)
    options = " ".join(f"-c {name}={value}" for name, value in bounds.items())
    timeout = given.get("connect_timeout") or _CONNECT_TIMEOUT_SECONDS
    return psycopg.connect(
        url, autocommit=True, options=f"{options} {given.get('options') or ''}", connect_timeout=int(timeout)
    )


class PostgresTransaction:
    """A transaction on one connection."""

    __slots__ = ("_connection", "_size", "careful", "notify")

    def __init__(self, connection: Connection, careful: bool, size: Callable[[Connection], int]) -> None:
        self._connection = connection
        self._size = size
        self.careful = careful
        self.notify = False

    def all(self, sql: str, params: Params) -> Sequence[Row]:
        """All rows."""
        return [restored(row) for row in self._connection.execute(for_postgres(sql), storable(params))]

    def one(self, sql: str, params: Params) -> Row | None:
        """The first row."""
        row = self._connection.execute(for_postgres(sql), storable(params)).fetchone()
        return None if row is None else restored(row)

    def run(self, sql: str, params: Params) -> int:
        """Execute and count the affected rows."""
        return self._connection.execute(for_postgres(sql), storable(params)).rowcount

    def many(self, sql: str, rows: Sequence[Params]) -> None:
        """Execute once per row, in one round trip."""
        if len(rows) == 1:
            self._connection.execute(for_postgres(sql), storable(rows[0]))
        elif rows:
            with self._connection.cursor() as cursor:
                cursor.executemany(for_postgres(sql), [storable(row) for row in rows])

    def size_bytes(self) -> int:
        """Size of the database, at most some seconds old."""
        return self._size(self._connection)


class PostgresDatabase:
    """The `Database` on a server whose schema is migrated already."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        self._url = url
        self._free = threading.BoundedSemaphore(pool_size)
        self._guard = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False
        self._size: tuple[float, int] | None = None

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run a unit at READ COMMITTED: its first statement locks the Threads it changes."""
        violations = 0
        for run in range(_RUNS_MAX):
            try:
                return self._run("BEGIN", work, careful=violations > 0)
            except errors.UniqueViolation as error:
                # Also a careful run may meet a row that came after it looked; but not for ever.
                violations += 1
                if violations > _VIOLATIONS_MAX:
                    raise LedgerError("a unique constraint refused the write", operation="write") from error
            except (errors.SerializationFailure, errors.DeadlockDetected):
                pass
            time.sleep(_RETRY_BASE_SECONDS * 2**run * random.random())  # noqa: S311 - spreads contenders
        raise StoreUnavailable(reason="contention")

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run a unit on one snapshot."""
        return self._run(_SNAPSHOT, work, careful=False)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """One snapshot, on a connection that is taken for as long."""
        with self._checkout(_SNAPSHOT) as connection:
            try:
                yield PostgresTransaction(connection, False, self._size_bytes)
            finally:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK", prepare=False)

    def close(self) -> None:
        """Close the idle connections; a running unit closes its own at its end."""
        with self._guard:
            self._closed = True
            while self._idle:
                self._idle.pop().close()

    def _run(self, begin: str, work: Callable[[Transaction], T], *, careful: bool) -> T:
        with self._checkout(begin) as connection:
            transaction = PostgresTransaction(connection, careful, self._size_bytes)
            try:
                result = work(transaction)
            except BaseException:
                # A connection that cannot roll back any more is not kept, and the error on its way says why.
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK", prepare=False)
                raise
            commit = f"NOTIFY {NOTIFY_CHANNEL}; COMMIT" if transaction.notify else "COMMIT"
            connection.execute(commit, prepare=False)
            return result

    @contextmanager
    def _checkout(self, begin: str) -> Iterator[Connection]:
        if not self._free.acquire(timeout=LOCK_WAIT_MS / 1000):
            raise StoreUnavailable(reason="no connection became free")
        connection: Connection | None = None
        try:
            with translated():
                connection = self._begin(begin)
                yield connection
        finally:
            if connection is not None:
                self._return(connection)
            self._free.release()

    def _begin(self, begin: str) -> Connection:
        """A connection inside a transaction. An idle one may have died since; nothing ran on it, so try the next."""
        while True:
            with self._guard:
                if self._closed:
                    raise StoreUnavailable(reason="closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = connect(self._url)
                connection.execute(begin, prepare=False)
                return connection
            try:
                connection.execute(begin, prepare=False)
            except psycopg.OperationalError:
                connection.close()
            else:
                return connection

    def _return(self, connection: Connection) -> None:
        clean = not connection.broken and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._guard:
            if clean and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _size_bytes(self, connection: Connection) -> int:
        now = time.monotonic()
        if self._size is None or now - self._size[0] > _SIZE_KEPT_SECONDS:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            self._size = (now, int(_first(row)))
        return self._size[1]


def _first(row: Row | None) -> Any:
    return 0 if row is None else row[0]


@contextmanager
def translated() -> Iterator[None]:
    """The driver's failures as the typed error. What `write` retries passes through."""
    try:
        yield
    except (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation):
        raise
    except psycopg.IntegrityError as error:
        raise LedgerError("a constraint refused the write", operation="write") from error
    except (psycopg.OperationalError, psycopg.InterfaceError, errors.UndefinedTable) as error:
        # Class and code only: a server's message may carry values.
        raise StoreUnavailable(reason=f"{type(error).__name__} {error.sqlstate or ''}".strip()) from error
