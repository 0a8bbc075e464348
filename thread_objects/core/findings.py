"""What one event has found out about its Threads: recoveries, faults, decisions, and whom it still has to look at.

The rows are folded into control views (contract/views.py), so the contract's row predicates are asked of a view.
"""

from __future__ import annotations

from collections.abc import Iterable

from thread_objects.contract.states import Disposition, SubmissionState
from thread_objects.contract.views import Decided, Recovered, RowView, ThreadView
from thread_objects.core.record import MaintenanceRecord

# Something is still to be done without anybody's input while one of these was deferred.
_NOT_A_WAIT = frozenset(("SettleJoinedWithHost", "AwaitChildAdmissionResolution"))
_STABLE = frozenset((SubmissionState.SUSPENDED, SubmissionState.JOINED))


class Findings:
    """Knowledge of one event; nothing here outlives it. All collections are keyed by thread id unless named otherwise.

    `pending`: in the recovery wave and not finished, in wave order. `deferred`: an Attempt ended without a settlement
    since the last checkpoint. `recovered`: wholly recovered in this event, by the wave or by an Attempt.
    """

    __slots__ = (
        "_faults_known",
        "decisions",
        "deferred",
        "faults",
        "pending",
        "recovered",
        "recovered_count",
        "repaired",
        "unfinished",
        "work_retries",
    )

    def __init__(self) -> None:
        self.pending: dict[str, None] = {}
        self.deferred: set[str] = set()
        self.recovered: set[str] = set()
        self.faults: dict[str, int] = {}
        self.decisions: dict[str, dict[str, Decided]] = {}
        self.work_retries: dict[str, int] = {}
        self.unfinished: set[str] = set()
        self.recovered_count = 0
        self.repaired = False
        self._faults_known: set[str] = set()

    # --- learning -----------------------------------------------------------------------------------------------

    def load_faults(self, views: Iterable[ThreadView]) -> None:
        """Retained faults, once per Thread and event: what this event recovered itself is newer than any scan."""
        for view in views:
            if view.thread_id in self._faults_known:
                continue
            self._faults_known.add(view.thread_id)
            if view.fault_retry_at is not None:
                self.faults[view.thread_id] = view.fault_retry_at

    def learn(self, recovered: Recovered) -> None:
        """The result of recovering one Thread, or one page of it."""
        thread_id = recovered.thread_id
        self._faults_known.add(thread_id)
        self.recovered_count += recovered.recovered
        self.repaired = self.repaired or recovered.repaired
        if recovered.decisions:
            known = self.decisions.setdefault(thread_id, {})
            known.update((decided.submission_id, decided) for decided in recovered.decisions)
        if thread_id not in self.unfinished:
            # The first page of another recovery: what an earlier one wanted is outdated.
            self.work_retries.pop(thread_id, None)
        if recovered.retry_at is not None and recovered.fault is None:
            self.work_retries[thread_id] = min(recovered.retry_at, self.work_retries.get(thread_id, recovered.retry_at))
        if recovered.fault is not None:
            self.faults[thread_id] = recovered.fault.retry_at
            self.recovered.discard(thread_id)
        elif recovered.cursor is None:
            self.faults.pop(thread_id, None)
            self.recovered.add(thread_id)
        if recovered.cursor is None or recovered.fault is not None:
            self.unfinished.discard(thread_id)
        else:
            self.unfinished.add(thread_id)

    # --- asking -------------------------------------------------------------------------------------------------

    def uncertain(self, view: ThreadView) -> bool:
        """An unknown row that nobody has looked at in this event: only recovered uncertainty frees later input."""
        thread_id = view.thread_id
        return view.unknown > 0 and (
            thread_id not in self.recovered or thread_id in self.pending or thread_id in self.faults
        )

    def _decided(self, thread_id: str, submission_id: str) -> Decided | None:
        known = self.decisions.get(thread_id)
        return None if known is None else known.get(submission_id)

    def _stable_wait(self, thread_id: str, row: RowView) -> bool:
        decided = self._decided(thread_id, row.submission_id)
        if row.abort_requested:
            return False
        if row.state in _STABLE:
            return decided is None or not _still_to_do(decided)
        # An unknown row without an abort intent is never a head: see `uncertain`.
        return (
            row.state is SubmissionState.ADMITTED
            and decided is not None
            and decided.decision == "AwaitParentEstablishment"
        )

    def waiting(self, view: ThreadView, record: MaintenanceRecord) -> bool:
        """The head waits for something outside: nothing this object does will move it."""
        head, thread_id = view.head, view.thread_id
        if head is None or thread_id in self.pending or thread_id in self.faults:
            return False
        if record.binding_waits and not head.abort_requested:
            wait = record.wait_of(thread_id)
            if wait is not None and wait.submission_id == head.submission_id:
                return True
        return self._stable_wait(thread_id, head)

    def eligible(self, view: ThreadView, record: MaintenanceRecord) -> bool:
        """The head may be dispatched: fresh, or looked at by recovery in this event, and held up by nothing."""
        head, thread_id = view.head, view.thread_id
        if head is None or thread_id in self.pending or thread_id in self.faults or self.uncertain(view):
            return False
        if head.state is SubmissionState.READY:
            # A ready head with an abort intent is cleanup, not dispatch.
            return not head.abort_requested and not self.waiting(view, record)
        return self._reported(thread_id, head) and not self.waiting(view, record)

    def _reported(self, thread_id: str, head: RowView) -> bool:
        # Decisions are listed up to a bound; a whole recovery has looked at every row that was not fresh.
        return thread_id in self.recovered or self._decided(thread_id, head.submission_id) is not None

    def autonomous(self, view: ThreadView, record: MaintenanceRecord) -> bool:
        """Some row of the Thread still has to be moved by this object itself."""
        if view.nonterminal == 0:
            return False
        if self.uncertain(view) or view.busy > 0:
            return True
        if view.head is not None and not self.waiting(view, record):
            return True
        return any(_still_to_do(decided) for decided in self.decisions.get(view.thread_id, {}).values())


def _still_to_do(decided: Decided) -> bool:
    return decided.disposition is Disposition.DEFERRED and decided.decision in _NOT_A_WAIT
