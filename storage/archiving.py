"""A Thread's archive: written from one snapshot, read into one transaction.

Rules guarded. An export is one moment of the Thread, whatever is appended meanwhile, and ends without its trailer where
the stored log does not hold together. An import meets an empty Thread or changes nothing; it keeps receipts, keys,
sequences and times, and gives nobody the ownership: what was running is claimed anew, at a higher epoch.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from thread_objects import failpoints
from thread_objects.archives import report_of
from thread_objects.contract.archive import (
    ApprovalLine,
    ArchiveReport,
    HeaderLine,
    LedgerLine,
    Place,
    RecordLine,
    ReservationLine,
    ResolutionLine,
    SubmissionLine,
    TrailerLine,
    UnknownCallLine,
)
from thread_objects.contract.limits import EXPORT_RECORDS_MAX
from thread_objects.contract.states import CheckOutcome
from thread_objects.core.archive import Checked, Seal, read
from thread_objects.core.canonical import RECORD, canonical
from thread_objects.core.digests import EMPTY_TAIL
from thread_objects.core.verification import CommittedRecord, LogEnd
from thread_objects.core.verification.chain import ChainChecks
from thread_objects.errors import ArchiveRefused, CorruptRecord, InvalidInput, ThreadNotMaterialized

from . import lanes, marks, work
from .engine import Row, Transaction, listed

_ROWS = 256
"""Rows that are read or written at once."""
_RECORDS = 32
"""Records that are read at once: 128 MiB of them at worst."""

L = TypeVar("L", SubmissionLine, ApprovalLine, UnknownCallLine, ResolutionLine, ReservationLine)

# --- export ----------------------------------------------------------------------------------------------------


def export(tx: Transaction, thread_id: str) -> Iterator[str]:
    """The lines of the archive, each with its line feed. The transaction stays open until the last one is taken."""
    lane = lanes.look(tx, thread_id)
    if lane is None or not lane.materialized:
        raise ThreadNotMaterialized(thread_id=thread_id)
    header = _header(tx, lane)
    _check_size(tx, header)
    seal = Seal(header)
    yield seal.header
    for line in _ledger(tx, thread_id):
        yield seal.ledger(line)
    base, tail = (LogEnd(place.sequence, place.digest) for place in (header.base, header.tail))
    chain = ChainChecks(base, tail, ())
    for record, submission_id in _records(tx, thread_id, after=base.sequence):
        chain.read(record)
        yield seal.record(record, submission_id)
    for check in chain.checks():
        if check.outcome is CheckOutcome.FAILED:
            raise CorruptRecord(f"{thread_id}: {check.reason}", thread_id=thread_id, decoder=check.name)
    yield seal.trailer()


def _header(tx: Transaction, lane: lanes.Lane) -> HeaderLine:
    row = tx.one(
        "SELECT created_at, base_sequence, base_digest FROM threads WHERE thread_id = :thread_id",
        {"thread_id": lane.thread_id},
    )
    created_at, base_sequence, base_digest = row if row is not None else (0, 0, None)
    return HeaderLine(
        thread_id=lane.thread_id,
        object_id=lane.object_id,
        created_at=created_at,
        epoch=lane.epoch,
        queue_last=lane.queue_last,
        base=Place(sequence=base_sequence, digest=base_digest or EMPTY_TAIL),
        tail=Place(sequence=lane.tail_sequence, digest=lane.tail_digest),
    )


def _check_size(tx: Transaction, header: HeaderLine) -> None:
    row = tx.one(
        "SELECT COUNT(*) FROM submissions WHERE thread_id = :thread_id AND queue_sequence >= 0",
        {"thread_id": header.thread_id},
    )
    submissions = row[0] if row is not None else 0
    for limit, actual in (
        ("export-records", header.tail.sequence - header.base.sequence),
        ("export-submissions", submissions),
    ):
        if actual > EXPORT_RECORDS_MAX:
            raise InvalidInput(what=header.thread_id, limit=limit, actual=actual, maximum=EXPORT_RECORDS_MAX)


def _columns(kind: type[L]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name != "type")


def _ledger(tx: Transaction, thread_id: str) -> Iterator[LedgerLine]:
    """The rows in the order of the queue, a page at a time."""
    columns = _columns(SubmissionLine)
    after = 0
    while rows := tx.all(
        f"SELECT {', '.join(columns)} FROM submissions WHERE thread_id = :thread_id AND queue_sequence > :after"
        " ORDER BY queue_sequence LIMIT :limit",
        {"thread_id": thread_id, "after": after, "limit": _ROWS},
    ):
        yield from (_line(SubmissionLine, thread_id, columns, row) for row in rows)
        after = rows[-1][columns.index("queue_sequence")]
    yield from _commands(tx, thread_id, ApprovalLine, "approvals", ("tool_call_id",))
    yield from _commands(tx, thread_id, UnknownCallLine, "unknown_calls", ("tool_call_id",))
    yield from _commands(tx, thread_id, ResolutionLine, "unknown_resolutions", ("tool_call_id", "category"))
    yield from _commands(
        tx, thread_id, ReservationLine, "child_reservations", ("parent_call_id",), owner="parent_submission_id"
    )


def _commands(
    tx: Transaction, thread_id: str, kind: type[L], table: str, keys: tuple[str, ...], *, owner: str = "submission_id"
) -> Iterator[L]:
    columns = _columns(kind)
    order = ["s.queue_sequence", *(f"c.{key}" for key in keys)]
    after: list[Any] = [0, *("" for _ in keys)]
    while rows := tx.all(
        f"SELECT s.queue_sequence, {', '.join(f'c.{column}' for column in columns)} FROM submissions s JOIN {table} c"
        f" ON c.{owner} = s.submission_id WHERE s.thread_id = :thread_id AND s.queue_sequence >= :after_0"
        f" AND ({', '.join(order)}) > ({', '.join(f':after_{n}' for n in range(len(order)))})"
        f" ORDER BY {', '.join(order)} LIMIT :limit",
        {"thread_id": thread_id, "limit": _ROWS, **{f"after_{n}": value for n, value in enumerate(after)}},
    ):
        yield from (_line(kind, thread_id, columns, row[1:]) for row in rows)
        last: dict[str, Any] = dict(zip(columns, rows[-1][1:], strict=True))
        after = [rows[-1][0], *(last[key] for key in keys)]


def _line(kind: type[L], thread_id: str, columns: tuple[str, ...], row: Row) -> L:
    try:
        return kind.model_validate(dict(zip(columns, row, strict=True)))
    except ValueError as error:
        raise CorruptRecord(thread_id=thread_id, decoder=str(kind.model_fields["type"].default)) from error


def _records(tx: Transaction, thread_id: str, *, after: int) -> Iterator[tuple[CommittedRecord, str | None]]:
    while rows := tx.all(
        "SELECT sequence, record_id, batch_id, kind, created_at, deployment_id, body, digest, schema_version,"
        " submission_id FROM records WHERE thread_id = :thread_id AND sequence > :after ORDER BY sequence LIMIT :limit",
        {"thread_id": thread_id, "after": after, "limit": _RECORDS},
    ):
        for *row, submission_id in rows:
            yield CommittedRecord(thread_id, *row), submission_id
        after = rows[-1][0]


# --- import ----------------------------------------------------------------------------------------------------


def write(
    tx: Transaction, archive: Iterable[str], checked: Checked, *, object_id: str | None, now: int
) -> ArchiveReport:
    """Write an archive that was checked. It is read again; that it is still the same is seen at its end."""
    header = checked.header
    lane = _empty_lane(tx, header, object_id or header.object_id, now=now)
    _fill_lane(tx, header)
    rows = _Rows(tx, header.thread_id, lane.object_id)
    for line in read(archive):
        match line:
            case HeaderLine() | TrailerLine():
                if line not in (header, checked.trailer):
                    raise ArchiveRefused("the archive changed while it was read", reason="archive-digest")
            case _:
                rows.add(line)
    rows.flush()
    failpoints.hit("import:before-commit")
    work.list_imported(tx, header.thread_id)
    # Nobody's workflow has heard of these rows. An old mark makes the next sweep tell their object.
    marks.leave_old(tx, lane.object_id, now=now)
    tx.notify = True
    return report_of(checked, object_id=lane.object_id)


def _empty_lane(tx: Transaction, header: HeaderLine, object_id: str, *, now: int) -> lanes.Lane:
    thread_id = header.thread_id
    lane = lanes.lock(tx, thread_id)
    if lane is None:
        return lanes.create(tx, thread_id, object_id, now=now)
    if lane.queue_last or lane.tail_sequence or lane.owner_token is not None:
        raise ArchiveRefused(f"thread {thread_id} is not empty", reason="not-empty")
    return lane


def _fill_lane(tx: Transaction, header: HeaderLine) -> None:
    # The epoch is the archive's: audits name epochs, and the next claim must be past all of them.
    tx.run(
        "UPDATE threads SET created_at = :created_at, materialized = 1, queue_last = :queue_last,"
        " epoch = CASE WHEN epoch > :epoch THEN epoch ELSE :epoch END, tail_sequence = :tail,"
        " tail_digest = :tail_digest, base_sequence = :base, base_digest = :base_digest WHERE thread_id = :thread_id",
        {
            "thread_id": header.thread_id,
            "created_at": header.created_at,
            "queue_last": header.queue_last,
            "epoch": header.epoch,
            "tail": header.tail.sequence,
            "tail_digest": header.tail.digest,
            "base": header.base.sequence,
            "base_digest": header.base.digest if header.base.sequence else None,
        },
    )


_TABLES: dict[type[Any], tuple[str, tuple[str, ...]]] = {
    SubmissionLine: ("submissions", ("thread_id", "object_id", "admitted_by")),
    ApprovalLine: ("approvals", ()),
    UnknownCallLine: ("unknown_calls", ()),
    ResolutionLine: ("unknown_resolutions", ("resolved_by",)),
    ReservationLine: ("child_reservations", ()),
}
"""Where each line goes, and the columns that it does not bring. Batch items of the source mean nothing here."""

_INSERT_RECORD = (
    "INSERT INTO records (thread_id, sequence, record_id, batch_id, kind, schema_version, created_at, deployment_id,"
    " submission_id, digest, body) VALUES (:thread_id, :sequence, :record_id, :batch_id, :kind, :schema_version,"
    " :created_at, :deployment_id, :submission_id, :digest, :body)"
)


class _Rows:
    """Rows on their way in, written some at a time; of one kind after the other, as the archive has them."""

    def __init__(self, tx: Transaction, thread_id: str, object_id: str) -> None:
        self._tx = tx
        self._own = {"thread_id": thread_id, "object_id": object_id, "admitted_by": "", "resolved_by": ""}
        self._kind: type[Any] | None = None
        self._waiting: list[dict[str, Any]] = []

    def add(self, line: LedgerLine | RecordLine) -> None:
        """The next line."""
        if type(line) is not self._kind or len(self._waiting) >= _ROWS:
            self.flush()
        self._kind = type(line)
        self._waiting.append(self._record(line) if isinstance(line, RecordLine) else self._row(line))

    def flush(self) -> None:
        """Write what waits."""
        if not self._waiting or self._kind is None:
            return
        if self._kind is SubmissionLine:
            self._refuse_known([row["submission_id"] for row in self._waiting])
        if self._kind is ReservationLine:
            self._refuse_orphans([row["child_submission_id"] for row in self._waiting])
        if self._kind is RecordLine:
            sql = _INSERT_RECORD
        else:
            table, _ = _TABLES[self._kind]
            columns = list(self._waiting[0])
            sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{column}' for column in columns)})"
        self._tx.many(sql, self._waiting)
        self._waiting = []

    def _row(self, line: LedgerLine) -> dict[str, Any]:
        values = line.model_dump(mode="json", exclude={"type"})
        return {**values, **{name: self._own[name] for name in _TABLES[type(line)][1]}}

    def _record(self, line: RecordLine) -> dict[str, Any]:
        record = line.record
        return {
            "thread_id": self._own["thread_id"],
            "sequence": line.sequence,
            "record_id": record.record_id,
            "batch_id": line.batch_id,
            "kind": record.payload["kind"],
            "schema_version": record.schema_version,
            "created_at": record.created_at,
            "deployment_id": record.deployment_id,
            "submission_id": line.submission_id,
            "digest": line.digest,
            "body": canonical(record.payload, RECORD),
        }

    def _refuse_known(self, submission_ids: list[str]) -> None:
        # A Receipt's id is derived from the same three names as its Submission's: one is there where the other is.
        names, params = listed("submission", submission_ids)
        known = self._tx.one(f"SELECT submission_id FROM submissions WHERE submission_id IN {names}", params)
        if known is not None:
            raise ArchiveRefused(f"{known[0]} is there already", reason="duplicate-submission")

    def _refuse_orphans(self, children: list[str | None]) -> None:
        """A reservation's child must be here: children's Threads are imported before their parent's."""
        wanted = sorted({child for child in children if child is not None})
        names, params = listed("child", wanted)
        known = {
            row[0]
            for row in self._tx.all(f"SELECT submission_id FROM submissions WHERE submission_id IN {names}", params)
        }
        if missing := [child for child in wanted if child not in known]:
            raise ArchiveRefused(f"{missing[0]} is a child whose Thread is not here yet", reason="reference")
