"""Delegation duties: calls that are carried out by a child Submission.

Every call's facts are merged into one view, each view falls into at most one bucket (first test wins), and
the first bucket that is not empty decides. Two tables: one while the parent lives, one under an abort, which
never admits a child only to abort it and never settles a parent over an open child.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from thread_objects.core.recovery.decisions import (
    ApplyJoinAccounting,
    AwaitChildAdmissionResolution,
    CompleteChildAdmission,
    Decision,
    EnsureWaitingForChild,
    PropagateChildAbort,
    ReleaseOrphanChildReservation,
    RepairSubagentStartLink,
    ResumePendingToolBatch,
    ResumeWaitingParent,
)
from thread_objects.core.recovery.evidence import DelegationCall, Evidence
from thread_objects.core.recovery.snapshot import ChildAttachment, ChildReservation, Snapshot

RESERVED = "reserved"
RELEASE_PENDING = "releasePending"
RELEASED = "released"

ADMITTED = "admitted"
NOT_ADMITTED = "not-admitted"


class Duty(Enum):
    """The buckets."""

    APPLY_JOIN = auto()
    COMPLETE_ADMISSION = auto()
    REPAIR_START_LINK = auto()
    AWAIT_ADMISSION = auto()
    RESUME_BATCH = auto()
    WAITING = auto()
    TERMINAL_UNJOINED = auto()
    ORPHAN = auto()


@dataclass(frozen=True, slots=True)
class DelegationView:
    """All that is known of one delegation: its open call, its reservation, its child. Any may be absent."""

    call_id: str
    call: DelegationCall | None = None
    reservation: ChildReservation | None = None
    attachment: ChildAttachment | None = None

    @property
    def child(self) -> str | None:
        """The child's submission id, whoever knows it."""
        known = (
            self.call.child_submission_id if self.call else None,
            self.attachment.child_submission_id if self.attachment else None,
            self.reservation.child_submission_id if self.reservation else None,
        )
        return next((child for child in known if child is not None), None)

    @property
    def child_terminal(self) -> bool:
        """The child settled, as far as the parent's row says."""
        return self.attachment is not None and is_terminal(self.attachment)

    @property
    def status(self) -> str | None:
        """The reservation's state."""
        return self.reservation.status if self.reservation else None

    @property
    def requested(self) -> bool:
        """The request for the child is canonical."""
        return self.call is not None and self.call.requested

    @property
    def started(self) -> bool:
        """The child's start is canonical."""
        return self.call is not None and self.call.started

    @property
    def joined(self) -> bool:
        """The child's outcome is canonical in the parent."""
        return self.call is not None and self.call.joined

    @property
    def admission(self) -> str | None:
        """What the child's owner said about its admission."""
        return self.call.admission if self.call else None


def is_terminal(attachment: ChildAttachment) -> bool:
    """The child is settled, or its outcome is known."""
    return attachment.state == "settled" or attachment.outcome is not None


def views(snapshot: Snapshot, evidence: Evidence) -> tuple[DelegationView, ...]:
    """One view per call id: open calls in their order, then reservations, then attachments."""
    calls = {call.call_id: call for call in evidence.open_delegation_calls}
    reservations = {row.parent_call_id: row for row in snapshot.child_reservations}
    attachments = {row.call_id: row for row in snapshot.child_attachments}
    return tuple(
        DelegationView(call_id, calls.get(call_id), reservations.get(call_id), attachments.get(call_id))
        for call_id in dict.fromkeys((*calls, *reservations, *attachments))
    )


def _held(view: DelegationView) -> tuple[bool, Duty | None]:
    """The rows both tables begin with: accounting that is over, half done, or due for a joined child."""
    if view.status == RELEASED:
        return True, None
    if view.status == RELEASE_PENDING:
        return True, Duty.APPLY_JOIN
    if view.joined:
        return True, Duty.APPLY_JOIN if view.status == RESERVED else None
    return False, None


def _child_at_work(view: DelegationView) -> Duty:
    return Duty.TERMINAL_UNJOINED if view.child_terminal else Duty.WAITING


def duty(view: DelegationView) -> Duty | None:
    """The bucket of a view while the parent lives."""
    held, found = _held(view)
    if held:
        return found
    rows = (
        (view.started and view.child is not None, _child_at_work(view)),
        (view.started or view.child is not None or view.admission == ADMITTED, Duty.REPAIR_START_LINK),
        (view.requested and view.admission == NOT_ADMITTED, Duty.COMPLETE_ADMISSION),
        (view.requested, Duty.AWAIT_ADMISSION),
        (view.call is not None, Duty.RESUME_BATCH),
        (view.status == RESERVED, Duty.ORPHAN),
    )
    return next((bucket for holds, bucket in rows if holds), None)


def duty_under_abort(view: DelegationView) -> Duty | None:
    """The bucket of a view once the parent's abort is accepted."""
    held, found = _held(view)
    if held:
        return found
    never_admitted = view.requested and view.admission == NOT_ADMITTED
    rows = (
        (view.child is not None, _child_at_work(view) if view.started else Duty.REPAIR_START_LINK),
        (view.started or view.admission == ADMITTED, Duty.REPAIR_START_LINK),
        (never_admitted, Duty.ORPHAN if view.status == RESERVED else None),
        (view.requested, Duty.AWAIT_ADMISSION),
        (view.status == RESERVED, Duty.ORPHAN),
    )
    return next((bucket for holds, bucket in rows if holds), None)


def _sorted(found: Iterable[tuple[Duty | None, DelegationView]]) -> Mapping[Duty, Sequence[DelegationView]]:
    buckets: dict[Duty, list[DelegationView]] = defaultdict(list)
    for bucket, view in found:
        if bucket is not None:
            buckets[bucket].append(view)
    return buckets


def _children(found: Iterable[DelegationView]) -> tuple[str, ...]:
    return tuple(view.child for view in found if view.child is not None)


def _accounting(view: DelegationView) -> ApplyJoinAccounting:
    # A view is only put into this bucket by its reservation's state.
    assert view.reservation is not None  # noqa: S101
    return ApplyJoinAccounting(view.reservation.reservation_id, view.call_id)


def _orphans(found: Sequence[DelegationView]) -> ReleaseOrphanChildReservation:
    held = (view.reservation for view in found)
    return ReleaseOrphanChildReservation(tuple(row.reservation_id for row in held if row is not None))


def live_duty(snapshot: Snapshot, evidence: Evidence) -> Decision | None:
    """What the delegations of a living parent ask for, if anything."""
    found = _sorted((duty(view), view) for view in views(snapshot, evidence))
    waiting, terminal = found.get(Duty.WAITING, ()), found.get(Duty.TERMINAL_UNJOINED, ())
    decisions: list[Decision] = []
    decisions += [_accounting(view) for view in found.get(Duty.APPLY_JOIN, ())]
    decisions += [CompleteChildAdmission(view.call_id) for view in found.get(Duty.COMPLETE_ADMISSION, ())]
    decisions += [RepairSubagentStartLink(view.call_id) for view in found.get(Duty.REPAIR_START_LINK, ())]
    decisions += [AwaitChildAdmissionResolution(view.call_id) for view in found.get(Duty.AWAIT_ADMISSION, ())]
    decisions += [
        ResumePendingToolBatch(view.call.turn) for view in found.get(Duty.RESUME_BATCH, ()) if view.call is not None
    ]
    if waiting:
        decisions.append(EnsureWaitingForChild(_children((*waiting, *terminal))))
    if terminal:
        decisions.append(ResumeWaitingParent(_children(terminal)))
    if orphans := found.get(Duty.ORPHAN, ()):
        decisions.append(_orphans(orphans))
    return decisions[0] if decisions else None


def abort_duty(snapshot: Snapshot, evidence: Evidence) -> Decision | None:
    """What must happen to children before an aborted parent may settle, if anything."""
    found = _sorted((duty_under_abort(view), view) for view in views(snapshot, evidence))
    decisions: list[Decision] = []
    decisions += [AwaitChildAdmissionResolution(view.call_id) for view in found.get(Duty.AWAIT_ADMISSION, ())]
    decisions += [RepairSubagentStartLink(view.call_id) for view in found.get(Duty.REPAIR_START_LINK, ())]
    if at_work := found.get(Duty.WAITING, ()):
        decisions.append(PropagateChildAbort(_children(at_work)))
    if terminal := found.get(Duty.TERMINAL_UNJOINED, ()):
        decisions.append(ResumeWaitingParent(_children(terminal)))
    decisions += [_accounting(view) for view in found.get(Duty.APPLY_JOIN, ())]
    if orphans := found.get(Duty.ORPHAN, ()):
        decisions.append(_orphans(orphans))
    return decisions[0] if decisions else None
