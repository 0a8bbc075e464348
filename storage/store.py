"""The store: every operation of the port, each exactly one transaction on a `Database`."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from thread_objects import failpoints
from thread_objects.archives import check_archive
from thread_objects.contract.activities import ApplyAnswer, ApplyRequest, ItemAnswer, ReadAnswer, ReadRequest
from thread_objects.contract.archive import ArchiveReport
from thread_objects.contract.messages import LogRecord, Settlement
from thread_objects.contract.operations import InspectAnswer, InspectRequest
from thread_objects.contract.records import Batch, SubmissionSettled
from thread_objects.contract.recovery_events import EventStanding, RecoveryEvent
from thread_objects.contract.retention import RetentionCursor, RetentionPage, RetentionPolicy
from thread_objects.contract.views import Fault, Page, Registry, Survey, ThreadView
from thread_objects.core.archive import ArchiveDefect
from thread_objects.core.explain import RetryContract
from thread_objects.core.recovery import Snapshot
from thread_objects.errors import ArchiveRefused, LedgerError, StoreUnavailable
from thread_objects.ports import (
    AbortIntent,
    Checkpoint,
    CheckpointPlace,
    Claim,
    ClaimRequest,
    Duty,
    FaultChange,
    FencedPage,
    OldMark,
    RecoveryFailure,
    RecoveryStart,
    Tail,
    WorkRebuild,
)

from . import (
    aborts,
    applying,
    approvals,
    archiving,
    checkpoints,
    claims,
    faults,
    fleet,
    handing,
    inspections,
    lanes,
    log,
    marks,
    reads,
    recipients,
    recoveries,
    recovery_events,
    restoring,
    retention,
    settlements,
    surveys,
    work,
    work_rebuild,
)
from .engine import Transaction
from .ties import SqlTies

_log = logging.getLogger(__name__)


class SqlStore(SqlTies):
    """`Store` on either database. Safe to use from many threads."""

    @property
    def capabilities(self) -> Literal["durable-temporal"]:
        """What this ledger says of itself."""
        return "durable-temporal"

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._database.close()

    # --- the object ---

    def apply(self, request: ApplyRequest, *, worker: str, registry: Registry, now: int) -> ApplyAnswer:
        """Apply a batch of mutations in order. An item that breaks the transaction is refused, alone."""

        def run(part: ApplyRequest) -> ApplyAnswer:
            return self._database.write(
                lambda tx: applying.apply(
                    tx, part, worker=worker, registry=registry, limits=self._limits, rules=self._rules, now=now
                )
            )

        try:
            return run(request)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, it is logged, and what follows is bounded
            # Sent again as it is, the batch would break again and hold up everything behind it.
            _log.exception("a batch broke its transaction", extra={"items": len(request.items)})
            return self._apply_apart(request, run)

    def _apply_apart(self, request: ApplyRequest, run: Callable[[ApplyRequest], ApplyAnswer]) -> ApplyAnswer:
        """Each item in a transaction of its own, under the batch's name: applied before, it answers as then."""
        answers: list[ItemAnswer] = []
        registry = Registry()
        for item in request.items:
            try:
                applied = run(request.model_copy(update={"items": (item,)}))
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - logged with its batch above
                refused = LedgerError("this item breaks its transaction", operation="apply")
                refused.__cause__ = error
                answers.append(ItemAnswer(n=item.n, refusal=refused.refusal()))
            else:
                registry = applied.registry
                answers.extend(applied.answers)
        return ApplyAnswer(answers=tuple(answers), survey=self._after(request), registry=registry)

    def _after(self, request: ApplyRequest) -> Survey:
        if not request.shared_host:
            return self.survey(request.object_id)
        threads = [item.mutation.thread_id for item in request.items]
        return self._database.read(lambda tx: surveys.touched(tx, request.object_id, threads))

    def survey(self, object_id: str, page: Page | None = None, discover_after: str | None = None) -> Survey:
        """The folded control view of an object, or one page of a shared host's."""
        if page is not None:
            return self._database.read(lambda tx: surveys.page(tx, object_id, page, discover_after))
        return self._database.read(lambda tx: surveys.survey(tx, object_id))

    def view(self, thread_id: str) -> ThreadView:
        """The folded control view of one Thread."""
        return self._database.read(lambda tx: surveys.view_of(tx, thread_id))

    def clear_mark(self, object_id: str, through: int) -> None:
        """Remove the object's mark if it is not newer."""
        self._database.write(lambda tx: marks.clear(tx, object_id, through))

    # --- claims ---

    def begin(
        self, request: ClaimRequest, *, run_duration_ms: Callable[[str], int], deployment_id: str, now: int
    ) -> Claim | None:
        """Claim the head and make a ready row's input canonical."""
        return self._database.write(
            lambda tx: claims.begin(tx, request, run_duration_ms=run_duration_ms, deployment_id=deployment_id, now=now)
        )

    def claim(self, request: ClaimRequest, *, now: int) -> Claim | None:
        """Claim the head and change nothing else."""
        return self._database.write(lambda tx: claims.grant(tx, request, now=now))

    def claim_submission(self, request: ClaimRequest, submission_id: str, *, now: int) -> Claim | None:
        """Claim the head if it is this Submission."""
        return self._database.write(lambda tx: claims.grant(tx, request, now=now, only=submission_id))

    def renew(self, claim: Claim, *, rotate: bool = False, now: int) -> Claim:
        """Extend the lease, never shorten it."""
        token = claims.fresh_token() if rotate else claim.token
        return self._database.write(lambda tx: lanes.renew(tx, claim, token, now=now))

    def release(self, claim: Claim, *, mark_through: int = 0, now: int) -> ThreadView:  # noqa: ARG002
        """End ownership."""
        return self._database.write(lambda tx: handing.release(tx, claim, mark_through=mark_through))

    # --- appends under a claim ---

    def append(self, claim: Claim, batch: Batch, *, now: int) -> Tail:  # noqa: ARG002
        """Append at the actual tail, fenced by the claim's epoch."""
        encoded = [log.encode(batch)]
        return self._database.write(lambda tx: log.append(tx, claim, encoded))

    def apply_input(self, claim: Claim, batch: Batch, *, now: int) -> Claim:  # noqa: ARG002
        """Append the input batch and set the marker."""
        return self._database.write(lambda tx: claims.apply_input(tx, claim, batch))

    def mark_input_applied(self, claim: Claim, *, now: int) -> Claim:  # noqa: ARG002
        """Set the marker of a canonical input."""
        return self._database.write(lambda tx: claims.mark_input_applied(tx, claim))

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
        """Append, publish, finalize."""
        return self._database.write(
            lambda tx: handing.finish(tx, claim, batches, settled, joins=joins, mark_through=mark_through, now=now)
        )

    def suspend(
        self,
        claim: Claim,
        batch: Batch | None,
        tool_call_ids: Sequence[str],
        *,
        mark_through: int = 0,
        now: int,
    ) -> tuple[bool, ThreadView, Tail]:
        """Append the request and suspend until its calls are decided."""
        return self._database.write(
            lambda tx: handing.suspend(tx, claim, batch, tuple(tool_call_ids), mark_through=mark_through, now=now)
        )

    def mark_unknown(
        self,
        claim: Claim,
        batches: Sequence[Batch],
        calls: Mapping[str, str],
        *,
        mark_through: int = 0,
        now: int,
    ) -> ThreadView:
        """Append the unknown records, mark the row, release."""
        return self._database.write(
            lambda tx: handing.mark_unknown(tx, claim, batches, calls, mark_through=mark_through, now=now)
        )

    # --- recovery ---

    def recovery_start(self, thread_id: str, *, limit: int, now: int) -> RecoveryStart:
        """The retained fault and, when it is due or there is none, the first page."""
        return self._database.read(lambda tx: recoveries.start(tx, thread_id, limit=limit, now=now))

    def recovery_page(self, thread_id: str, *, after: int, limit: int) -> list[Snapshot]:
        """Snapshots of nonterminal rows that are not fresh."""
        return self._database.read(lambda tx: recoveries.page(tx, thread_id, after=after, limit=limit))

    def snapshot(self, submission_id: str) -> Snapshot | None:
        """One row's snapshot."""
        return self._database.read(lambda tx: recoveries.snapshot(tx, submission_id))

    def run_records(self, submission_id: str) -> list[LogRecord]:
        """The canonical records of a Submission and its Run."""
        return self._database.read(lambda tx: log.of_run(tx, submission_id))

    def materialize_and_ready(self, submission_id: str, *, deployment_id: str, now: int) -> None:
        """Materialise the Thread and mark the row ready."""
        self._database.write(lambda tx: recoveries.make_ready(tx, submission_id, deployment_id=deployment_id, now=now))

    def publish_queued_abort(self, submission_id: str, *, now: int) -> Settlement | None:
        """Settle aborted what nobody claimed."""
        return self._database.write(lambda tx: recoveries.publish_queued_abort(tx, submission_id, now=now))

    def deny_pending_approvals(self, submission_id: str, *, resolver: str, reason: str, now: int) -> None:
        """Close an approval suspension under an abort."""
        self._database.write(
            lambda tx: approvals.deny_pending(tx, submission_id, resolver=resolver, reason=reason, now=now)
        )

    def finalize(self, submission_id: str, *, now: int) -> Settlement:
        """Finalize the row from its record."""
        return self._database.write(lambda tx: settlements.finalize(tx, submission_id, now=now))

    def apply_unknown_resolutions(self, submission_id: str, *, now: int) -> bool:  # noqa: ARG002
        """Wake a covered unknown row."""
        return self._database.write(lambda tx: recoveries.apply_unknown_resolutions(tx, submission_id))

    def wake_suspended(self, submission_id: str, *, now: int) -> bool:  # noqa: ARG002
        """Wake a decided suspension."""
        return self._database.write(lambda tx: recoveries.wake_suspended(tx, submission_id))

    # --- the work inventory ---

    def duties(self, thread_id: str, *, after: tuple[int, str], limit: int) -> list[Duty]:
        """A page of the inventory."""
        return self._database.read(lambda tx: work.page(tx, thread_id, after=after, limit=limit))

    def work_threads(self, object_id: str, *, after: str | None, limit: int) -> list[str]:
        """Threads of an object that owe something."""
        return self._database.read(lambda tx: work.threads(tx, object_id, after=after, limit=limit))

    def rebuild_work(self, thread_id: str) -> WorkRebuild:
        """One pass of rebuilding an inventory."""
        return self._database.write(lambda tx: work_rebuild.rebuild(tx, thread_id))

    # --- faults ---

    def record_fault(self, thread_id: str, failure: RecoveryFailure, *, now: int) -> FaultChange:
        """Store or update the Thread's fault, its recipients and their events."""
        return self._database.write(lambda tx: faults.record(tx, thread_id, failure, now=now))

    def clear_fault(self, thread_id: str, *, now: int) -> FaultChange:
        """Delete the fault and tell its recipients."""
        return self._database.write(lambda tx: faults.clear(tx, thread_id, now=now))

    def fault(self, thread_id: str) -> Fault | None:
        """The retained fault."""
        return self._database.read(lambda tx: faults.read(tx, thread_id))

    def note_recipients(self, object_id: str, *, now: int) -> int:
        """Tell new rows of faulted Threads of the fault. Only where there are such rows is anything written."""

        def look(tx: Transaction) -> tuple[list[str], EventStanding]:
            return recipients.unlisted(tx, object_id, faults.of_object(tx, object_id)), recovery_events.standing(
                tx, object_id
            )

        threads, standing = self._database.read(look)
        if threads:

            def note(tx: Transaction) -> EventStanding:
                faults.note_recipients(tx, object_id, threads, now=now)
                return recovery_events.standing(tx, object_id)

            standing = self._database.write(note)
        return standing.sequence if standing.pending else 0

    # --- recovery events ---

    def event_standing(self, object_id: str) -> EventStanding:
        """How far the object's events are."""
        return self._database.read(lambda tx: recovery_events.standing(tx, object_id))

    def recovery_events(self, object_id: str, *, after: int, limit: int) -> list[RecoveryEvent]:
        """A page of stored events."""
        return self._database.read(lambda tx: recovery_events.page(tx, object_id, after=after, limit=limit))

    def acknowledge_recovery_event(self, object_id: str, sequence: int, *, now: int) -> EventStanding:  # noqa: ARG002
        """Forget the events through a number."""
        return self._database.write(lambda tx: recovery_events.acknowledge(tx, object_id, sequence))

    # --- reads while running ---

    def abort_intent(self, submission_id: str) -> AbortIntent | None:
        """The abort intent of one row."""
        return self._database.read(lambda tx: aborts.intent(tx, submission_id))

    def records(self, thread_id: str, *, after: int, limit: int) -> list[LogRecord]:
        """A page of the log."""
        return self._database.read(lambda tx: log.page_of_existing(tx, thread_id, after=after, limit=limit))

    def tail(self, thread_id: str) -> Tail:
        """The log's end."""
        return self._database.read(lambda tx: log.tail(tx, thread_id))

    def digest_at(self, thread_id: str, sequence: int) -> str | None:
        """The tail digest after this sequence."""
        return self._database.read(lambda tx: log.digest_at(tx, thread_id, sequence))

    # --- checkpoints ---

    def save_checkpoint(self, checkpoint: Checkpoint, *, now: int) -> None:
        """Keep a derived view that fits the log."""
        self._database.write(lambda tx: checkpoints.save(tx, checkpoint, now=now))

    def load_checkpoint(self, thread_id: str, *, at_or_before: int) -> Checkpoint | None:
        """The newest checkpoint at or before a sequence that fits the log."""
        return self._database.read(lambda tx: checkpoints.load(tx, thread_id, at_or_before=at_or_before))

    def checkpoint_chain(self, thread_id: str) -> list[CheckpointPlace]:
        """The pieces that cover the most of the Thread."""
        return self._database.read(lambda tx: checkpoints.chain(tx, thread_id))

    def load_checkpoints(self, thread_id: str) -> list[Checkpoint]:
        """As `checkpoint_chain`, with their bodies."""
        return self._database.read(lambda tx: checkpoints.load_chain(tx, thread_id))

    # --- retention ---

    def retain(
        self, policy: RetentionPolicy, cursor: RetentionCursor, *, dry_run: bool = False, now: int
    ) -> RetentionPage:
        """Take content from settled work, a piece."""
        run = self._database.read if dry_run else self._database.write
        page = run(lambda tx: retention.step(tx, policy, cursor, dry_run=dry_run, now=now))
        failpoints.hit("retention:after")
        return page

    # --- workers and marks ---

    def deployment_order(self, registry_key: str, *, now: int) -> int:
        """The integer of a registry key."""
        return self._database.write(lambda tx: fleet.deployment_order(tx, registry_key, now=now))

    def worker_seen(self, worker: str, *, host: str, pid: int, now: int) -> None:
        """This worker lives."""
        self._database.write(lambda tx: fleet.seen(tx, worker, host=host, pid=pid, now=now))

    def worker_gone(self, worker: str) -> None:
        """This worker ended in good order."""
        self._database.write(lambda tx: fleet.gone(tx, worker))

    def workers_silent_since(self, instant: int) -> list[tuple[str, str, int]]:
        """Workers not seen since an instant."""
        return self._database.read(lambda tx: fleet.silent_since(tx, instant))

    def old_marks(self, *, before: int, limit: int) -> list[OldMark]:
        """Objects with an old mark."""
        return self._database.read(lambda tx: marks.old(tx, before=before, limit=limit))

    def hint_object_of(self, thread_id: str, *, now: int) -> None:
        """Let the next sweep wake a Thread's object."""
        self._database.write(lambda tx: marks.leave_old_at(tx, thread_id, now=now))

    def objects_of_workers(self, workers: Sequence[str], *, limit: int) -> list[str]:
        """Objects last served by these workers that still need somebody."""
        return self._database.read(lambda tx: marks.of_workers(tx, workers, limit=limit))

    def objects_owed_by(
        self, agents: Sequence[str], *, after: str, limit: int, ready_by: int | None = None
    ) -> list[str]:
        """Objects with input of these agents that waits for no more than a worker."""
        return self._database.read(lambda tx: marks.owed_by(tx, agents, after=after, limit=limit, ready_by=ready_by))

    def read(self, request: ReadRequest) -> ReadAnswer:
        """One read for a client without a database."""
        return self._database.read(lambda tx: reads.answer(tx, request))

    # --- archives (beyond the port: operators only) ---

    def export(self, thread_id: str) -> Iterator[str]:
        """The lines of a Thread's archive, of one moment. Close the iterator, or read it to its end.

        Raises `ThreadNotMaterialized`, `InvalidInput` past 131 072 records or Submissions, `CorruptRecord`.
        """
        with self._database.snapshot() as tx:
            yield from archiving.export(tx, thread_id)

    def import_thread(self, archive: Iterable[str], *, object_id: str | None = None, now: int) -> ArchiveReport:
        """Check an archive, then write it into an empty Thread, in one transaction.

        `archive` gives its lines anew each time it is iterated: it is read once before anything is written and once
        for the writing. `object_id` is the Thread Object that owns the Thread here, the archive's by default. Raises
        `ArchiveRefused`; nothing was changed then.
        """
        checked = check_archive(archive)
        failpoints.hit("import:before")
        try:
            report = self._database.write(
                lambda tx: archiving.write(tx, archive, checked, object_id=object_id, now=now)
            )
        except ArchiveDefect as error:
            raise ArchiveRefused(str(error), reason=error.reason, line=error.line) from error
        failpoints.hit("import:after")
        return report

    def inspect(
        self, request: InspectRequest, *, now: int, retry_contract: RetryContract | None = None
    ) -> InspectAnswer:
        """One question of an operator."""
        return self._database.read(lambda tx: inspections.answer(tx, request, now=now, retry_contract=retry_contract))

    def annotate(self, submission_id: str, batch: Batch) -> bool:
        """Append the audit of a repair that took no claim."""
        encoded = log.encode(batch)
        return self._database.write(lambda tx: recoveries.annotate(tx, submission_id, encoded))

    # --- after a restore (beyond the port: operators only) ---

    def fence_restored(self, *, after: str, limit: int, now: int) -> FencedPage:
        """End every ownership and raise every epoch past a gap, for a page of Threads. Repeating is safe."""
        return self._database.write(lambda tx: restoring.fence(tx, after=after, limit=limit, now=now))

    # --- the plain log (beyond the port: import, verification) ---

    def materialize(self, thread_id: str, epoch: int) -> None:
        """Create the log of a Thread that has rows, or raise its epoch."""
        self._database.write(lambda tx: lanes.materialize(tx, lanes.locked(tx, thread_id), epoch))

    def append_at(self, thread_id: str, batch: Batch, expected: Tail, epoch: int) -> tuple[Tail, bool]:
        """Append at exactly this tail and epoch. Second value True for a replay."""
        encoded = log.encode(batch)
        return self._database.write(lambda tx: log.append_at(tx, thread_id, encoded, expected, epoch))
