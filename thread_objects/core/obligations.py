"""Obligations: what each unsettled Submission waits for, since when, and how late that is. Pure arithmetic."""

from dataclasses import dataclass
from typing import assert_never

from thread_objects.contract.operations import BlockedOn, Obligation, ObligationsQuery, Severity
from thread_objects.contract.states import SubmissionState
from thread_objects.core.recovery import WAITING_FOR_CHILD

_SECOND_MS = 1_000
_ORDER = (Severity.OK, Severity.AGING, Severity.OVERDUE)


@dataclass(frozen=True, slots=True)
class OpenRow:
    """An unsettled row of the ledger. `unknown_since`: the oldest unknown record that nothing closes."""

    thread_id: str
    submission_id: str
    principal: str
    agent_id: str
    queue_sequence: int
    state: SubmissionState
    admitted_at: int
    ready_at: int | None = None
    suspended_at: int | None = None
    suspension_reason: str | None = None
    unknown_since: int | None = None
    abort_requested: bool = False
    faulted: bool = False


def age_seconds(since: int, now: int) -> int:
    """Whole seconds, rounded down; a clock that runs behind makes nothing younger than new."""
    return max(0, now - since) // _SECOND_MS


def blocked_on(row: OpenRow) -> BlockedOn:
    """What a row waits for. Raises `ValueError` for a settled one: it is no obligation."""
    match row.state:
        case SubmissionState.UNKNOWN:
            return BlockedOn.UNKNOWN
        case SubmissionState.SUSPENDED:
            waits_for_child = row.suspension_reason == WAITING_FOR_CHILD
            return BlockedOn.WAITING_FOR_CHILD if waits_for_child else BlockedOn.APPROVAL
        case SubmissionState.ADMITTED | SubmissionState.READY:
            return BlockedOn.READY_AGED
        case SubmissionState.INPUT_APPLIED | SubmissionState.JOINING | SubmissionState.JOINED:
            return BlockedOn.RUNNING_AGED
        case SubmissionState.SETTLED:
            raise ValueError("a settled submission is no obligation")
        case _:
            assert_never(row.state)


def since(row: OpenRow) -> int:
    """The instant a row's age counts from; readiness and then admission stand in for what is not recorded."""
    fallback = row.admitted_at if row.ready_at is None else row.ready_at
    match row.state:
        case SubmissionState.UNKNOWN:
            found = row.unknown_since
        case SubmissionState.SUSPENDED:
            found = row.suspended_at
        case _:
            found = None
    return fallback if found is None else found


def severity(age: int, *, aging_seconds: int, overdue_seconds: int) -> Severity:
    """How late an age is."""
    if age >= overdue_seconds:
        return Severity.OVERDUE
    return Severity.AGING if age >= aging_seconds else Severity.OK


def obligation(row: OpenRow, query: ObligationsQuery, now: int) -> Obligation | None:
    """The row as an obligation, or None where the query leaves it out."""
    waits_for, counted_from = blocked_on(row), since(row)
    age = age_seconds(counted_from, now)
    late = severity(age, aging_seconds=query.aging_seconds, overdue_seconds=query.overdue_seconds)
    wanted = (
        (not query.blocked_on or waits_for in query.blocked_on)
        and _ORDER.index(late) >= _ORDER.index(query.severity_min)
        and query.agent_id in (None, row.agent_id)
        and query.principal in (None, row.principal)
    )
    if not wanted:
        return None
    return Obligation(
        thread_id=row.thread_id,
        submission_id=row.submission_id,
        principal=row.principal,
        agent_id=row.agent_id,
        queue_sequence=row.queue_sequence,
        state=row.state,
        blocked_on=waits_for,
        since=counted_from,
        age_seconds=age,
        severity=late,
        abort_requested=row.abort_requested,
        faulted=row.faulted,
    )
