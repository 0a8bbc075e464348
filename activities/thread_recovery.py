"""Recovers one Thread: reads its nonterminal rows page by page, classifies each, executes the decisions.

A Thread that cannot be recovered is isolated: one fault, retried later, nothing settled. Everything here may be
repeated and may run beside a living owner. A Thread whose rows are all fresh costs one read.
"""

from collections.abc import Callable, Sequence

import structlog
from temporalio.exceptions import CancelledError

from thread_objects import failpoints
from thread_objects.clock import Clock
from thread_objects.contract import limits
from thread_objects.contract.states import Disposition, SubmissionState
from thread_objects.contract.sweeps import WorkOwner, WorkReport
from thread_objects.contract.views import Decided, Fault, Recovered
from thread_objects.core.recovery import Permit, Snapshot, classify, tag
from thread_objects.errors import ThreadError
from thread_objects.ports import Duty, RecoveryStart, Store

from .cursors import BEFORE_DUTIES, Position, cursor_after, position_of
from .failure import READ_TRANSCRIPT, recovery_failure
from .repairs import Repairs
from .short_claims import ShortClaims
from .taking_up import run_of
from .transcripts import Transcripts
from .unknown_repair import Reconcilers, RetrySupported, always_supported, no_reconcilers
from .watch import Watch

DECISIONS_TOLD_MAX = 32

log = structlog.get_logger("recovery")


def recover_thread(
    store: Store,
    thread_id: str,
    *,
    producer_id: str,
    attempt_id: str,
    clock: Clock,
    ended_attempts: Sequence[str] = (),
    reconcilers: Reconcilers = no_reconcilers,
    retry_supported: RetrySupported = always_supported,
    permits: set[Permit] | None = None,
    deployment_id: str = "",
    cursor: str | None = None,
    stopping: Callable[[], bool] | None = None,
    owners_max: int = limits.RECOVERY_OWNERS_MAX,
    told: list[WorkReport] | None = None,
    timeout_ms: int = limits.RECOVERY_TIMEOUT_MS,
) -> Recovered:
    """Recover a Thread, whole or until `stopping` answers True between two pages (then with a cursor).

    `attempt_id` is used for recovery's own short claims; give the activity's, so that the lease of one that was
    killed can be superseded. `permits` receives the proofs of reconcilers that a lost call may run; each holds for
    the very next claim of its Thread only. `told` receives a report of each work owner that was looked at, at most
    `owners_max` between two looks at `stopping`. While a stored fault is not due it is answered, nothing else is read.

    A failure is stored as the Thread's fault and answered. It is raised where not even that could be stored,
    as is `InvalidInput` for a cursor that is not of this Thread.
    """
    at = position_of(thread_id, cursor)
    watch = Watch(clock, timeout_ms)
    claims = ShortClaims(
        store,
        watch,
        producer_id=producer_id,
        attempt_id=attempt_id,
        ended_attempts=ended_attempts,
        deployment_id=deployment_id,
    )
    repairs = Repairs(
        claims,
        reconcilers=reconcilers,
        retry_supported=retry_supported,
        permits=set() if permits is None else permits,
    )
    recovery = _Recovery(store, thread_id, watch, repairs, owners_max, [] if told is None else told)
    return recovery.run(at, stopping or (lambda: False))


class _Recovery:
    """One run over a Thread's pages: its rows, then what outlived their Submission."""

    def __init__(
        self,
        store: Store,
        thread_id: str,
        watch: Watch,
        repairs: Repairs,
        owners_max: int,
        told: list[WorkReport],
    ) -> None:
        self._store = store
        self._thread_id = thread_id
        self._watch = watch
        self._repairs = repairs
        self._owners_max = owners_max
        self._told = told
        self._fault: Fault | None = None
        self._decided: list[Decided] = []
        self._begun: list[str] = []
        self._seen = 0
        self._repaired = False
        self._retry_at: int | None = None
        self._event_sequence = 0

    def run(self, at: Position, stopping: Callable[[], bool]) -> Recovered:
        """All pages; a fault is cleared only when the last of them ended clean."""
        try:
            start = self._start(at)
            if start is None:
                return self._answer(fault=self._fault)
            left = self._pages(start, at, stopping)
            if left is None and self._fault is not None and self._fault.operation == READ_TRANSCRIPT:
                self._read_transcript()
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - one Thread's failure is a fact, whatever raised it
            return self._faulted(error)
        if left is None and self._fault is not None:
            failpoints.hit("maintenance:recovery-status:before")
            change = self._store.clear_fault(self._thread_id, now=self._watch.now())
            failpoints.hit("maintenance:recovery-status:after")
            self._event_sequence = change.event_sequence
        return self._answer(cursor=None if left is None else cursor_after(self._thread_id, left))

    def _start(self, at: Position) -> RecoveryStart | None:
        """What to begin with. None while a fault is not due; one instant decides that for both reads."""
        self._watch.reading("read recovery page")
        now = self._watch.now()
        if at == Position():
            start = self._store.recovery_start(self._thread_id, limit=self._owners_max, now=now)
        else:
            # A cursor is given out after a clean page only, so what follows may still clear the fault.
            start = RecoveryStart(self._store.fault(self._thread_id), [], duties=True)
        self._fault = start.fault
        if self._fault is not None and self._fault.retry_at > now:
            return None
        if at.row and at.duty is None:
            return start._replace(page=self._page(at.row))
        return start

    def _page(self, after: int) -> list[Snapshot]:
        return self._store.recovery_page(self._thread_id, after=after, limit=self._owners_max)

    def _pages(self, start: RecoveryStart, at: Position, stopping: Callable[[], bool]) -> Position | None:
        """Recover page after page. A place when it stopped between two of them."""
        if at.duty is not None:
            return self._duty_pages(at.duty, self._owners_max, stopping)
        page = start.page
        while True:
            for snapshot in page:
                self._recover(snapshot)
            if len(page) < self._owners_max:
                break
            after = page[-1].queue_sequence
            if stopping():
                return Position(row=after)
            self._watch.restart()
            self._watch.reading("read recovery page")
            page = self._page(after)
        return self._duty_pages(BEFORE_DUTIES, self._owners_max - len(page), stopping) if start.duties else None

    def _duty_pages(self, after: tuple[int, str], room: int, stopping: Callable[[], bool]) -> Position | None:
        """Serve the duties of settled Submissions; those of the others are their rows' own."""
        pages = 0
        while True:
            self._watch.reading("read work inventory")
            items = self._store.duties(self._thread_id, after=after, limit=limits.WORK_PAGE_ENTRIES)
            pages += 1
            for item in items:
                if item.settled and room == 0:
                    break
                if item.settled:
                    self._serve(item)
                    room -= 1
                after = (item.queue_sequence, item.call_id)
            else:
                if len(items) < limits.WORK_PAGE_ENTRIES:
                    return None
            if room == 0 or pages == limits.WORK_PAGES_MAX:
                if stopping():
                    return Position(duty=after)
                self._watch.restart()
                room, pages = self._owners_max, 0

    def _recover(self, snapshot: Snapshot) -> None:
        evidence = self._repairs.read_evidence(snapshot)
        self._watch.read()
        decision = classify(snapshot, evidence)
        disposition = self._repairs.execute(snapshot, evidence, decision)
        self._note(disposition)
        sid = snapshot.submission_id
        if snapshot.state is SubmissionState.INPUT_APPLIED and self._fault is not None:
            self._begun.append(sid)
        if len(self._decided) < DECISIONS_TOLD_MAX:
            self._decided.append(Decided(submission_id=sid, decision=tag(decision), disposition=disposition))
        self._tell(_owner_of(snapshot), sid, sid, disposition)

    def _serve(self, item: Duty) -> None:
        disposition = self._repairs.serve(item)
        self._note(disposition)
        retry_at = None
        if disposition is Disposition.DEFERRED:
            retry_at = self._watch.now() + limits.WORK_RETRY_MS
            self._retry_at = retry_at if self._retry_at is None else min(self._retry_at, retry_at)
        self._tell(item.owner, f"{item.submission_id}:{item.call_id}", item.submission_id, disposition, retry_at)

    def _note(self, disposition: Disposition) -> None:
        self._seen += 1
        self._repaired = self._repaired or disposition is Disposition.REPAIRED

    def _tell(
        self, owner: WorkOwner, work: str, submission_id: str, disposition: Disposition, retry_at: int | None = None
    ) -> None:
        self._told.append(
            WorkReport(
                thread_id=self._thread_id,
                work_id=f"{owner.value}:{work}",
                owner=owner,
                disposition=disposition,
                submission=submission_id,
                retry_at_millis=retry_at,
            )
        )

    def _read_transcript(self) -> None:
        """A fault of reading the conversation is over when it reads, not when the rows are in order.

        Raises `CorruptRecord`, which is the same fault once more.
        """
        self._watch.reading(READ_TRANSCRIPT)
        transcript = Transcripts().read(self._store, self._thread_id)
        for submission_id in self._begun:
            run_of(transcript, self._thread_id, submission_id)

    def _faulted(self, error: Exception) -> Recovered:
        failure = recovery_failure(error, self._watch)
        failpoints.hit("maintenance:recovery-status:before")
        try:
            change = self._store.record_fault(self._thread_id, failure, now=self._watch.now())
        except ThreadError:
            # What failed first says more than that it could not be kept.
            raise error from None
        failpoints.hit("maintenance:recovery-status:after")
        self._event_sequence = change.event_sequence
        fault = change.fault
        if fault is not None and fault.attempts == 1:
            log.error(
                "recovery failed",
                thread_id=self._thread_id,
                phase=failure.phase,
                reason=failure.reason,
                error_tag=failure.error_tag,
                operation=failure.operation,
                causes=failure.causes,
            )
        self._seen += 1
        return self._answer(fault=fault)

    def _answer(self, *, fault: Fault | None = None, cursor: str | None = None) -> Recovered:
        return Recovered(
            thread_id=self._thread_id,
            recovered=self._seen,
            repaired=self._repaired,
            decisions=tuple(self._decided),
            fault=fault,
            retry_at=self._retry_at if fault is None else fault.retry_at,
            cursor=cursor,
            event_sequence=self._event_sequence,
        )


def _owner_of(snapshot: Snapshot) -> WorkOwner:
    waiting = (SubmissionState.ADMITTED, SubmissionState.READY, SubmissionState.JOINING)
    return WorkOwner.ADMISSION if snapshot.state in waiting else WorkOwner.OPERATION
