"""Approval decisions: stored once for a call that asked canonically, and the end of the suspension that waits.

Rules guarded: the same answer may be repeated, another one conflicts; all listed calls decided, or one denied, wakes.
"""

from thread_objects.contract.messages import ApprovalAnswer, ResolveApproval
from thread_objects.contract.states import Decision, SubmissionState
from thread_objects.core import ledger
from thread_objects.core.recovery import ApprovalIntent
from thread_objects.errors import ApprovalConflict, LedgerError, NotFound

from . import aborts, lanes, submissions
from .engine import Transaction
from .submissions import Submission

APPROVAL_PENDING = "ApprovalPending"


def resolve(tx: Transaction, asked: ResolveApproval, *, source: str, now: int) -> tuple[ApprovalAnswer, bool]:
    """Store a decision. Second value: whether this batch item was the one that decided."""
    lane = lanes.lock(tx, asked.thread_id)
    row = submissions.find(tx, asked.submission_id)
    if lane is None or row is None or row.thread_id != asked.thread_id:
        raise NotFound(what="submission", id=asked.submission_id)
    found = tx.one(
        "SELECT decision, resolver, reason, decided_at, decided_by FROM approvals"
        " WHERE submission_id = :submission_id AND tool_call_id = :tool_call_id",
        {"submission_id": asked.submission_id, "tool_call_id": asked.tool_call_id},
    )
    own = found is not None and found[4] == source
    if not own:
        aborts.refuse_settled(tx, row)
    if found is None:
        raise NotFound(what="approval request", id=asked.tool_call_id)
    decision, resolver, reason, decided_at, _ = found
    if decision is None:
        decide(
            tx,
            row,
            asked.tool_call_id,
            asked.decision,
            resolver=asked.resolver,
            reason=asked.reason,
            source=source,
            now=now,
        )
        resolver, reason, decided_at, own = asked.resolver, asked.reason, now, True
        row = wake_if_decided(tx, row)
    elif decision != asked.decision.value:
        raise ApprovalConflict(
            submission_id=asked.submission_id, tool_call_id=asked.tool_call_id, existing_decision=decision
        )
    return (
        ApprovalAnswer(
            submission_id=asked.submission_id,
            tool_call_id=asked.tool_call_id,
            decision=asked.decision,
            resolver=resolver,
            reason=reason,
            decided_at=decided_at,
            state=row.state,
            replayed=not own,
        ),
        own,
    )


def decide(
    tx: Transaction,
    row: Submission,
    tool_call_id: str,
    decision: Decision,
    *,
    resolver: str,
    reason: str,
    source: str,
    now: int,
) -> None:
    """Store the decision of an undecided call."""
    tx.run(
        "UPDATE approvals SET decision = :decision, resolver = :resolver, reason = :reason, decided_at = :now,"
        " decided_by = :source"
        " WHERE submission_id = :submission_id AND tool_call_id = :tool_call_id AND decision IS NULL",
        {
            "submission_id": row.submission_id,
            "tool_call_id": tool_call_id,
            "decision": decision.value,
            "resolver": resolver,
            "reason": reason,
            "now": now,
            "source": source,
        },
    )
    tx.notify = True


def intents(tx: Transaction, submission_id: str) -> tuple[ApprovalIntent, ...]:
    """The stored decisions of a Submission."""
    rows = tx.all(
        "SELECT tool_call_id, decision, resolver, reason, decided_at, turn FROM approvals"
        " WHERE submission_id = :submission_id AND decision IS NOT NULL ORDER BY turn, requested_at, tool_call_id",
        {"submission_id": submission_id},
    )
    return tuple(
        ApprovalIntent(call, Decision(decision), resolver, reason, decided_at, turn)
        for call, decision, resolver, reason, decided_at, turn in rows
    )


def decided(tx: Transaction, submission_id: str, calls: tuple[str, ...]) -> bool:
    """Whether the wake rule holds for these calls."""
    decisions = {intent.tool_call_id: intent.decision for intent in intents(tx, submission_id)}
    return ledger.wakes(calls, decisions)


def wake_if_decided(tx: Transaction, row: Submission) -> Submission:
    """Wake an approval suspension whose calls are decided; any other row stays."""
    if row.state is not SubmissionState.SUSPENDED or row.suspension_reason != APPROVAL_PENDING:
        return row
    if not decided(tx, row.submission_id, row.listed_calls):
        return row
    tx.notify = True
    return submissions.wake(tx, row)


def deny_pending(tx: Transaction, submission_id: str, *, resolver: str, reason: str, now: int) -> None:
    """Under an abort: deny what is undecided, so that the suspension ends without the tool having run."""
    seen = submissions.get(tx, submission_id)
    lanes.locked(tx, seen.thread_id)
    row = submissions.get(tx, submission_id)
    if row.state is not SubmissionState.SUSPENDED or row.suspension_reason != APPROVAL_PENDING:
        return
    if row.abort is None:
        raise LedgerError(f"{submission_id}: no abort intent", operation="recordApprovalDecision")
    for call in row.listed_calls:
        decide(tx, row, call, Decision.DENIED, resolver=resolver, reason=reason, source="", now=now)
    wake_if_decided(tx, row)
