"""One bounded sweep: at most 32 work owners over at most 32 Threads a call, each Thread isolated from the others.

Rules guarded: a Thread that fails is one blocked entry and stops nobody else; what cannot be isolated (the list of
Threads, an interruption) fails the whole sweep. A cursor says that there is more, also where a page found nothing.
"""

from typing import Protocol

from thread_objects.contract import limits
from thread_objects.contract.sweeps import BlockedThread, SweepReport, WorkReport, WorkThreads
from thread_objects.contract.views import Decided, Fault, Recovered
from thread_objects.errors import InvalidInput
from thread_objects.ports import Store

from .cursors import SweepPosition, cursor_after, position_of, sweep_cursor, sweep_position


class RecoverPage(Protocol):
    """Recovers one page of a Thread, from its cursor on, with at most so many owners."""

    def __call__(self, thread_id: str, *, cursor: str | None, owners_max: int, told: list[WorkReport]) -> Recovered:
        """What it found; `told` receives the reports of its owners."""


def run_recovery(
    store: Store, recover: RecoverPage, object_id: str, *, thread_id: str | None = None, cursor: str | None = None
) -> SweepReport:
    """Recover the selected Thread, or all Threads of an object that owe something, as far as one call goes."""
    sweep = _Sweep(recover)
    if thread_id is not None:
        recovered = sweep.recover(thread_id, cursor)
        return sweep.report(recovered.cursor)
    at = SweepPosition("") if cursor is None else sweep_position(object_id, cursor)
    left = sweep.run(at, store.work_threads(object_id, after=at.thread_id, limit=limits.RECOVERY_THREADS_MAX + 1))
    return sweep.report(None if left is None else sweep_cursor(object_id, left))


def discover_work_threads(store: Store, object_id: str, *, after: str | None, limit: int) -> WorkThreads:
    """Threads of an object that owe something, those without any nonterminal Submission too."""
    if not 1 <= limit <= limits.RECOVERY_THREADS_MAX:
        raise InvalidInput(what="work threads", limit="threads", actual=limit, maximum=limits.RECOVERY_THREADS_MAX)
    found = store.work_threads(object_id, after=after, limit=limit + 1)
    return WorkThreads(
        thread_ids=tuple(found[:limit]), after_thread_id=found[limit - 1] if len(found) > limit else None
    )


class _Sweep:
    """One call."""

    def __init__(self, recover: RecoverPage) -> None:
        self._recover = recover
        self._decided: list[Decided] = []
        self._blocked: list[BlockedThread] = []
        self._work: list[WorkReport] = []

    def run(self, at: SweepPosition, behind: list[str]) -> SweepPosition | None:
        """Thread after Thread. Where it stopped, or None when nothing is left."""
        begun = [] if at.inside is None else [at.thread_id]
        threads = [*begun, *behind]
        for number, thread_id in enumerate(threads):
            if number == limits.RECOVERY_THREADS_MAX or self._room() <= 0:
                return at
            cursor = None
            if at.inside is not None and thread_id == at.thread_id:
                cursor = cursor_after(thread_id, at.inside)
            recovered = self.recover(thread_id, cursor)
            if recovered.cursor is not None:
                return SweepPosition(thread_id, position_of(thread_id, recovered.cursor))
            at = SweepPosition(thread_id)
        return None

    def recover(self, thread_id: str, cursor: str | None) -> Recovered:
        """One page of one Thread."""
        recovered = self._recover(thread_id, cursor=cursor, owners_max=self._room(), told=self._work)
        self._decided += recovered.decisions
        if recovered.fault is not None:
            self._blocked.append(_blocked(recovered.fault))
        return recovered

    def report(self, cursor: str | None) -> SweepReport:
        """What this call found and did."""
        return SweepReport(
            reports=tuple(self._decided),
            blocked=tuple(self._blocked),
            work_reports=tuple(self._work),
            cursor=cursor,
        )

    def _room(self) -> int:
        return limits.RECOVERY_OWNERS_MAX - len(self._work)


def _blocked(fault: Fault) -> BlockedThread:
    return BlockedThread(
        thread_id=fault.thread_id, failure=fault.failure, retry_at=fault.retry_at, attempts=fault.attempts
    )
