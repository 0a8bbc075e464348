"""Reservations: slices of a parent's budget, held for one child until they are given back.

Rules guarded: one reservation for each call; budget is never available twice, so a crash before the release leaves it
held; what was frozen stays. New holds need the parent's live token, giving back needs none: history authorises it.
"""

from typing import Any, NamedTuple

from pydantic import JsonValue

from thread_objects.contract import ids
from thread_objects.contract.records import Batch
from thread_objects.contract.states import ReservationStatus, SubmissionState
from thread_objects.contract.sweeps import WorkOwner
from thread_objects.core import ledger
from thread_objects.core.canonical import PERSISTED, Unpersistable, canonical
from thread_objects.core.recovery import ChildAttachment, ChildReservation
from thread_objects.errors import ChildReservationConflict, CorruptRecord, LedgerError, NotFound
from thread_objects.ports import Claim
from thread_objects.ties import Reservation

from . import lanes, log, submissions, work
from .engine import Transaction


class _Stored(NamedTuple):
    reservation_id: str
    parent_submission_id: str
    parent_call_id: str
    status: str
    child_submission_id: str | None
    allocation: str
    accounting: str | None


_SELECT = f"SELECT {', '.join(_Stored._fields)} FROM child_reservations"


def reserve(
    tx: Transaction, claim: Claim, reservation_id: str, call_id: str, allocation: JsonValue, *, now: int
) -> Reservation:
    """Reserve for a call; the same again is answered, whoever asks."""
    text = _text("allocation", allocation)
    lanes.locked(tx, claim.thread_id)
    found = tx.one(
        f"{_SELECT} WHERE parent_submission_id = :parent AND parent_call_id = :call",
        {"parent": claim.submission_id, "call": call_id},
    )
    stored = _Stored(*found) if found is not None else _find(tx, reservation_id)
    if stored is not None:
        same = (stored.reservation_id, stored.parent_submission_id, stored.parent_call_id, stored.allocation)
        if same != (reservation_id, claim.submission_id, call_id, text):
            raise _conflict(stored, "it is reserved otherwise")
        return _told(tx, stored, replayed=True)
    lanes.hold(tx, claim)
    tx.run(
        "INSERT INTO child_reservations (parent_submission_id, parent_call_id, reservation_id, status, reserved_at,"
        " allocation) VALUES (:parent, :call, :reservation_id, 'reserved', :now, :allocation)",
        {
            "parent": claim.submission_id,
            "call": call_id,
            "reservation_id": reservation_id,
            "now": now,
            "allocation": text,
        },
    )
    work.owe(tx, WorkOwner.CHILD, claim.submission_id, call_id)
    return _told(tx, _get(tx, reservation_id), replayed=False)


def attach(tx: Transaction, claim: Claim, reservation_id: str, child_submission_id: str) -> Reservation:
    """Bind a child; the same child again changes nothing."""
    stored = _locked(tx, reservation_id)
    if stored.child_submission_id == child_submission_id:
        return _told(tx, stored, replayed=True)
    if stored.child_submission_id is not None:
        raise _conflict(stored, "it holds another child")
    if stored.status != ReservationStatus.RESERVED:
        raise _conflict(stored, "it is given back")
    if stored.parent_submission_id != claim.submission_id:
        raise _conflict(stored, "it belongs to another parent")
    lanes.hold(tx, claim)
    submissions.get(tx, child_submission_id)
    tx.run(
        "UPDATE child_reservations SET child_submission_id = :child WHERE reservation_id = :reservation_id"
        " AND status = 'reserved' AND child_submission_id IS NULL",
        {"child": child_submission_id, "reservation_id": reservation_id},
    )
    return _told(tx, _get(tx, reservation_id), replayed=False)


def begin_release(tx: Transaction, reservation_id: str, accounting: JsonValue) -> Reservation:
    """Freeze what the child cost, once."""
    text = _text("accounting", accounting)
    stored = _locked(tx, reservation_id)
    if stored.status != ReservationStatus.RESERVED:
        if stored.accounting != text:
            raise _conflict(stored, "its accounting is frozen otherwise")
        return _told(tx, stored, replayed=True)
    tx.run(
        "UPDATE child_reservations SET status = 'releasePending', accounting = :accounting"
        " WHERE reservation_id = :reservation_id AND status = 'reserved'",
        {"accounting": text, "reservation_id": reservation_id},
    )
    return _told(tx, _get(tx, reservation_id), replayed=False)


def release(tx: Transaction, reservation_id: str, *, now: int) -> Reservation:
    """Give the budget back, once."""
    stored = _locked(tx, reservation_id)
    if stored.status == ReservationStatus.RESERVED:
        raise _conflict(stored, "its accounting is not frozen")
    if stored.status == ReservationStatus.RELEASED:
        return _told(tx, stored, replayed=True)
    tx.run(
        "UPDATE child_reservations SET status = 'released', released_at = :now"
        " WHERE reservation_id = :reservation_id AND status = 'releasePending'",
        {"now": now, "reservation_id": reservation_id},
    )
    work.done(tx, stored.parent_submission_id, [stored.parent_call_id])
    return _told(tx, _get(tx, reservation_id), replayed=False)


def record_lineage(tx: Transaction, submission_id: str, batch: Batch, *, now: int) -> None:
    """Make a child's lineage canonical in its own log, then ready."""
    seen = submissions.get(tx, submission_id)
    lane = lanes.locked(tx, seen.thread_id)
    row = submissions.get(tx, submission_id)
    expected = ids.subagent_lineage_record(row.thread_id)
    if row.parent is None or [record.record_id for record in batch.records] != [expected]:
        raise LedgerError(f"{submission_id}: not the lineage of a child", operation="recordLineage")
    if not has_lineage(tx, row.thread_id):
        log.append_unowned(tx, lane, [log.encode(batch)], submission_id)
    if row.state is SubmissionState.ADMITTED:
        submissions.move(tx, row, ledger.Operation.MARK_READY, ready_at=now)
        tx.notify = True


def has_lineage(tx: Transaction, thread_id: str) -> bool:
    """Whether a Thread's log says whose child it is."""
    return log.record(tx, thread_id, ids.subagent_lineage_record(thread_id)) is not None


def as_recovery_sees(
    rows: list[tuple[str, str, str, str | None, str | None, str | None]],
) -> tuple[tuple[ChildReservation, ...], tuple[ChildAttachment, ...]]:
    """Reservations, and the children bound to them as their own rows stand, ordered by the parent's calls."""
    reservations = tuple(ChildReservation(rid, call, status, child) for rid, call, status, child, _, _ in rows)
    attachments = tuple(
        ChildAttachment(call, child, state or "", outcome)
        for _, call, _, child, state, outcome in rows
        if child is not None
    )
    return reservations, attachments


def _locked(tx: Transaction, reservation_id: str) -> _Stored:
    """The reservation under its parent's lock."""
    seen = _get(tx, reservation_id)
    lanes.locked(tx, submissions.get(tx, seen.parent_submission_id).thread_id)
    return _get(tx, reservation_id)


def _find(tx: Transaction, reservation_id: str) -> _Stored | None:
    row = tx.one(f"{_SELECT} WHERE reservation_id = :reservation_id", {"reservation_id": reservation_id})
    return None if row is None else _Stored(*row)


def _get(tx: Transaction, reservation_id: str) -> _Stored:
    found = _find(tx, reservation_id)
    if found is None:
        raise NotFound(what="child reservation", id=reservation_id)
    return found


def _told(tx: Transaction, stored: _Stored, *, replayed: bool) -> Reservation:
    def value(text: str | None) -> Any:
        if text is None:
            return None
        return log.parse_body(submissions.get(tx, stored.parent_submission_id).thread_id, None, text)

    return Reservation(
        reservation_id=stored.reservation_id,
        parent_submission_id=stored.parent_submission_id,
        parent_call_id=stored.parent_call_id,
        status=_status(stored),
        allocation=value(stored.allocation),
        child_submission_id=stored.child_submission_id,
        accounting=value(stored.accounting),
        replayed=replayed,
    )


def _status(stored: _Stored) -> ReservationStatus:
    try:
        return ReservationStatus(stored.status)
    except ValueError as error:
        raise CorruptRecord(thread_id="", decoder="reservation-status") from error


def _text(what: str, value: JsonValue) -> str:
    try:
        return canonical(value, PERSISTED)
    except Unpersistable as error:
        raise log.refused(what, error) from error


def _conflict(stored: _Stored, why: str) -> ChildReservationConflict:
    return ChildReservationConflict(
        f"{stored.reservation_id} is {stored.status}: {why}",
        reservation_id=stored.reservation_id,
        status=stored.status,
    )
