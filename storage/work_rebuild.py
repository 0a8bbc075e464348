"""Rebuilding a Thread's work inventory from its log and its reservations, in bounded passes.

Rule guarded: it is asked for, never begun by recovery; until the last pass the inventory is told as incomplete.
"""

from thread_objects.contract import ids
from thread_objects.contract.limits import WORK_REBUILD_BYTES_MAX, WORK_REBUILD_RECORDS_MAX
from thread_objects.contract.states import Resolution
from thread_objects.contract.sweeps import WorkOwner
from thread_objects.errors import NotFound
from thread_objects.ports import WorkRebuild

from . import lanes, log
from .engine import Transaction
from .work import COMPLETE, done, owe

_KINDS = ("ToolCallResolved", "ToolCallSettled", "ToolCallUnknown")


def rebuild(tx: Transaction, thread_id: str) -> WorkRebuild:
    """One bounded pass of rebuilding a Thread's inventory from its log and its reservations.

    Begins anew on an inventory that is missing, complete or of an unknown kind; goes on with one that is half rebuilt.
    """
    lanes.locked(tx, thread_id)
    row = tx.one(
        "SELECT work_through, base_sequence FROM threads WHERE thread_id = :thread_id", {"thread_id": thread_id}
    )
    if row is None:
        raise NotFound(what="thread", id=thread_id)
    through, base = row
    if through is None or through < 0:
        tx.run("DELETE FROM work_items WHERE thread_id = :thread_id", {"thread_id": thread_id})
        through = base
    sequences = _next_records(tx, thread_id, through)
    for sequence, submission_id, kind in sequences:
        if submission_id is not None and kind in _KINDS:
            _follow(tx, thread_id, sequence, submission_id)
    complete = len(sequences) == 0
    if complete:
        _list_reservations(tx, thread_id)
    else:
        through = sequences[-1][0]
    tx.run(
        "UPDATE threads SET work_through = :through WHERE thread_id = :thread_id",
        {"thread_id": thread_id, "through": COMPLETE if complete else through},
    )
    return WorkRebuild(through, complete)


def _next_records(tx: Transaction, thread_id: str, through: int) -> list[tuple[int, str | None, str]]:
    rows = tx.all(
        "SELECT sequence, submission_id, kind, LENGTH(body) FROM records WHERE thread_id = :thread_id"
        " AND sequence > :through ORDER BY sequence LIMIT :limit",
        {"thread_id": thread_id, "through": through, "limit": WORK_REBUILD_RECORDS_MAX},
    )
    taken: list[tuple[int, str | None, str]] = []
    size = 0
    for sequence, submission_id, kind, length in rows:
        size += 4 * length  # characters, each of at most four bytes
        if taken and size > WORK_REBUILD_BYTES_MAX:
            break
        taken.append((sequence, submission_id, kind))
    return taken


def _follow(tx: Transaction, thread_id: str, sequence: int, submission_id: str) -> None:
    record = log.page(tx, thread_id, after=sequence - 1, limit=1)[0]
    call_id = str(record.payload.get("toolCallId"))
    resolution = record.payload.get("resolution")
    if record.kind == "ToolCallUnknown":
        owe(tx, WorkOwner.OPERATION, submission_id, call_id)
    elif (
        record.kind == "ToolCallSettled"
        or resolution in (Resolution.COMPLETED_WITH_RESULT, Resolution.FAILED_WITH_ERROR)
        # Of settled work a call that never happened is closed: nobody will run it.
        or (resolution == Resolution.NEVER_STARTED and _settled_before(tx, thread_id, submission_id, sequence))
    ):
        done(tx, submission_id, [call_id])


def _settled_before(tx: Transaction, thread_id: str, submission_id: str, sequence: int) -> bool:
    record = log.record(tx, thread_id, ids.settlement_id(submission_id))
    return record is not None and record.sequence < sequence


def _list_reservations(tx: Transaction, thread_id: str) -> None:
    rows = tx.all(
        "SELECT c.parent_submission_id, c.parent_call_id FROM submissions s JOIN child_reservations c"
        " ON c.parent_submission_id = s.submission_id WHERE s.thread_id = :thread_id AND c.status <> 'released'",
        {"thread_id": thread_id},
    )
    for submission_id, call_id in rows:
        owe(tx, WorkOwner.CHILD, submission_id, call_id)
