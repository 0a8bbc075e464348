"""One wave of recovery events: from the last acknowledged one through the last that was there when it was charged.

Rule guarded: an event leaves only after its consumer took it, and nothing behind a failing one is published before it.
A crash between the two repeats the event, unchanged.
"""

from thread_objects.clock import Clock
from thread_objects.contract import limits
from thread_objects.contract.waves import WaveRequest
from thread_objects.extensions import Due, RecoveryEventHandler, WaveContext
from thread_objects.ports import Store

from .handling import Calls, Handling


class EventDelivery:
    """The body of one wave. `Handling.acknowledged` follows every single acknowledgement."""

    def __init__(
        self,
        handler: RecoveryEventHandler | None,
        store: Store,
        clock: Clock,
        handling: Handling,
        request: WaveRequest,
    ) -> None:
        self._handler = handler
        self._store = store
        self._clock = clock
        self._handling = handling
        self._request = request

    def __call__(self, call: Calls, context: WaveContext) -> Due:
        """Publish and acknowledge, in order. With nobody to publish to, everything is acknowledged at once."""
        through = self._request.through
        if self._handler is None:
            self._acknowledge(through)
            return None
        after = self._request.after
        while after < through:
            page = self._store.recovery_events(self._request.object_id, after=after, limit=limits.EVENTS_PAGE)
            due = [event for event in page if event.sequence <= through]
            for event in due:
                context.check()
                call(self._handler.publish, context, event)
                self._acknowledge(event.sequence)
                after = event.sequence
            if len(due) < limits.EVENTS_PAGE:
                # What is missing was acknowledged by a wave whose answer was lost.
                self._handling.acknowledged = through
                break
        return None

    def _acknowledge(self, sequence: int) -> None:
        if sequence > 0:
            self._store.acknowledge_recovery_event(self._request.object_id, sequence, now=self._clock.now())
            self._handling.acknowledged = sequence
