"""The due queue: one row per lane, saying when it is due and how often it was charged without progress.

Rows are never deleted, so a revision is never reused. Changes are made in a `QueueTransaction`, read their own
writes, and flush once, each compared with the revision that was read; one stale revision rejects them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from thread_objects.contract import limits
from thread_objects.core.due_row import (
    LIFECYCLE,
    MESSAGES,
    NATIVE,
    PROJECTION,
    PUBLICATION,
    RECOVERY_EVENTS,
    RESERVED_PREFIX,
    Row,
    RowState,
    check_lane,
    lane_label,
)
from thread_objects.core.refusal import AlarmRefusal

__all__ = [
    "LIFECYCLE",
    "MESSAGES",
    "NATIVE",
    "PROJECTION",
    "PUBLICATION",
    "RECOVERY_EVENTS",
    "RESERVED_PREFIX",
    "DueQueue",
    "QueueTransaction",
    "Row",
    "RowState",
    "check_lane",
    "earliest",
    "lane_label",
]


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
            row = replace(row, due_at=None)
        self._put(row)

    def spare_native(self, now: int) -> None:
        """A charge that met an absent storage says nothing of the work: native stays below parking.

        A row that was parked, and reported, before this charge stays parked: an absence ends no parking either.
        """
        native = self.get(NATIVE)
        if native is not None and native.stalls >= limits.QUEUE_CHARGES_MAX and not native.reported:
            floor, stalls = now + limits.QUEUE_RETRY_CAP_MS, limits.QUEUE_CHARGES_MAX - 1
            self._put(replace(native, due_at=floor, not_before=floor, stalls=stalls, state=RowState.PENDING))

    def take_parked_reports(self) -> tuple[str, ...]:
        """The labels of parked rows that were not reported yet, in id order; they are reported now."""
        parked = [row for row in sorted(self._seen(), key=_by_id) if row.state is RowState.PARKED and not row.reported]
        for row in parked:
            self._put(replace(row, reported=True))
        return tuple(lane_label(row.id) for row in parked)

    def _seen(self) -> list[Row]:
        changes = self.changes
        return [*(row for row in self._queue if row.id not in changes), *changes.values()]


def _by_id(row: Row) -> str:
    return row.id
