"""The recovery wave: old Threads of one event, recovered one at a time beside dispatch.

It runs once per event. A Thread's pages follow one another by cursor; the cursor outlives the event.
"""

from __future__ import annotations

from thread_objects.contract import limits
from thread_objects.contract.views import Recovered
from thread_objects.core.command import RecoverThread
from thread_objects.core.event_state import EventState


class RecoveryWave:
    """`enrolled` once the event's first native step selected, or ended before it: then the wave stays empty.

    `checkpoint_owed` from the end of a wave that had work to the next checkpoint; `fresh` until the step after it.
    `stamp`: the generation at which the open page started, None when a mutation was active then.
    """

    __slots__ = ("_event", "checkpoint_owed", "current", "enrolled", "fresh", "stamp")

    def __init__(self, event: EventState) -> None:
        self._event = event
        self.enrolled = False
        self.checkpoint_owed = False
        self.fresh = False
        self.stamp: int | None = None
        self.current: RecoverThread | None = None

    @property
    def running(self) -> bool:
        """A Thread's recovery is open."""
        return self.current is not None

    def enrol(self, thread_ids: tuple[str, ...], now: int) -> None:
        """These Threads are pending from now on; the first one starts."""
        self.enrolled = True
        self._event.findings.pending = dict.fromkeys(thread_ids)
        if thread_ids:
            self._next(now)

    def take(self, command: RecoverThread, recovered: Recovered, now: int) -> bool:
        """The open page ended. True when its Thread is done with."""
        event = self._event
        self.current = None
        keep_cursor(event, recovered)
        more = recovered.cursor is not None and recovered.fault is None and recovered.cursor != command.cursor
        if more and not event.closed and now < event.deadline_at:
            self._recover(command.thread_id, now)
            return False
        event.findings.pending.pop(command.thread_id, None)
        self._next(now)
        return True

    def drop(self) -> None:
        """The running page failed: the event is over, its Thread stays pending."""
        self.current = None

    def _next(self, now: int) -> None:
        event = self._event
        thread_id = next(iter(event.findings.pending), None)
        if thread_id is None or event.closed or now >= event.deadline_at:
            self.checkpoint_owed = self.fresh = True
            return
        with event.state.transaction() as tx:
            tx.record = tx.record.with_(last_recovered_thread_id=thread_id)
        self._recover(thread_id, now)

    def _recover(self, thread_id: str, now: int) -> None:
        event = self._event
        deadline_at = min(now + limits.RECOVERY_TIMEOUT_MS, event.deadline_at)
        self.current = RecoverThread(thread_id, event.state.work_cursors.get(thread_id), deadline_at)
        self.stamp = event.sighting.stamp()
        event.start(self.current)


def keep_cursor(event: EventState, recovered: Recovered) -> None:
    """Store a Thread's work cursor, or delete it when there is nothing behind it."""
    cursor = recovered.cursor
    if cursor is None or len(cursor) > limits.RECOVERY_CURSOR_CHARS_MAX:
        event.state.work_cursors.pop(recovered.thread_id, None)
    else:
        event.state.work_cursors[recovered.thread_id] = cursor
