"""Databases with a past: many Threads, or one with many records, written in bulk and as the store would have.

What is written is what the measured operations read: settled Submissions, their records with valid bodies, some
queued work. Digests are placeholders, for nothing here verifies a chain; appends go on from the stored tail.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from storage import StoreLimits, open_store, sqlite
from storage.store import SqlStore
from tests.contract.world import World

RECORDS_PER_SUBMISSION = 5
RECORDS_PER_THREAD = 3
OWED_EVERY = 3
"""Every third Thread has a Submission that nobody has claimed yet."""

_SPREAD, _PRIME = 7_919, 1_000_003
"""Ids do not come in the order in which they are stored; the factor permutes the numbers below the prime."""

_BODY = '{"details":{"text":"' + "x" * 300 + '"},"kind":"RepairAnnotated","reason":"past"}'
_COUNTED = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
_NAME = f"'t' || ((i * {_SPREAD}) % {_PRIME})"
_SUBMISSIONS = (
    "INSERT INTO submissions (submission_id, thread_id, object_id, queue_sequence, receipt_id, principal,"
    " idempotency_key, agent_id, state, epoch, claims, admitted_at, admitted_by, ready_at, outcome, settled_at,"
    " input_digest, input) "
)
_RECORDS = (
    "INSERT INTO records (thread_id, sequence, record_id, batch_id, kind, schema_version, created_at, deployment_id,"
    " submission_id, digest, body) "
)


def thread_name(number: int) -> str:
    """The id of the `number`-th other Thread, from 1."""
    return f"t{number * _SPREAD % _PRIME}"


@dataclass(slots=True)
class Past:
    """A grown database, its store, and a World to work in it."""

    url: str
    world: World
    threads: int
    records: int

    @property
    def store(self) -> SqlStore:
        """The store."""
        return self.world.store


def grown(url: str, *, threads: int, records: int) -> Past:
    """Migrate, fill with `threads` other Threads and a `subject` with `records` records, and analyse."""
    store = open_store(url, limits=StoreLimits(), pool_size=2)
    world = World(store, url)
    world.run_through("first", thread=SUBJECT)
    statements = [*_others(threads), *_past_of_subject(records - store.tail(SUBJECT).sequence)]
    _execute(url, statements)
    return Past(url, world, threads, records)


SUBJECT = "subject"


def _others(count: int) -> list[str]:
    numbers = _COUNTED.format(count=count)

    def depending(owed: str, settled: str) -> str:
        return f"CASE WHEN i % {OWED_EVERY} = 0 THEN {owed} ELSE {settled} END"

    state, outcome = depending("'ready'", "'settled'"), depending("NULL", "'completed'")
    settled_at, value = depending("NULL", "1"), depending("'1'", "NULL")
    threads = (
        "INSERT INTO threads (thread_id, object_id, created_at, materialized, queue_last, epoch, tail_sequence,"
        f" tail_digest) {numbers} SELECT {_NAME}, {_NAME}, 1, 1, 1, 1, {RECORDS_PER_THREAD}, 'past' FROM n"
    )
    submissions = (
        f"{_SUBMISSIONS}{numbers} SELECT 's' || {_NAME}, {_NAME}, {_NAME}, 1, 'r' || i, 'past', 'k' || i, 'agent-1',"
        f" {state}, 1, 0, 1, 'past', 1, {outcome},"
        f" {settled_at}, 'x', {value} FROM n"
    )
    records = (
        f"{_RECORDS}{numbers}, m(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM m WHERE k < {RECORDS_PER_THREAD})"
        f" SELECT {_NAME}, k, 'rec-' || k, 'bat-' || k, 'RepairAnnotated', 1, 1, '', 's' || {_NAME}, 'past',"
        f" '{_BODY}' FROM n CROSS JOIN m"
    )
    return [threads, submissions, records]


def _past_of_subject(count: int) -> list[str]:
    submissions_count = count // RECORDS_PER_SUBMISSION
    of_subject = "(SELECT {column} FROM threads WHERE thread_id = 'subject')"
    submissions = (
        f"{_SUBMISSIONS}{_COUNTED.format(count=submissions_count)} SELECT 'past-' || i, '{SUBJECT}', '{SUBJECT}',"
        f" {of_subject.format(column='queue_last')} + i, 'past-' || i, 'past', 'k' || i, 'agent-1', 'settled', 1, 1, 1,"
        " 'past', 1, 'completed', 1, 'x', NULL FROM n"
    )
    records = (
        f"{_RECORDS}{_COUNTED.format(count=count)} SELECT '{SUBJECT}',"
        f" {of_subject.format(column='tail_sequence')} + i, 'past-' || i, 'past-' || i, 'RepairAnnotated', 1, 1, '',"
        f" 'past-' || (i / {RECORDS_PER_SUBMISSION}), 'past', '{_BODY}' FROM n"
    )
    moved = (
        f"UPDATE threads SET queue_last = queue_last + {submissions_count}, tail_sequence = tail_sequence + {count},"
        f" tail_digest = 'past' WHERE thread_id = '{SUBJECT}'"
    )
    return [submissions, records, moved]


def _execute(url: str, statements: list[str]) -> None:
    """All of them in one transaction, then statistics for the planner and everything written back."""
    if url.startswith("sqlite"):
        with closing(connect_sqlite(url)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.execute("ANALYZE")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # no look-up per row for foreign keys
        with connection.transaction():
            for statement in statements:
                connection.execute(statement)
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def connect_sqlite(url: str) -> Any:
    """A connection beside the store's."""
    return sqlite.connect(Path(url.removeprefix("sqlite:///")), synchronous="OFF")
