"""The closed set of recovery decisions.

Each class names the crash window it repairs. `meaning` says what the row waits for, `predicted` what
executing the decision leaves behind when nobody contends; both are what an operator is shown.
"""

from dataclasses import dataclass
from typing import ClassVar, get_args

from thread_objects.contract.states import Disposition, Outcome
from thread_objects.core.recovery.evidence import OpenCall


@dataclass(frozen=True, slots=True)
class NoAction:
    """Window: none. The row is settled."""

    meaning: ClassVar[str] = "settled; nothing is owed"
    predicted: ClassVar[Disposition] = Disposition.NONE


@dataclass(frozen=True, slots=True)
class FinalizeLedgerFromHistory:
    """Window: the settlement was published, the row was not finalized."""

    settlement_id: str
    outcome: Outcome
    meaning: ClassVar[str] = "the settlement is canonical; the row takes its outcome from it"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class RepairJoinMarker:
    """Window: the joined input was appended, the row was not marked joined."""

    meaning: ClassVar[str] = "the host consumed this input; the row must say joined"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class RevertJoining:
    """Window: the host claimed this input for joining and died before its append."""

    meaning: ClassVar[str] = "the host never consumed this input; it returns to the queue"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class SettleJoinedWithHost:
    """Window: the host settled, its joined input did not."""

    outcome: Outcome
    meaning: ClassVar[str] = "the host settled; this input shares its outcome"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class AwaitHostSettlement:
    """Window: none. The host is still at work."""

    meaning: ClassVar[str] = "joined to another run, which has not settled"
    predicted: ClassVar[Disposition] = Disposition.DEFERRED


@dataclass(frozen=True, slots=True)
class SettleAborted:
    """Window: an abort was accepted, the owner died before settling."""

    meaning: ClassVar[str] = "an abort was accepted; the submission settles aborted"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class MarkUnknown:
    """Window: calls were declared, the owner died before their results."""

    calls: tuple[OpenCall, ...]
    meaning: ClassVar[str] = "calls may have taken effect; each is reconciled or becomes an unknown outcome"
    predicted: ClassVar[Disposition] = Disposition.UNKNOWN


@dataclass(frozen=True, slots=True)
class ApplyUnknownResolutions:
    """Window: the last resolution was stored, the row was not woken."""

    meaning: ClassVar[str] = "every unknown outcome is resolved; the run may go on"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class AwaitUnknownResolution:
    """Window: none. Somebody must say what became of the calls."""

    meaning: ClassVar[str] = "an outcome is unknown; waiting for a resolution"
    predicted: ClassVar[Disposition] = Disposition.UNKNOWN


@dataclass(frozen=True, slots=True)
class AwaitApprovalDecision:
    """Window: an approval was requested, the owner died before it suspended the row (`suspended` False)."""

    call_id: str
    suspended: bool
    meaning: ClassVar[str] = "a call waits for approval"

    @property
    def predicted(self) -> Disposition:
        """A lost suspension is restored; an intact one waits."""
        return Disposition.DEFERRED if self.suspended else Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class ResumeSuspended:
    """Window: the last decision was stored, the row was not woken."""

    meaning: ClassVar[str] = "nothing is left to decide; the run may go on"
    predicted: ClassVar[Disposition] = Disposition.DEFERRED


@dataclass(frozen=True, slots=True)
class AwaitChildSettlement:
    """Window: none. A child is still at work."""

    meaning: ClassVar[str] = "waiting for children"
    predicted: ClassVar[Disposition] = Disposition.DEFERRED


@dataclass(frozen=True, slots=True)
class ResumeWaitingParent:
    """Window: the last child settled, the parent was not woken."""

    children: tuple[str, ...]
    meaning: ClassVar[str] = "children settled; the parent may join them"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class EnsureWaitingForChild:
    """Window: a child was started, the owner died before it suspended the parent."""

    children: tuple[str, ...]
    meaning: ClassVar[str] = "children are at work; the parent must wait for them"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class CompleteChildAdmission:
    """Window: the request for a child is canonical, the child was not admitted."""

    call_id: str
    meaning: ClassVar[str] = "a child was requested and is known not to exist yet"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class AwaitChildAdmissionResolution:
    """Window: the request is canonical and nobody can say whether the child exists."""

    call_id: str
    meaning: ClassVar[str] = "a child was requested; whether it exists is not known"
    predicted: ClassVar[Disposition] = Disposition.DEFERRED


@dataclass(frozen=True, slots=True)
class RepairSubagentStartLink:
    """Window: the child exists, the parent's start record or attachment is missing."""

    call_id: str
    meaning: ClassVar[str] = "a child exists that its parent has not linked"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class ApplyJoinAccounting:
    """Window: the child was joined, its budget was not given back."""

    reservation_id: str
    call_id: str
    meaning: ClassVar[str] = "a joined child's reservation is still held"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class ReleaseOrphanChildReservation:
    """Window: budget was reserved, the child was never requested."""

    reservation_ids: tuple[str, ...]
    meaning: ClassVar[str] = "budget is reserved for children that never existed"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class PropagateChildAbort:
    """Window: the parent's abort was accepted, its children were not told."""

    children: tuple[str, ...]
    meaning: ClassVar[str] = "an abort was accepted; children must end first"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class AwaitParentEstablishment:
    """Window: a child was admitted, its lineage is not recorded yet."""

    parent_submission_id: str
    parent_call_id: str
    meaning: ClassVar[str] = "a child whose parent has not finished establishing it"
    predicted: ClassVar[Disposition] = Disposition.DEFERRED


@dataclass(frozen=True, slots=True)
class CompleteMaterialization:
    """Window: the Submission was admitted, its Thread's log was not created."""

    meaning: ClassVar[str] = "admitted; the thread's log is missing"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class RepairReadiness:
    """Window: the log was created, the row was not marked ready."""

    meaning: ClassVar[str] = "admitted; the row must say ready"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class ApplyInput:
    """Window: the row was claimed, the owner died before the input's append."""

    meaning: ClassVar[str] = "queued; the next claim applies the input"
    predicted: ClassVar[Disposition] = Disposition.DEFERRED


@dataclass(frozen=True, slots=True)
class RepairInputMarker:
    """Window: the input was appended, the row was not marked."""

    meaning: ClassVar[str] = "the input is canonical; the row must say so"
    predicted: ClassVar[Disposition] = Disposition.REPAIRED


@dataclass(frozen=True, slots=True)
class ResumePendingToolBatch:
    """Window: a response was committed, results of its calls were not."""

    turn: int
    meaning: ClassVar[str] = "a worker resumes the declared tool batch without asking the model again"
    predicted: ClassVar[Disposition] = Disposition.DEFERRED


@dataclass(frozen=True, slots=True)
class ResumeFromTurnBoundary:
    """Window: the owner died between two Turns, or while a model was answering."""

    meaning: ClassVar[str] = "a worker resumes at the last complete turn"
    predicted: ClassVar[Disposition] = Disposition.DEFERRED


Decision = (
    NoAction
    | FinalizeLedgerFromHistory
    | RepairJoinMarker
    | RevertJoining
    | SettleJoinedWithHost
    | AwaitHostSettlement
    | SettleAborted
    | MarkUnknown
    | ApplyUnknownResolutions
    | AwaitUnknownResolution
    | AwaitApprovalDecision
    | ResumeSuspended
    | AwaitChildSettlement
    | ResumeWaitingParent
    | EnsureWaitingForChild
    | CompleteChildAdmission
    | AwaitChildAdmissionResolution
    | RepairSubagentStartLink
    | ApplyJoinAccounting
    | ReleaseOrphanChildReservation
    | PropagateChildAbort
    | AwaitParentEstablishment
    | CompleteMaterialization
    | RepairReadiness
    | ApplyInput
    | RepairInputMarker
    | ResumePendingToolBatch
    | ResumeFromTurnBoundary
)

DECISIONS: tuple[type[Decision], ...] = get_args(Decision)
"""Every decision class."""


def tag(decision: Decision) -> str:
    """The decision's stable name, as reports, audits and ids carry it."""
    return type(decision).__name__


def predicted_disposition(decision: Decision, *, retry_supported: bool = True) -> Disposition:
    """What executing the decision leaves behind when nobody contends.

    `retry_supported` False: a stored permission to retry names an operation that the current code no longer
    offers under its original contract, so the row stays unknown.
    """
    if isinstance(decision, ApplyUnknownResolutions) and not retry_supported:
        return Disposition.UNKNOWN
    return decision.predicted
