"""Parents that wait for children, and what a child's settlement does to them.

Rule guarded: a child's settlement is never reported before it is canonical, and never missed: whoever suspends looks
under the parent's lock, whoever reports waits for that lock.
"""

from collections.abc import Collection

from thread_objects.contract import ids
from thread_objects.contract.states import ChildReport, SubmissionState
from thread_objects.errors import LedgerError, NotFound

from . import lanes, marks, submissions
from .engine import Transaction
from .submissions import Submission

WAITING_FOR_CHILD = "WaitingForChild"


def all_settled(tx: Transaction, children: Collection[str]) -> bool:
    """Whether every one of these Submissions has its canonical settlement."""
    return all(settled(tx, child) for child in children)


def settled(tx: Transaction, child_submission_id: str) -> bool:
    """Whether this Submission has its canonical settlement. `NotFound` for one that does not exist."""
    row = tx.one(
        "SELECT s.thread_id, r.sequence FROM submissions s LEFT JOIN records r ON r.thread_id = s.thread_id"
        " AND r.record_id = :settlement WHERE s.submission_id = :child",
        {"child": child_submission_id, "settlement": ids.settlement_id(child_submission_id)},
    )
    if row is None:
        raise NotFound(what="child submission", id=child_submission_id)
    return row[1] is not None


def report(tx: Transaction, parent_submission_id: str, child_submission_id: str) -> ChildReport:
    """Tell a parent of a child's settlement; the last child of those it waits for wakes it."""
    if not settled(tx, child_submission_id):
        raise LedgerError(f"{child_submission_id}: no canonical settlement", operation="recordChildSettled")
    seen = submissions.get(tx, parent_submission_id)
    lanes.locked(tx, seen.thread_id)
    row = submissions.get(tx, parent_submission_id)
    waits = row.state is SubmissionState.SUSPENDED and row.suspension_reason == WAITING_FOR_CHILD
    if not waits or child_submission_id not in row.listed_children:
        return ChildReport.NOT_WAITING
    if not all_settled(tx, row.listed_children):
        return ChildReport.STILL_WAITING
    submissions.wake(tx, row)
    tx.notify = True
    return ChildReport.WOKEN


def tell(tx: Transaction, row: Submission, *, now: int) -> None:
    """Report a settled row to its parent, where it has one in this database.

    The parent's workflow is another one and heard nothing: an old mark makes the next sweep tell it.
    """
    parent = None if row.parent_submission_id is None else submissions.find(tx, row.parent_submission_id)
    if parent is not None and report(tx, parent.submission_id, row.submission_id) is ChildReport.WOKEN:
        marks.leave_old(tx, parent.object_id, now=now)
