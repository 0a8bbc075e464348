"""The reader of a client that has the database: statuses, settlements, the log, and being told of changes.

Rule guarded: a wait is only a hint. The caller reads the durable state after each, so a lost notification costs time
and never an answer.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import psycopg

from thread_objects.contract.messages import LogRecord, Settlement, SubmissionStatus
from thread_objects.contract.operations import InspectAnswer, InspectRequest
from thread_objects.errors import StoreUnavailable

from . import inspections, log, reads
from .engine import NOTIFY_CHANNEL, Database, Row
from .postgres import translated as postgres_errors
from .sqlite import translated as sqlite_errors

_POLL_MIN_SECONDS = 0.000_25
_POLL_MAX_SECONDS = 0.25
_POLL_SHARE = 0.05
"""A pause is this share of the time waited so far: an outcome is known at most 5 % later than it could be."""


class Watch(Protocol):
    """Tells that something was committed."""

    def wait(self, timeout_ms: int) -> bool:
        """True when something was committed since the last call, False after the timeout."""

    def quicken(self) -> None:
        """Somebody new waits: look often again, at once."""

    def close(self) -> None:
        """Release what it holds."""


class SqlReader:
    """`Reader` on either database."""

    def __init__(self, database: Database, watch: Watch) -> None:
        self._database = database
        self._watch = watch

    def status(self, submission_id: str) -> SubmissionStatus | None:
        """Where a Submission stands."""
        return self._database.read(lambda tx: reads.status(tx, submission_id))

    def find(self, thread_id: str, principal: str, key: str) -> SubmissionStatus | None:
        """The Submission of an idempotency key."""
        return self._database.read(lambda tx: reads.find(tx, thread_id, principal, key))

    def settlements(self, submission_ids: Sequence[str]) -> dict[str, Settlement]:
        """The settlements among these ids."""
        return self._database.read(lambda tx: reads.settled_among(tx, submission_ids))

    def log(self, thread_id: str, *, after: int, limit: int) -> list[LogRecord]:
        """A page of the log; empty for a Thread that does not exist."""
        return self._database.read(lambda tx: log.page(tx, thread_id, after=after, limit=limit))

    def inspect(self, request: InspectRequest, *, now: int) -> InspectAnswer:
        """One question of an operator."""
        return self._database.read(lambda tx: inspections.answer(tx, request, now=now, retry_contract=None))

    def owner(self, thread_id: str) -> str | None:
        """The Thread Object that owns a Thread."""
        return self._database.read(lambda tx: reads.owner(tx, thread_id))

    def tails(self, thread_ids: Sequence[str]) -> dict[str, int]:
        """How long the logs of these Threads are."""
        return self._database.read(lambda tx: inspections.tails(tx, thread_ids))

    def wait_for_change(self, timeout_ms: int) -> bool:
        """Wait until something was committed, at most this long."""
        return self._watch.wait(timeout_ms)

    def quicken(self) -> None:
        """Somebody new waits. May be called from another thread than the one that waits."""
        self._watch.quicken()

    def close(self) -> None:
        """Release the connections. Idempotent."""
        self._watch.close()
        self._database.close()


class SqlitePoll:
    """The file's change counter, asked often after a change and less often the longer nothing happens."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connection = connect()
        self._seen = self._version()
        self._since = time.monotonic()
        self._quick = threading.Event()

    def quicken(self) -> None:
        """End the current pause and begin again with short ones."""
        self._quick.set()

    def wait(self, timeout_ms: int) -> bool:
        """True when the counter moved since the last call."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            version = self._version()
            if version != self._seen:
                self._seen = version
                self._since = time.monotonic()
                return True
            now = time.monotonic()
            if now >= deadline:
                return False
            share = (now - self._since) * _POLL_SHARE
            if self._quick.wait(min(max(_POLL_MIN_SECONDS, share), _POLL_MAX_SECONDS, deadline - now)):
                self._quick.clear()
                self._since = time.monotonic()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _version(self) -> int:
        with sqlite_errors():
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)


class PostgresListen:
    """Notifications on a connection of their own."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Row]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Row] | None = None
        self._closed = False
        self._listen()

    def quicken(self) -> None:
        """Nothing to do: the server tells at once."""

    def wait(self, timeout_ms: int) -> bool:
        """True when something was notified, or may have been while the connection was away."""
        with postgres_errors():
            if self._closed:
                raise StoreUnavailable(reason="closed")
            if self._connection is None:
                self._listen()
                return True
            try:
                told = list(self._connection.notifies(timeout=max(0.0, timeout_ms / 1000), stop_after=1))
                if told:
                    list(self._connection.notifies(timeout=0))  # one answer for all that came together
            except psycopg.OperationalError:
                self._hang_up()
                raise
            return bool(told)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _listen(self) -> None:
        with postgres_errors():
            connection = self._connect()
            connection.execute(f"LISTEN {NOTIFY_CHANNEL}")
            self._connection = connection
