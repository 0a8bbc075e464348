"""What the ledger says of one Submission: its row, and the facts stored beside it.

Strongly consistent, without the live token. Whether the owner is alive is not in here, on purpose: only a
claim may answer that.
"""

from dataclasses import dataclass, field

from thread_objects.contract.states import Decision as ApprovalDecision
from thread_objects.contract.states import ResolutionKind, SubmissionState
from thread_objects.contract.wire import Json


@dataclass(frozen=True, slots=True)
class Ownership:
    """A claim as recovery may see it: never the token."""

    attempt_id: str
    producer_id: str
    epoch: int
    lease_until: int


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why a row is suspended. `children` for WaitingForChild (submission ids)."""

    reason: str
    tool_call_ids: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalIntent:
    """A stored decision that may not be canonical yet.

    `turn` 0: the ledger did not store it. Such an intent answers the first request of its call id only.
    """

    tool_call_id: str
    decision: ApprovalDecision
    resolver: str
    reason: str
    decided_at: int
    turn: int = 0


@dataclass(frozen=True, slots=True)
class UnknownIntent:
    """A stored resolution of an open call."""

    tool_call_id: str
    kind: ResolutionKind
    result: Json
    is_failure: bool
    author: str
    reason: str
    resolved_at: int


@dataclass(frozen=True, slots=True)
class AbortFact:
    """The abort intent."""

    author: str
    reason: str
    requested_at: int


@dataclass(frozen=True, slots=True)
class ChildReservation:
    """A slice of the parent's budget for one child."""

    reservation_id: str
    parent_call_id: str
    status: str
    child_submission_id: str | None = None


@dataclass(frozen=True, slots=True)
class ChildAttachment:
    """A child as the parent's row knows it."""

    call_id: str
    child_submission_id: str
    state: str
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The ledger's row and its operational facts."""

    submission_id: str
    receipt_id: str
    thread_id: str
    queue_sequence: int
    agent_id: str
    state: SubmissionState
    ownership: Ownership | None = None
    input_applied: int | None = None
    abort_intent: AbortFact | None = None
    joins: tuple[str, ...] = ()
    host_submission_id: str | None = None
    suspension: Suspension | None = None
    approval_decisions: tuple[ApprovalIntent, ...] = ()
    unknown_calls: tuple[str, ...] = ()
    unknown_resolutions: tuple[UnknownIntent, ...] = ()
    child_reservations: tuple[ChildReservation, ...] = ()
    child_attachments: tuple[ChildAttachment, ...] = ()
    parent_linkage: tuple[str, str] | None = None
    thread_materialized: bool = True
    extra: dict[str, Json] = field(default_factory=dict)
