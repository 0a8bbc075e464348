"""What the log says of one Submission and its Run, read after the snapshot.

Every absent fact has the reading that permits least: a log that does not exist, a lineage that is not
recorded, an admission nobody looked up.
"""

from dataclasses import dataclass

from thread_objects.contract.messages import UsageSummary
from thread_objects.contract.records import SubagentRequested
from thread_objects.contract.states import CallKind, Outcome, Resolution, ToolClass
from thread_objects.contract.states import Decision as ApprovalDecision
from thread_objects.contract.wire import Json


@dataclass(frozen=True, slots=True)
class Resolved:
    """A canonical resolution of a call. `resolved_at` ties it to the stored intent it came from."""

    resolution: Resolution
    resolved_at: int


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call whose effect may have happened and that nothing closes.

    `marked`: its newest unknown record still stands (no later permission to run it). The counters number
    further records, since ids are never used twice: `unknown_records` and `resolved_records` for this call,
    `unknown_batches` for its Turn. `resolved` holds the resolutions of its call id anywhere in the Run.
    """

    call_id: str
    name: str
    turn: int
    tool_class: ToolClass = ToolClass.UNCERTAIN
    kind: CallKind = CallKind.ORDINARY
    arguments: Json = None
    marked: bool = False
    unknown_records: int = 0
    unknown_batches: int = 0
    resolved_records: int = 0
    resolved: tuple[Resolved, ...] = ()


@dataclass(frozen=True, slots=True)
class DelegationCall:
    """A delegation call with an open duty; known by its recorded kind, never by its name.

    `admission`: `not-admitted`, `admitted`, `indeterminate`, or None when nobody looked, which counts as
    indeterminate.
    """

    call_id: str
    name: str
    turn: int
    requested: bool = False
    started: bool = False
    joined: bool = False
    child_thread_id: str | None = None
    child_submission_id: str | None = None
    admission: str | None = None
    request: SubagentRequested | None = None
    """The canonical request: all that the child's admission needs."""
    accounting: Json = None
    """What the joined child cost, once it is joined."""


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """An orchestration call that is safe to repeat by its recorded kind."""

    call_id: str
    turn: int


@dataclass(frozen=True, slots=True)
class BatchApproval:
    """A requested, unclosed call of the pending batch with its canonical decision, if there is one."""

    call_id: str
    decision: ApprovalDecision | None = None


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """The last committed response while a call of it has no settled record."""

    turn: int
    call_count: int
    approvals: tuple[BatchApproval, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """An approval that was requested and has no canonical decision.

    `earlier_decisions` counts canonical decisions on the same call id in earlier Turns of the Run.
    """

    call_id: str
    turn: int
    earlier_decisions: int = 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """The log's side of a classification."""

    thread_materialized: bool = False
    input_recorded: bool = False
    settlement_outcome: Outcome | None = None
    abort_recorded: bool = False
    open_tool_calls: tuple[OpenCall, ...] = ()
    open_delegation_calls: tuple[DelegationCall, ...] = ()
    open_worker_calls: tuple[WorkerCall, ...] = ()
    pending_batch: PendingBatch | None = None
    approvals_pending: tuple[PendingApproval, ...] = ()
    joined_input_covered: bool = True
    host_settlement_outcome: Outcome | None = None
    lineage_recorded: bool = False
    deadline_at: int | None = None
    """When the Run's time is over. The classifier does not look at it; the executor admits no child after it."""
    usage: UsageSummary | None = None
    """What the Run spent so far, for a settlement that recovery writes. Decides nothing."""

    def ordinary_open_calls(self) -> tuple[OpenCall, ...]:
        """The open calls that are nobody's delegation."""
        delegated = {call.call_id for call in self.open_delegation_calls}
        return tuple(call for call in self.open_tool_calls if call.call_id not in delegated)
