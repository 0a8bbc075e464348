"""The log of a Thread: atomic batches, chained by digest, read in pages.

Rules guarded: sequences without gaps in declaration order; a batch id is used once, and met again with the same
content it answers as the first time; a record id is used once; a stored row that cannot be decoded is told, never
rewritten. The unique constraints decide, look-ups only explain (see `engine`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from thread_objects.contract import ids
from thread_objects.contract.limits import BATCH_RECORDS_MAX, READ_PAGE_RECORDS_MAX
from thread_objects.contract.messages import LogRecord
from thread_objects.contract.records import Batch
from thread_objects.core import batches, digests
from thread_objects.core.canonical import Unpersistable, byte_length, escape_text, parse
from thread_objects.core.offsets import offset_of
from thread_objects.errors import (
    AppendConflict,
    CorruptRecord,
    FenceRejected,
    InvalidInput,
    OwnershipLost,
    ThreadNotMaterialized,
)
from thread_objects.ports import Claim, Tail

from . import lanes, projection
from .engine import Params, Row, Transaction, listed

_KEY_BYTES_MAX = 2_400
"""An index entry of PostgreSQL holds at most 2 704 bytes; a Thread id and a record id are one entry."""

_SEQUENCE_MAX = 2**63 - 1
_INSERT = (
    "INSERT INTO records (thread_id, sequence, record_id, batch_id, kind, schema_version, created_at, deployment_id,"
    " submission_id, digest, body) VALUES (:thread_id, :sequence, :record_id, :batch_id, :kind, :schema_version,"
    " :created_at, :deployment_id, :submission_id, :digest, :body)"
)


def encode(batch: Batch) -> batches.EncodedBatch:
    """The batch in canonical text; content beyond the bounds is `InvalidInput`."""
    if len(batch.records) > BATCH_RECORDS_MAX:
        raise InvalidInput(what="batch", limit="records", actual=len(batch.records), maximum=BATCH_RECORDS_MAX)
    try:
        return batches.encode(batch)
    except Unpersistable as error:
        raise refused("record", error) from error


def refused(what: str, error: Unpersistable) -> InvalidInput:
    """A refused value as the typed error."""
    return InvalidInput(
        f"{what}: {error.reason}", what=what, limit=error.limit, actual=error.actual, maximum=error.maximum
    )


@dataclass(frozen=True, slots=True)
class _Link:
    """Rows to insert and the tail they lead to."""

    rows: list[Params]
    tail: Tail


def _link(thread_id: str, tail: Tail, encoded: Sequence[batches.EncodedBatch], submission_id: str | None) -> _Link:
    rows: list[Params] = []
    for batch in encoded:
        sequence = tail.sequence
        digest = digests.chain(tail.digest, batch.text)
        for entry in batch.records:
            record = entry.record
            size = byte_length(escape_text(thread_id)) + byte_length(escape_text(record.record_id))
            if size > _KEY_BYTES_MAX:
                raise InvalidInput(what="record id", limit="bytes", actual=size, maximum=_KEY_BYTES_MAX)
            sequence += 1
            rows.append(
                {
                    "thread_id": thread_id,
                    "sequence": sequence,
                    "record_id": record.record_id,
                    "batch_id": batch.batch_id,
                    "kind": record.payload.kind,
                    "schema_version": record.schema_version,
                    "created_at": record.created_at,
                    "deployment_id": record.deployment_id,
                    "submission_id": submission_id,
                    "digest": digest if entry is batch.records[-1] else None,
                    "body": entry.body,
                }
            )
        tail = Tail(sequence, digest)
    return _Link(rows, tail)


def append(tx: Transaction, claim: Claim, encoded: Sequence[batches.EncodedBatch], *, release: bool = False) -> Tail:
    """Append batches under a claim, at the actual tail; with `release` the claim ends in the same UPDATE.

    The claim's own idea of the tail is tried first. Where it is wrong (an abort of queued work came between, or this
    is a repetition) the batches that are committed already are left out. Returns the tail after the last batch.
    """
    if not tx.careful:
        link = _link(claim.thread_id, claim.tail, encoded, claim.submission_id)
        moved = lanes.advance(tx, claim, claim.tail, link.tail, release=release)
        if moved is not None:
            _store(tx, claim, encoded, link)
            return moved
    lane = _held(tx, claim)
    missing: list[batches.EncodedBatch] = []
    found: Tail | None = None
    for batch in encoded:
        at = committed(tx, claim.thread_id, batch)
        found = at or found
        if at is None:
            missing.append(batch)
    link = _link(claim.thread_id, lane.tail, missing, claim.submission_id)
    if missing or release:
        if lanes.advance(tx, claim, lane.tail, link.tail, release=release) is None:
            raise lanes.lost(tx, claim)
        _store(tx, claim, missing, link)
    end = link.tail if missing or found is None else found
    return replace(end, queue_last=lane.queue_last)


def _held(tx: Transaction, claim: Claim) -> lanes.Lane:
    lane = lanes.locked(tx, claim.thread_id)
    if lane.epoch != claim.epoch:
        raise FenceRejected(thread_id=claim.thread_id, actual=lane.epoch, attempted=claim.epoch)
    if lane.owner_token != claim.token:
        raise OwnershipLost(submission_id=claim.submission_id, actual_epoch=lane.epoch)
    return lane


def _store(tx: Transaction, claim: Claim, encoded: Sequence[batches.EncodedBatch], link: _Link) -> None:
    tx.many(_INSERT, link.rows)
    tx.notify = True
    first = link.tail.sequence - len(link.rows) + 1
    projection.follow(tx, claim.submission_id, encoded, first)


def insert(
    tx: Transaction,
    thread_id: str,
    tail: Tail,
    encoded: Sequence[batches.EncodedBatch],
    submission_id: str | None,
) -> Tail:
    """Store batches after this tail; the caller holds the lane's lock and moves its tail."""
    link = _link(thread_id, tail, encoded, submission_id)
    tx.many(_INSERT, link.rows)
    tx.notify = True
    return link.tail


def append_unowned(
    tx: Transaction, lane: lanes.Lane, encoded: Sequence[batches.EncodedBatch], submission_id: str | None
) -> lanes.Lane:
    """Append at the lane's epoch under its lock: created records, aborts of queued work. Committed ones stay."""
    if not lane.materialized:
        raise ThreadNotMaterialized(thread_id=lane.thread_id)
    missing = [batch for batch in encoded if committed(tx, lane.thread_id, batch) is None] if tx.careful else encoded
    if not missing:
        return lane
    tail = insert(tx, lane.thread_id, lane.tail, missing, submission_id)
    if submission_id is not None:
        projection.follow(tx, submission_id, missing, lane.tail_sequence + 1)
    return lanes.move_tail(tx, lane, tail)


def append_at(
    tx: Transaction, thread_id: str, batch: batches.EncodedBatch, expected: Tail, epoch: int
) -> tuple[Tail, bool]:
    """The plain log operation: at exactly this tail and epoch. Second value True for a replay."""
    lane = lanes.lock(tx, thread_id)
    if lane is None or not lane.materialized:
        raise ThreadNotMaterialized(thread_id=thread_id)
    if epoch != lane.epoch:
        raise FenceRejected(thread_id=lane.thread_id, actual=lane.epoch, attempted=epoch)
    found = committed(tx, lane.thread_id, batch)
    if found is not None:
        return found, True
    if expected != lane.tail:
        raise AppendConflict(
            thread_id=lane.thread_id,
            conflict="tail",
            tail_sequence=lane.tail_sequence,
            tail_digest=lane.tail_digest,
        )
    return append_unowned(tx, lane, [batch], None).tail, False


def committed(tx: Transaction, thread_id: str, batch: batches.EncodedBatch) -> Tail | None:
    """The tail that this batch left when it was committed, or None. Conflicts raise.

    `batch-digest`: its id stands for other content. `record-identity`: one of its records is there already.
    """
    row = tx.one(
        "SELECT sequence, digest FROM records"
        " WHERE thread_id = :thread_id AND batch_id = :batch_id AND digest IS NOT NULL",
        {"thread_id": thread_id, "batch_id": batch.batch_id},
    )
    if row is not None:
        last, digest = row
        previous = digest_at(tx, thread_id, last - len(batch.records))
        if previous is None or digests.chain(previous, batch.text) != digest:
            raise AppendConflict(thread_id=thread_id, conflict="batch-digest")
        return Tail(last, digest)
    record_ids = [entry.record.record_id for entry in batch.records]
    names, params = listed("record", record_ids)
    used = tx.one(
        f"SELECT record_id FROM records WHERE thread_id = :thread_id AND record_id IN {names}",
        {"thread_id": thread_id, **params},
    )
    if used is not None or len(set(record_ids)) < len(record_ids):
        raise AppendConflict(thread_id=thread_id, conflict="record-identity")
    return None


def digest_at(tx: Transaction, thread_id: str, sequence: int) -> str | None:
    """The tail digest right after this sequence, or None if no batch ends there."""
    if sequence == 0:
        return digests.EMPTY_TAIL
    row = tx.one(
        "SELECT digest FROM records WHERE thread_id = :thread_id AND sequence = :sequence",
        {"thread_id": thread_id, "sequence": sequence},
    )
    if row is not None:
        return str(row[0]) if row[0] is not None else None
    base = tx.one(
        "SELECT base_digest FROM threads WHERE thread_id = :thread_id AND base_sequence = :sequence",
        {"thread_id": thread_id, "sequence": sequence},
    )
    return None if base is None else base[0]


class _Stored(NamedTuple):
    thread_id: str
    sequence: int
    record_id: str
    batch_id: str
    kind: str
    schema_version: int
    created_at: int
    body: str


_SELECT = f"SELECT {', '.join(_Stored._fields)} FROM records"


def page(tx: Transaction, thread_id: str, *, after: int, limit: int) -> list[LogRecord]:
    """Records past a sequence, in order."""
    if not 1 <= limit <= READ_PAGE_RECORDS_MAX:
        raise InvalidInput(what="page", limit="records", actual=limit, maximum=READ_PAGE_RECORDS_MAX)
    # The limit stands in the text: PostgreSQL's planner would take an unknown one for a tenth of the Thread, and plan
    # every page of a long one anew.
    rows = tx.all(
        f"{_SELECT} WHERE thread_id = :thread_id AND sequence > :after ORDER BY sequence LIMIT {limit:d}",
        {"thread_id": thread_id, "after": min(after, _SEQUENCE_MAX)},
    )
    return [_decoded(row) for row in rows]


def page_of_existing(tx: Transaction, thread_id: str, *, after: int, limit: int) -> list[LogRecord]:
    """As `page`, of a Thread that has a log."""
    found = page(tx, thread_id, after=after, limit=limit)
    if not found:
        tail(tx, thread_id)
    return found


def of_run(tx: Transaction, submission_id: str) -> list[LogRecord]:
    """The records of a Submission and its Run, in order."""
    rows = tx.all(f"{_SELECT} WHERE submission_id = :submission_id ORDER BY sequence", {"submission_id": submission_id})
    found = [_decoded(row) for row in rows]
    own = ids.input_record(submission_id)
    if all(record.record_id != own for record in found):
        # A joined input stands among the records of the Run that took it.
        joined = tx.one(
            f"{_SELECT} WHERE record_id = :own"
            " AND thread_id = (SELECT thread_id FROM submissions WHERE submission_id = :submission_id)",
            {"own": own, "submission_id": submission_id},
        )
        if joined is not None:
            found = sorted([*found, _decoded(joined)], key=lambda record: record.sequence)
    return found


def record(tx: Transaction, thread_id: str, record_id: str) -> LogRecord | None:
    """One record by its id."""
    row = tx.one(
        f"{_SELECT} WHERE thread_id = :thread_id AND record_id = :record_id",
        {"thread_id": thread_id, "record_id": record_id},
    )
    return None if row is None else _decoded(row)


def _decoded(row: Row) -> LogRecord:
    stored = _Stored(*row)
    payload = parse_body(stored.thread_id, stored.sequence, stored.body)
    if not isinstance(payload, dict) or payload.get("kind") != stored.kind or stored.schema_version != 1:
        raise CorruptRecord(thread_id=stored.thread_id, sequence=stored.sequence, decoder="record")
    return LogRecord(
        thread_id=stored.thread_id,
        sequence=stored.sequence,
        record_id=stored.record_id,
        batch_id=stored.batch_id,
        kind=stored.kind,
        created_at=stored.created_at,
        payload=payload,
        offset=offset_of(stored.sequence),
    )


def parse_body(thread_id: str, sequence: int | None, body: str) -> Any:
    """The value of a stored body."""
    try:
        return parse(body)
    except ValueError as error:
        raise CorruptRecord(thread_id=thread_id, sequence=sequence, decoder="json") from error


def tail(tx: Transaction, thread_id: str) -> Tail:
    """The log's end."""
    lane = lanes.look(tx, thread_id)
    if lane is None or not lane.materialized:
        raise ThreadNotMaterialized(thread_id=thread_id)
    return lane.tail
