"""Recovers one Thread: reads its nonterminal rows page by page, classifies each, executes the decisions.

A Thread that cannot be recovered is isolated: one fault, retried later, nothing settled. Everything here may be
repeated and may run beside a living owner. A Thread whose rows are all fresh costs one read.
"""

import json
from collections.abc import Callable, Sequence

import structlog
from temporalio.exceptions import CancelledError

from thread_objects import failpoints
from thread_objects.clock import Clock
from thread_objects.contract import limits
from thread_objects.contract.states import Disposition
from thread_objects.contract.views import Decided, Fault, Recovered
from thread_objects.core.recovery import Permit, Snapshot, classify, tag
from thread_objects.errors import InvalidInput, ThreadError
from thread_objects.ports import Store

from .failure import recovery_failure
from .repairs import Repairs
from .short_claims import ShortClaims, read_evidence
from .unknown_repair import Reconcilers, RetrySupported, always_supported, no_reconcilers
from .watch import Watch

DECISIONS_TOLD_MAX = 32
_CURSOR_VERSION = 1

log = structlog.get_logger("recovery")


def cursor_after(thread_id: str, queue_sequence: int) -> str:
    """Where to go on with a Thread's recovery. Opaque to everybody else."""
    return json.dumps([_CURSOR_VERSION, thread_id, queue_sequence])


def cursor_position(thread_id: str, cursor: str | None) -> int:
    """The queue sequence that a cursor of this Thread stands behind. Refuses every other cursor."""
    if cursor is None:
        return 0
    if len(cursor) > limits.RECOVERY_CURSOR_CHARS_MAX:
        raise InvalidInput(what="recovery cursor", actual=len(cursor), maximum=limits.RECOVERY_CURSOR_CHARS_MAX)
    try:
        version, owner, after = json.loads(cursor)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(what="recovery cursor") from error
    if version != _CURSOR_VERSION or owner != thread_id or type(after) is not int or after < 0:
        raise InvalidInput(what="recovery cursor")
    return after


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
    timeout_ms: int = limits.RECOVERY_TIMEOUT_MS,
) -> Recovered:
    """Recover a Thread, whole or until `stopping` answers True between two pages (then with a cursor).

    `attempt_id` is used for recovery's own short claims; give the activity's, so that the lease of one that was
    killed can be superseded. `permits` receives the proofs of reconcilers that a lost call may run; each holds for
    the very next claim of its Thread only. While a stored fault is not due it is answered and nothing else is read.

    A failure is stored as the Thread's fault and answered. It is raised where not even that could be stored,
    as is `InvalidInput` for a cursor that is not of this Thread.
    """
    after = cursor_position(thread_id, cursor)
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
    return _Recovery(store, thread_id, watch, repairs).run(after, stopping or (lambda: False))


class _Recovery:
    """One run over a Thread's pages."""

    def __init__(self, store: Store, thread_id: str, watch: Watch, repairs: Repairs) -> None:
        self._store = store
        self._thread_id = thread_id
        self._watch = watch
        self._repairs = repairs
        self._fault: Fault | None = None
        self._decided: list[Decided] = []
        self._seen = 0
        self._told = 0
        self._repaired = False

    def run(self, after: int, stopping: Callable[[], bool]) -> Recovered:
        """All pages; a fault is cleared only when the last of them ended clean."""
        try:
            page = self._first_page(after)
            if page is None:
                return self._answer(fault=self._fault)
            cursor = self._pages(page, stopping)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - one Thread's failure is a fact, whatever raised it
            return self._faulted(error)
        if cursor is None and self._fault is not None:
            failpoints.hit("maintenance:recovery-status:before")
            self._told = self._store.clear_fault(self._thread_id, now=self._watch.now()).event_sequence
            failpoints.hit("maintenance:recovery-status:after")
        return self._answer(cursor=cursor)

    def _first_page(self, after: int) -> list[Snapshot] | None:
        """The page to begin with. None while a fault is not due; one instant decides that for both reads."""
        self._watch.reading("read recovery page")
        now, limit = self._watch.now(), limits.RECOVERY_OWNERS_MAX
        page: list[Snapshot] = []
        if after == 0:
            self._fault, page = self._store.recovery_start(self._thread_id, limit=limit, now=now)
        else:
            # A cursor is given out after a clean page only, so what follows may still clear the fault.
            self._fault = self._store.fault(self._thread_id)
        if self._fault is not None and self._fault.retry_at > now:
            return None
        return self._store.recovery_page(self._thread_id, after=after, limit=limit) if after else page

    def _pages(self, page: list[Snapshot], stopping: Callable[[], bool]) -> str | None:
        """Recover page after page. A cursor when it stopped between two of them."""
        while True:
            for snapshot in page:
                self._recover(snapshot)
            if len(page) < limits.RECOVERY_OWNERS_MAX:
                return None
            after = page[-1].queue_sequence
            if stopping():
                return cursor_after(self._thread_id, after)
            self._watch.restart()
            self._watch.reading("read recovery page")
            page = self._store.recovery_page(self._thread_id, after=after, limit=limits.RECOVERY_OWNERS_MAX)

    def _recover(self, snapshot: Snapshot) -> None:
        evidence = read_evidence(self._store, snapshot, self._watch)
        decision = classify(snapshot, evidence)
        disposition = self._repairs.execute(snapshot, evidence, decision)
        self._seen += 1
        self._repaired = self._repaired or disposition is Disposition.REPAIRED
        if len(self._decided) < DECISIONS_TOLD_MAX:
            told = Decided(submission_id=snapshot.submission_id, decision=tag(decision), disposition=disposition)
            self._decided.append(told)

    def _faulted(self, error: Exception) -> Recovered:
        failure = recovery_failure(error, self._watch)
        failpoints.hit("maintenance:recovery-status:before")
        try:
            change = self._store.record_fault(self._thread_id, failure, now=self._watch.now())
        except ThreadError:
            # What failed first says more than that it could not be kept.
            raise error from None
        failpoints.hit("maintenance:recovery-status:after")
        self._told = change.event_sequence
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
            retry_at=None if fault is None else fault.retry_at,
            cursor=cursor,
            event_sequence=self._told,
        )
