"""The after-native phase: slow lanes, two at a time, once native work is joined.

It gives way to work that shows up meanwhile: a due row outside the phase whose revision is not known interrupts its
waves, and the pass ends in good order.
"""

from __future__ import annotations

from collections.abc import Iterable

from thread_objects.contract import limits
from thread_objects.core.config import LaneSpec
from thread_objects.core.due_queue import Row
from thread_objects.core.event_state import EventState
from thread_objects.core.lane_waves import LaneWaves
from thread_objects.core.selection import rotate


class AfterNative:
    """One wave per lane, from one reading of the queue at the start of the phase."""

    __slots__ = ("_event", "_inside", "_queue", "_waves", "yielded")

    def __init__(self, event: EventState, waves: LaneWaves, now: int) -> None:
        self._event = event
        self._waves = waves
        self.yielded = False
        event.know()
        specs = {spec.id: spec for spec in event.lanes.after_native}
        self._inside = frozenset(specs)
        self._queue: list[tuple[LaneSpec, Row]] = []
        for lane in rotate(specs, event.state.record.last_after_native_lane_id):
            row = event.state.queue.get(lane)
            if row is not None and row.due(now) and not event.gate.producing(lane):
                self._queue.append((specs[lane], row))

    def turn(self, now: int) -> bool:
        """Start what may start, or give way. True while waves run."""
        waves = self._waves
        if not self.yielded and any(True for _ in self._unknown_due(now)):
            self.yielded = True
            self._queue.clear()
            waves.interrupt()
        while self._queue and len(waves.running) < limits.AFTER_NATIVE_SLOTS:
            spec, row = self._queue.pop(0)
            waves.start(spec, row, now, after_native=True)
        return bool(waves.running)

    def _unknown_due(self, now: int) -> Iterable[Row]:
        return (row for row in self._strangers() if row.due(now))

    def _strangers(self) -> Iterable[Row]:
        event = self._event
        for row in event.state.queue:
            unknown = event.known.get(row.id) != row.revision
            if unknown and row.id not in self._inside and not event.gate.producing(row.id):
                yield row

    def deadlines(self, now: int) -> Iterable[int]:
        """Future deadlines of rows that would make the phase give way."""
        if not self.yielded and self._waves.running:
            for row in self._strangers():
                if row.due_at is not None and row.due_at > now:
                    yield row.due_at
