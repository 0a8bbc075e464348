"""The due queue: one row per lane, saying when it is due and how often it was charged without progress.

Rows are never deleted, so a revision is never reused. Changes are made in a `QueueTransaction`, read their own
writes, and flush once, each compared with the revision that was read; one stale revision rejects them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from thread_objects.contract import limits
from thread_objects.core.backoff import charge_floor
from thread_objects.core.refusal import AlarmRefusal

RESERVED_PREFIX = "thread-object:"
NATIVE = RESERVED_PREFIX + "native"
PUBLICATION = RESERVED_PREFIX + "publication"
PROJECTION = RESERVED_PREFIX + "projection"
MESSAGES = RESERVED_PREFIX + "messages"
RECOVERY_EVENTS = RESERVED_PREFIX + "recovery-events"
LIFECYCLE = RESERVED_PREFIX + "lifecycle"

_REPORTED_BY_NAME = frozenset((NATIVE, PUBLICATION, PROJECTION, MESSAGES, RECOVERY_EVENTS, LIFECYCLE))


class RowState(StrEnum):
    """What a row waits for: nothing, its deadline, or its parked retry."""

    IDLE = "idle"
    PENDING = "pending"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Row:
    """One lane. `due_at` is None when nothing is owed; `not_before` is the floor that charges leave behind."""

    id: str
    revision: int = 0
    due_at: int | None = None
    stalls: int = 0
    progress_key: str | None = None
    not_before: int = 0
    state: RowState = RowState.IDLE
    reported: bool = False

    def due(self, now: int) -> bool:
        """Its deadline has come."""
        return self.due_at is not None and self.due_at <= now

    def with_charge(self, now: int) -> Row:
        """One wave charged: it stays away until the floor, and is parked after the eighth charge in a row."""
        not_before = now + charge_floor(self.stalls)
        stalls = min(self.stalls + 1, limits.QUEUE_CHARGES_MAX)
        return Row(
            self.id, self.revision, not_before, stalls, self.progress_key, not_before, _waiting(stalls), self.reported
        )

    def with_progress(self, due_at: int, progress_key: str | None) -> Row:
        """New facts: due again without floor, and a revision that fences every wave in flight."""
        return Row(self.id, self.revision + 1, due_at, 0, progress_key, 0, RowState.PENDING)

    def with_discovery(self, due_at: int) -> Row:
        """Due no later than `due_at`, but never before the floor. A parked row stays parked."""
        earliest = due_at if self.due_at is None else min(self.due_at, due_at)
        state = self.state if self.stalls >= limits.QUEUE_CHARGES_MAX else RowState.PENDING
        due_at = max(self.not_before, earliest)
        return Row(
            self.id, self.revision, due_at, self.stalls, self.progress_key, self.not_before, state, self.reported
        )

    def with_deadline(self, due_at: int | None, revision: int) -> Row:
        """The answer of a wave: idle and without stalls, or due again no earlier than the floor."""
        if due_at is None:
            return Row(self.id, revision, None, 0, self.progress_key, 0, RowState.IDLE)
        due_at = max(due_at, self.not_before)
        return Row(
            self.id,
            revision,
            due_at,
            self.stalls,
            self.progress_key,
            self.not_before,
            _waiting(self.stalls),
            self.reported,
        )


def _waiting(stalls: int) -> RowState:
    return RowState.PARKED if stalls >= limits.QUEUE_CHARGES_MAX else RowState.PENDING


def lane_label(row_id: str) -> str:
    """How a parked row is named in a report: the framework rows by name, every other row as `host`."""
    return row_id.removeprefix(RESERVED_PREFIX) if row_id in _REPORTED_BY_NAME else "host"


def check_lane(row_id: str) -> None:
    """Refuse an id that no row may have."""
    if not 1 <= len(row_id) <= limits.LANE_ID_CHARS_MAX:
        raise AlarmRefusal("lane id", f"{len(row_id)} characters, allowed are 1..{limits.LANE_ID_CHARS_MAX}")


def earliest(rows: Iterable[Row]) -> int | None:
    """The minimum of all deadlines; None where the contract says infinity."""
    return min((row.due_at for row in rows if row.due_at is not None), default=None)


class DueQueue:
    """The committed rows by id. Read it freely; change it through `begin()`."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = {row.id: row for row in rows}

    def get(self, row_id: str) -> Row | None:
        """The committed row, if there is one."""
        return self._rows.get(row_id)

    def rows(self) -> list[Row]:
        """All rows in id order."""
        return [self._rows[row_id] for row_id in sorted(self._rows)]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def next(self) -> int | None:
        """The earliest deadline of all rows."""
        return earliest(self._rows.values())

    def begin(self) -> QueueTransaction:
        """Open a transaction. It changes nothing until its commit."""
        return QueueTransaction(self)

    def flush(self, changes: Mapping[str, Row], read: Mapping[str, int | None]) -> None:
        """Take over all changes, or none if one row moved since it was read."""
        for row_id, revision in read.items():
            row = self._rows.get(row_id)
            if (None if row is None else row.revision) != revision:
                raise AlarmRefusal("commit", f"row {row_id} moved on since it was read")
        self._rows.update(changes)


class QueueTransaction:
    """Buffered changes over a queue, or over a parent transaction. A child that is discarded leaves no trace.

    `given`: the earliest deadline asked for each row so far. `read`: the committed revision each change started from.
    """

    __slots__ = ("_parent", "_queue", "changes", "given", "read")

    def __init__(self, queue: DueQueue, parent: QueueTransaction | None = None) -> None:
        self._queue = queue
        self._parent = parent
        self.changes: dict[str, Row] = {} if parent is None else dict(parent.changes)
        self.given: dict[str, int] = {} if parent is None else dict(parent.given)
        self.read: dict[str, int | None] = {} if parent is None else dict(parent.read)

    def child(self) -> QueueTransaction:
        """A nested transaction; its commit goes to this one."""
        return QueueTransaction(self._queue, self)

    def commit(self) -> None:
        """Hand the changes to the parent, or flush them to the queue."""
        if self._parent is not None:
            self._parent.changes = self.changes
            self._parent.given = self.given
            self._parent.read = self.read
        elif self.changes:
            self._queue.flush(self.changes, self.read)

    def discard(self) -> None:
        """Forget everything."""
        self.changes, self.given, self.read = {}, {}, {}

    # --- reads ------------------------------------------------------------------------------------------------

    def get(self, row_id: str) -> Row | None:
        """The row as this transaction sees it."""
        row = self.changes.get(row_id)
        return row if row is not None else self._queue.get(row_id)

    def next(self) -> int | None:
        """The earliest deadline as this transaction sees it."""
        if not self.changes:
            return self._queue.next()
        changes = self.changes
        unchanged = [row for row in self._queue if row.id not in changes]
        return earliest([*unchanged, *changes.values()])

    def _put(self, row: Row) -> None:
        if row.id not in self.read:
            committed = self._queue.get(row.id)
            self.read[row.id] = None if committed is None else committed.revision
        self.changes[row.id] = row

    # --- changes ----------------------------------------------------------------------------------------------

    def register(self, row_id: str) -> None:
        """A row that is not there becomes due at once, for one discovery wave. Twice is once."""
        if self.get(row_id) is None:
            self._put(Row(row_id, due_at=0, state=RowState.PENDING))

    def dirty(self, row_id: str, due_at: int, *, progress: bool = False, progress_key: str | None = None) -> None:
        """Make a row due. Only progress renews its revision and lifts its floor."""
        check_lane(row_id)
        wanted = self.given[row_id] = min(due_at, self.given.get(row_id, due_at))
        row = self.get(row_id)
        if row is None:
            self._put(Row(row_id, 1, wanted, progress_key=progress_key, state=RowState.PENDING))
        elif progress:
            self._put(row.with_progress(wanted, row.progress_key if progress_key is None else progress_key))
        else:
            self._put(row.with_discovery(wanted))

    def progress(self, row_id: str, due_at: int, cursor: int) -> bool:
        """Progress up to `cursor`. False, and no change at all, if the row has seen that cursor."""
        check_lane(row_id)
        key = str(cursor)
        if cursor < 0 or len(key) > limits.PROGRESS_KEY_CHARS_MAX:
            raise AlarmRefusal("progress cursor", f"row {row_id}, cursor {key[:32]}")
        row = self.get(row_id)
        if row is not None and row.progress_key is not None and cursor <= int(row.progress_key):
            return False
        self.dirty(row_id, due_at, progress=True, progress_key=key)
        return True

    def claim(self, row: Row, now: int, *, native: bool = False) -> Row | None:
        """Charge a wave. None if the row moved on, has no deadline, or is not due (native: not past its floor)."""
        current = self.get(row.id)
        if current is None or current.revision != row.revision or current.due_at is None:
            return None
        if current.due_at > now and not (native and current.not_before <= now):
            return None
        charged = current.with_charge(now)
        self._put(charged)
        return charged

    def complete(self, row: Row, due_at: int | None) -> Row | None:
        """The end of a wave. None, and no change, if the row moved on meanwhile."""
        current = self.get(row.id)
        if current is None or current.revision != row.revision:
            return None
        completed = current.with_deadline(due_at, current.revision + 1)
        self._put(completed)
        return completed

    def checkpoint_native(self, due_at: int | None) -> None:
        """Set native's deadline; no deadline while publication is parked. The generation is its fence."""
        native = self.get(NATIVE)
        if native is None:
            return
        publication = self.get(PUBLICATION)
        row = native.with_deadline(due_at, native.revision)
        if due_at is not None and publication is not None and publication.state is RowState.PARKED:
            row = Row(row.id, row.revision, None, row.stalls, row.progress_key, row.not_before, row.state, row.reported)
        self._put(row)

    def take_parked_reports(self) -> tuple[str, ...]:
        """The labels of parked rows that were not reported yet, in id order; they are reported now."""
        parked = [row for row in sorted(self._seen(), key=_by_id) if row.state is RowState.PARKED and not row.reported]
        for row in parked:
            self._put(
                Row(row.id, row.revision, row.due_at, row.stalls, row.progress_key, row.not_before, row.state, True)
            )
        return tuple(lane_label(row.id) for row in parked)

    def _seen(self) -> list[Row]:
        changes = self.changes
        return [*(row for row in self._queue if row.id not in changes), *changes.values()]


def _by_id(row: Row) -> str:
    return row.id
