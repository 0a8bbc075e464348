"""Watches a drive from beside it: aborts, the lease, deadlines, and requests to hand back.

Rules guarded: an abort is canonical before the Run is interrupted, and interrupts it within about a second; a
running `uncertain` handler is not abandoned for a yield; nothing waits for ever for what does not come.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from thread_objects.agents.binding import Completed
from thread_objects.agents.transcript import RunLog
from thread_objects.contract import limits
from thread_objects.errors import FenceRejected, OwnershipLost, StoreUnavailable
from thread_objects.ports import AbortIntent, Store

from .commits import Commits
from .control import Control
from .run_journal import RunJournal


class Reason(Enum):
    """Why a drive was told to end."""

    ABORT = auto()
    HAND_BACK = auto()
    """Yield, shutdown, or a cancellation without an abort."""
    DEADLINE = auto()
    """The Run's own time is over."""
    OVERRUN = auto()
    """The Attempt's time is over."""
    LOST = auto()
    """Somebody else owns the Submission."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often to look, and how long to wait. Defaults are the contract's, graces are the port's own."""

    abort_poll_ms: int = limits.ABORT_POLL_MS
    renewal_ms: int = limits.LEASE_RENEWAL_MS
    interrupt_grace_ms: int = 500
    """For a drive to unwind after it was cancelled."""
    tool_grace_ms: int = 20_000
    """For running `uncertain` handlers before the work is handed back all the same."""
    margin_ms: int = 10_000
    """Before the Attempt's deadline, for handing back."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a drive ended: with `completed`, with `error`, or told by `reason` (and then perhaps without either)."""

    reason: Reason | None
    completed: Completed | None = None
    error: BaseException | None = None
    abort: AbortIntent | None = None


class Supervisor:
    """One drive under watch. Lives on the Attempt's event loop."""

    def __init__(
        self,
        journal: RunJournal,
        commits: Commits,
        run: RunLog,
        control: Control,
        store: Store,
        pace: Pace,
        *,
        attempt_deadline_at: int,
    ) -> None:
        self._journal = journal
        self._commits = commits
        self._run = run
        self._control = control
        self._store = store
        self._pace = pace
        self._run_deadline_at = run.deadline_at
        self._attempt_ends_at = attempt_deadline_at - pace.margin_ms
        self._renew_at = commits.now() + pace.renewal_ms
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Future[Reason] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._abort: AbortIntent | None = None

    async def watch(self, drive: Coroutine[Any, Any, Completed]) -> Ending:
        """Run the drive to its end, or to what it is told."""
        task = self._loop.create_task(drive)
        self._control.attach(self._wake)
        self._schedule()
        try:
            await asyncio.wait((task, self._told), return_when=asyncio.FIRST_COMPLETED)
            reason = None if task.done() or not self._told.done() else self._told.result()
            if reason is not None:
                reason = await self._wind_down(task, reason)
        finally:
            self._control.attach(None)
            if self._timer is not None:
                self._timer.cancel()
        return self._ending(task, reason)

    def _ending(self, task: "asyncio.Task[Completed]", reason: Reason | None) -> Ending:
        if not task.done() or task.cancelled():
            unwound = asyncio.CancelledError() if task.done() else None
            return Ending(reason, error=unwound, abort=self._abort)
        error = task.exception()
        return Ending(reason, None if error else task.result(), error, self._abort)

    # --- looking ---------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        now = self._commits.now()
        self._control.alive(self._journal.patience_s() + self._pace.abort_poll_ms / 1_000)
        ahead = [at - now for at in (self._run_deadline_at, self._attempt_ends_at) if at is not None and at > now]
        delay_ms = min([self._pace.abort_poll_ms, *ahead])
        self._timer = self._loop.call_later(delay_ms / 1_000, self._tick)

    def _tick(self) -> None:
        try:
            self._check(self._commits.now())
        finally:
            self._schedule()

    def _check(self, now: int) -> None:
        if self._aborted():
            self._tell(Reason.ABORT)
        elif now >= self._attempt_ends_at:
            self._tell(Reason.OVERRUN)
        elif self._run_deadline_at is not None and now >= self._run_deadline_at:
            self._tell(Reason.DEADLINE)
        elif now >= self._renew_at:
            self._renew(now)

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Somebody told the Attempt to look."""
        self._tell(Reason.ABORT if self._aborted() else Reason.HAND_BACK)

    def _aborted(self) -> bool:
        if self._abort is None:
            try:
                self._abort = self._store.abort_intent(self._commits.claim.submission_id)
            except StoreUnavailable:
                return False  # the next look will tell
        return self._abort is not None

    def _renew(self, now: int) -> None:
        try:
            self._commits.renew()
        except (OwnershipLost, FenceRejected):
            self._tell(Reason.LOST)
        except StoreUnavailable:
            self._renew_at = now + self._pace.abort_poll_ms
        else:
            self._renew_at = now + self._pace.renewal_ms

    def _tell(self, reason: Reason) -> None:
        if not self._told.done():
            self._told.set_result(reason)

    # --- ending ------------------------------------------------------------------------------------------------------

    async def _wind_down(self, task: "asyncio.Task[Completed]", reason: Reason) -> Reason:
        """Bring the drive to its end. The reason may grow graver on the way: an abort may come while waiting."""
        if reason in (Reason.HAND_BACK, Reason.DEADLINE, Reason.OVERRUN):
            reason = await self._let_finish(task, reason)
        if reason is Reason.ABORT and self._abort is not None and not task.done():
            try:
                self._commits.request_abort(self._run, self._abort)
            except (OwnershipLost, FenceRejected):
                reason = Reason.LOST
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=self._pace.interrupt_grace_ms / 1_000)
        return reason

    async def _let_finish(self, task: "asyncio.Task[Completed]", reason: Reason) -> Reason:
        """Wait while an `uncertain` handler's result would be lost; the drive stops itself at its next boundary."""
        self._journal.stopping = True
        left_ms = self._pace.tool_grace_ms if reason is not Reason.OVERRUN else self._pace.margin_ms // 2
        self._told = self._loop.create_future()
        while self._journal.owing() and left_ms > 0:
            step_ms = min(left_ms, 50)
            await asyncio.wait((task, self._told), timeout=step_ms / 1_000, return_when=asyncio.FIRST_COMPLETED)
            left_ms -= step_ms
            if task.done():
                break
            if self._told.done():
                graver = self._told.result()
                if graver in (Reason.ABORT, Reason.LOST):
                    return graver
                self._told = self._loop.create_future()
        return reason
