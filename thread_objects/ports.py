"""What activities and the client ask of a database: Protocols of whole transactions.

Every method is synchronous, is exactly one transaction, may be repeated, and raises `ThreadError`s only
(`StoreUnavailable` when the database is away or locked past its bounded wait). `now` is epoch milliseconds.
Fences (token, epoch) are compared inside the `UPDATE`. Nothing here knows Temporal.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from thread_objects.contract.activities import (
    ApplyAnswer,
    ApplyRequest,
    ReadAnswer,
    ReadRequest,
)
from thread_objects.contract.messages import (
    LogRecord,
    ParentLink,
    Settlement,
    SubmissionStatus,
)
from thread_objects.contract.operations import InspectAnswer, InspectRequest
from thread_objects.contract.records import Batch, SubmissionSettled
from thread_objects.contract.recovery_events import EventStanding, RecoveryEvent
from thread_objects.contract.retention import RetentionCursor, RetentionPage, RetentionPolicy
from thread_objects.contract.states import SubmissionState
from thread_objects.contract.sweeps import WorkOwner
from thread_objects.contract.views import Fault, Page, Registry, Survey, ThreadView
from thread_objects.core.explain import RetryContract
from thread_objects.core.faults import RecoveryFailure as RecoveryFailure  # noqa: PLC0414 - named by the Store
from thread_objects.core.recovery import LostCall, Reconciled, Snapshot
from thread_objects.ties import Ties


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a Thread's log. An empty log has sequence 0 and the fixed empty-tail digest."""

    sequence: int
    digest: str
    queue_last: int = field(default=0, compare=False)
    """The newest queue sequence of the Thread, told with the tail: whether something waits behind a claim."""


CHECKPOINT_VERSION = 1
"""The version of checkpoints that this code writes and reads. What a body means is its writer's business."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A derived view of a Thread up to a batch's end, bound to it by sequence and tail digest. Never recovery truth.

    `follows`: the sequence of the checkpoint that it goes on from, so that a long view is written piece by piece; a
    piece takes the place of the pieces in between. 0: it covers the Thread from its beginning.
    """

    thread_id: str
    sequence: int
    digest: str
    body: JsonValue
    version: int = CHECKPOINT_VERSION
    follows: int = 0
    retained_at: int = 0
    """The claim's, under which the content was read: what retention took since must not come back with it."""


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A stored piece of a view: the records past `follows` up to `sequence`."""

    follows: int
    sequence: int


@dataclass(frozen=True, slots=True)
class FencedPage:
    """A page of Threads fenced after a restore. `through` is the last one; None when there are no more."""

    through: str | None
    threads: int
    objects: int


@dataclass(frozen=True, slots=True)
class AbortIntent:
    """The first abort request of a Submission. `record_id` is the id its canonical record has, or will have."""

    author: str
    reason: str
    requested_at: int
    record_id: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """One ownership period of one Submission. `token` is never stored elsewhere, logged or reported."""

    thread_id: str
    object_id: str
    submission_id: str
    receipt_id: str
    agent_id: str
    principal: str
    key: str
    queue_sequence: int
    state: SubmissionState
    input: JsonValue
    input_applied: bool
    attempt_id: str
    token: str
    epoch: int
    superseded_epoch: int | None
    lease_until: int
    admitted_at: int
    tail: Tail
    abort: AbortIntent | None = None
    parent: ParentLink | None = None
    retained_at: int = 0
    """When retention last took content from the Thread: what was read of it before is out of date."""

    def at(self, tail: Tail, state: SubmissionState | None = None) -> "Claim":
        """The same claim after an append of its own."""
        return replace(self, tail=tail, state=state or self.state)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Who claims. `ended_attempts`: a live lease of one of these attempt ids may be superseded at once."""

    thread_id: str
    producer_id: str
    attempt_id: str
    ended_attempts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OldMark:
    """An object whose last batch may have outlived its workflow task."""

    object_id: str
    mark: int
    marked_at: int
    worker: str


@dataclass(frozen=True, slots=True)
class FaultChange:
    """A fault as it was stored, or as it was before it was cleared (None: there was none).

    `event_sequence`: the last recovery event that the same transaction stored, 0 for none.
    """

    fault: Fault | None
    event_sequence: int = 0


class RecoveryStart(NamedTuple):
    """How the recovery of a Thread begins. `duties`: its inventory lists something beside the rows."""

    fault: Fault | None
    page: list[Snapshot]
    duties: bool = False


class Duty(NamedTuple):
    """One item of a Thread's work inventory. `settled`: its Submission is, and the duty outlived it."""

    owner: WorkOwner
    submission_id: str
    queue_sequence: int
    call_id: str
    settled: bool


class WorkRebuild(NamedTuple):
    """One pass of rebuilding an inventory: the record it came to, and whether it is complete."""

    through: int
    complete: bool


class Reconciler(Protocol):
    """Says what became of one lost call. May be called again for the same call; must not run it.

    An exception, or no answer in time, proves nothing: the call stays open and is asked about again.
    """

    def __call__(self, call: LostCall, /) -> Reconciled | Awaitable[Reconciled]:
        """The answer, plain or awaitable."""


class Store(Ties, Protocol):
    """The ledger and the log of all Thread Objects, as activities use them."""

    @property
    def capabilities(self) -> Literal["durable-temporal"]:
        """What this ledger says of itself. Nothing branches on it."""

    # --- the object ------------------------------------------------------------------------------------------
    def apply(self, request: ApplyRequest, *, worker: str, registry: Registry, now: int) -> ApplyAnswer:
        """Apply a batch in order: admissions, abort intents, approval decisions, unknown resolutions.

        One item refused is answered with its `Refusal`; the others are applied. An admission materialises the
        Thread if need be, appends its created record and leaves the row `ready`. An abort of a `ready`, never
        claimed row publishes the aborted settlement here (QueuedAbort). Leaves `request.mark` on the object.
        """

    def survey(self, object_id: str, page: Page | None = None, discover_after: str | None = None) -> Survey:
        """The folded control view of all nonterminal rows of an object, or of a page of a host (see `surveys.page`)."""

    def view(self, thread_id: str) -> ThreadView:
        """The folded control view of one Thread."""

    def clear_mark(self, object_id: str, through: int) -> None:
        """Remove the object's mark if it is not newer than `through`."""

    # --- claims ----------------------------------------------------------------------------------------------
    def begin(
        self, request: ClaimRequest, *, run_duration_ms: Callable[[str], int], deployment_id: str, now: int
    ) -> Claim | None:
        """Claim the head and, for a `ready` row whose input is not canonical, append its input, one transaction.

        The input batch holds `UserInputRecorded` and `RunStarted` (deadline = now + run_duration_ms(agent_id));
        the row becomes `input-applied`. `run_duration_ms` may raise `BindingUnavailable`: nothing is claimed then.
        An `unknown` row with an abort intent is granted and stays `unknown`. None when nothing is claimable.
        """

    def claim(self, request: ClaimRequest, *, now: int) -> Claim | None:
        """Claim the head and change nothing else. Epoch + 1, fresh token, lease = now + 30 000 ms."""

    def claim_submission(self, request: ClaimRequest, submission_id: str, *, now: int) -> Claim | None:
        """As `claim`, but None unless the head is this Submission (recovery works on a named row)."""

    def renew(self, claim: Claim, *, rotate: bool = False, now: int) -> Claim:
        """Extend the lease, never shorten it. `OwnershipLost` when superseded or released.

        Only the returned claim is good afterwards: with `rotate` it has a fresh token, and the old one is stale.
        """

    def release(self, claim: Claim, *, mark_through: int = 0, now: int) -> ThreadView:
        """End ownership; the head is claimable at once. Clears the mark up to `mark_through`."""

    # --- appends under a claim ---------------------------------------------------------------------------------
    def append(self, claim: Claim, batch: Batch, *, now: int) -> Tail:
        """Append under the claim's epoch at the actual tail. A batch already committed answers as the first time.

        Raises `OwnershipLost`, `FenceRejected`, or `AppendConflict` (`batch-digest`, `record-identity`).
        """

    def apply_input(self, claim: Claim, batch: Batch, *, now: int) -> Claim:
        """Append the input batch and set the input marker; the row becomes `input-applied`."""

    def mark_input_applied(self, claim: Claim, *, now: int) -> Claim:
        """Set the marker of an input that is canonical already. Repeating is a no-op."""

    def finish(
        self,
        claim: Claim,
        batches: Sequence[Batch],
        settled: SubmissionSettled,
        *,
        joins: bool = False,
        mark_through: int = 0,
        now: int,
    ) -> tuple[Settlement, ThreadView]:
        """Append `batches`, publish the settlement (authority Owned) and finalize the row: one transaction.

        With `joins` the inputs that this Run took are settled with it, each by its own record, or go back to `ready`
        where no later response covers them. A child's settlement wakes its parent. A replay answers the first
        winner. Another outcome raises `SettlementConflict`.
        """

    def suspend(
        self, claim: Claim, batch: Batch | None, tool_call_ids: Sequence[str], *, mark_through: int = 0, now: int
    ) -> tuple[bool, ThreadView, Tail]:
        """Append the request and suspend ApprovalPending. First value False: already decided, nothing suspended."""

    def mark_unknown(
        self, claim: Claim, batches: Sequence[Batch], calls: Mapping[str, str], *, mark_through: int = 0, now: int
    ) -> ThreadView:
        """Append the unknown records, mark the row `unknown` with these open calls (call id -> tool name), release."""

    # --- recovery ----------------------------------------------------------------------------------------------
    def recovery_start(self, thread_id: str, *, limit: int, now: int) -> RecoveryStart:
        """The retained fault and the first recovery page, in one transaction.

        While the fault's retry is not due the page is empty: nothing of the Thread is read before that. Raises
        `WorkDiscoveryUnavailable` for a Thread whose work inventory cannot be used.
        """

    def recovery_page(self, thread_id: str, *, after: int, limit: int) -> list[Snapshot]:
        """Snapshots of nonterminal rows past queue sequence `after`, without `fresh` rows.

        Fresh = `ready`, never claimed, no abort intent: recovery has nothing to say about them. Rows of `settled`
        Submissions never appear. A row with a live ownership appears (liveness is the claim's business).
        """

    def snapshot(self, submission_id: str) -> Snapshot | None:
        """One row's recovery snapshot, strongly consistent."""

    def run_records(self, submission_id: str) -> list[LogRecord]:
        """The canonical records of a Submission and its Run, in order (the evidence of recovery)."""

    def materialize_and_ready(self, submission_id: str, *, deployment_id: str, now: int) -> None:
        """Materialise the Thread at least at epoch 0, ensure its created record, mark the row ready.

        A child without a recorded lineage stays `admitted`.
        """

    def publish_queued_abort(self, submission_id: str, *, now: int) -> Settlement | None:
        """Settle aborted under authority QueuedAbort. None when the row is not `ready`, owned, or has no intent."""

    def deny_pending_approvals(self, submission_id: str, *, resolver: str, reason: str, now: int) -> None:
        """Close an ApprovalPending suspension under an abort: undecided calls are denied, the row wakes."""

    def finalize(self, submission_id: str, *, now: int) -> Settlement:
        """Finalize the row from its canonical settlement record. Keeps the first time."""

    def apply_unknown_resolutions(self, submission_id: str, *, now: int) -> bool:
        """Replay stored resolutions so that a covered `unknown` row wakes. False when not covered."""

    def wake_suspended(self, submission_id: str, *, now: int) -> bool:
        """Wake a suspended row whose decisions are all stored. False when something is undecided."""

    # --- the work inventory ------------------------------------------------------------------------------------
    def duties(self, thread_id: str, *, after: tuple[int, str], limit: int) -> list[Duty]:
        """Inventory items past (queue sequence, call id), in that order.

        Raises `WorkDiscoveryUnavailable` where the inventory is missing, half rebuilt or of an unknown kind.
        """

    def work_threads(self, object_id: str, *, after: str | None, limit: int) -> list[str]:
        """Threads of an object that owe something, by id: nonterminal rows or listed duties."""

    def rebuild_work(self, thread_id: str) -> WorkRebuild:
        """One bounded pass (256 records, 32 MiB) of rebuilding a Thread's inventory. Recovery never does this."""

    # --- faults --------------------------------------------------------------------------------------------------
    def record_fault(self, thread_id: str, failure: RecoveryFailure, *, now: int) -> FaultChange:
        """Store or update the Thread's fault (attempts, retry_at by recovery.md §7), its recipients and events.

        Known recipients learn of a failure that differs (`changed`), then new nonterminal rows become recipients
        (`created`), each in row order.
        """

    def clear_fault(self, thread_id: str, *, now: int) -> FaultChange:
        """Delete the fault after a whole clean recovery; every recipient learns of it (`cleared`)."""

    def fault(self, thread_id: str) -> Fault | None:
        """The retained fault, or None (which is no proof of health)."""

    def note_recipients(self, object_id: str, *, now: int) -> int:
        """Make new nonterminal rows of an object's faulted Threads recipients; `retry_at` stays as it is.

        Answers the last event that is stored while one waits for its delivery, else 0.
        """

    # --- recovery events -----------------------------------------------------------------------------------------
    def event_standing(self, object_id: str) -> EventStanding:
        """How far the object's events are stored and acknowledged."""

    def recovery_events(self, object_id: str, *, after: int, limit: int) -> list[RecoveryEvent]:
        """Stored events past a sequence, in order. Acknowledged ones are gone."""

    def acknowledge_recovery_event(self, object_id: str, sequence: int, *, now: int) -> EventStanding:
        """The consumer has every event through `sequence`: they are deleted, `acknowledged` moves up, never down.

        Where no handler is installed the last stored sequence is acknowledged at once; numbers go on rising.
        A sequence that was never stored is refused (`LedgerError`).
        """

    # --- reads while running ----------------------------------------------------------------------------------------
    def abort_intent(self, submission_id: str) -> AbortIntent | None:
        """The abort intent; touches only that row."""

    def records(self, thread_id: str, *, after: int, limit: int) -> list[LogRecord]:
        """Records past a sequence, at most `limit` (1..1024), in order."""

    def tail(self, thread_id: str) -> Tail:
        """The log's end. Raises `ThreadNotMaterialized`."""

    def digest_at(self, thread_id: str, sequence: int) -> str | None:
        """The tail digest right after this sequence, or None if no batch ends there."""

    # --- checkpoints -------------------------------------------------------------------------------------------------
    def save_checkpoint(self, checkpoint: Checkpoint, *, now: int) -> None:
        """Keep a checkpoint. Saving the same place again replaces it.

        The newest `CHECKPOINTS_KEPT` of a Thread stay, or with `follows` those up to the one that it goes on from.

        Raises `CheckpointRejected` (`unsupported-version`, `ahead-of-tail`, `digest-mismatch`, `redacted` for content
        that was read before retention took some), `InvalidInput` past the bounds, `ThreadNotMaterialized`.
        Retention removes the checkpoints of what it touches.
        """

    def load_checkpoint(self, thread_id: str, *, at_or_before: int) -> Checkpoint | None:
        """The newest checkpoint at or before this sequence that still fits the log; None is no error."""

    def checkpoint_chain(self, thread_id: str) -> list[CheckpointPlace]:
        """The pieces that cover the most of the Thread without a gap, each at a place that fits."""

    def load_checkpoints(self, thread_id: str) -> list[Checkpoint]:
        """As `checkpoint_chain`, with their bodies."""

    # --- retention ---------------------------------------------------------------------------------------------------
    def retain(
        self, policy: RetentionPolicy, cursor: RetentionCursor, *, dry_run: bool = False, now: int
    ) -> RetentionPage:
        """Take content from settled work that is old enough: a bounded piece, and where to go on.

        Never touches work that is not settled or still owes something. Repeating a piece finds nothing left to do.
        """

    # --- workers and marks --------------------------------------------------------------------------------------------
    def deployment_order(self, registry_key: str, *, now: int) -> int:
        """The integer of this registry key; allocated once, larger for each new key."""

    def worker_seen(self, worker: str, *, host: str, pid: int, now: int) -> None:
        """This worker process lives."""

    def worker_gone(self, worker: str) -> None:
        """This worker process ended in good order."""

    def workers_silent_since(self, instant: int) -> list[tuple[str, str, int]]:
        """(worker, host, pid) of processes not seen since `instant`."""

    def old_marks(self, *, before: int, limit: int) -> list[OldMark]:
        """Objects with a mark left before `before`, oldest first."""

    def hint_object_of(self, thread_id: str, *, now: int) -> None:
        """Leave an old mark at a Thread's object, so that the next sweep wakes it: rows changed beside its workflow."""

    def objects_of_workers(self, workers: Sequence[str], *, limit: int) -> list[str]:
        """Objects last served by one of these workers that have nonterminal rows or a mark."""

    def objects_owed_by(
        self, agents: Sequence[str], *, after: str, limit: int, ready_by: int | None = None
    ) -> list[str]:
        """Objects past `after`, by id, with input of these agents that an Attempt could take up.

        With `ready_by` only those whose head is ready since then, and that nobody works on.
        """

    def read(self, request: ReadRequest) -> ReadAnswer:
        """One read for a client that has no database of its own."""

    # --- operators -----------------------------------------------------------------------------------------------
    def inspect(
        self, request: InspectRequest, *, now: int, retry_contract: RetryContract | None = None
    ) -> InspectAnswer:
        """One question of an operator, on one snapshot. Writes nothing.

        `retry_contract` tells of a stored permission to retry whether the code still offers its operation.
        """

    def annotate(self, submission_id: str, batch: Batch) -> bool:
        """Append the audit of a repair that took no claim, at the log's epoch. An empty log gets none (False).

        Raises `AppendConflict` where its id stands for another audit.
        """


class Reader(Protocol):
    """What a client reads for itself. One per process; safe to use from one thread at a time."""

    def status(self, submission_id: str) -> SubmissionStatus | None:
        """Where a Submission stands."""

    def find(self, thread_id: str, principal: str, key: str) -> SubmissionStatus | None:
        """The Submission of an idempotency key. None is proof of absence."""

    def settlements(self, submission_ids: Sequence[str]) -> dict[str, Settlement]:
        """The settlements among these ids."""

    def owner(self, thread_id: str) -> str | None:
        """The Thread Object that owns a Thread; None for a Thread that does not exist."""

    def log(self, thread_id: str, *, after: int, limit: int) -> list[LogRecord]:
        """Records past a sequence; empty for a Thread that does not exist."""

    def inspect(self, request: InspectRequest, *, now: int) -> InspectAnswer:
        """One question of an operator, on one snapshot. A permission to retry is told as `unchecked`."""

    def tails(self, thread_ids: Sequence[str]) -> dict[str, int]:
        """How long the logs of these Threads are; nothing for a Thread that does not exist."""

    def wait_for_change(self, timeout_ms: int) -> bool:
        """Return when something was committed since the last call (True), or after `timeout_ms` (False)."""

    def quicken(self) -> None:
        """Somebody new waits: look often again. May be called from another thread than the one that waits."""

    def close(self) -> None:
        """Release the connection."""
