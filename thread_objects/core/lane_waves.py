"""Waves of host lanes, messages and projection: charged first, run within their allowance, then completed.

A wave's end is noted when its fact arrives and completed at the next turn of the event's loop, where the jitter is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thread_objects.contract import limits
from thread_objects.core.backoff import backoff
from thread_objects.core.command import RunLane
from thread_objects.core.config import LaneSpec
from thread_objects.core.due_queue import MESSAGES, PROJECTION, Row
from thread_objects.core.event_state import EventState
from thread_objects.core.refusal import AlarmRefusal


@dataclass(frozen=True, slots=True)
class Wave:
    """A running wave: its charged row and its command. `interrupted`: asked to stop, its failure costs nothing."""

    row: Row
    command: RunLane
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class WaveEnd:
    """How a wave ended: with the next deadline, or with a failure. `stopped`: at a bound that is no failure."""

    wave: Wave
    due_at: int | None
    failure: str | None
    stopped: bool = False


class LaneWaves:
    """At most one wave per lane at a time. `exhausted` lanes start no more waves in this event."""

    __slots__ = ("_ends", "_event", "_projected", "exhausted", "running")

    def __init__(self, event: EventState) -> None:
        self._event = event
        self._ends: list[WaveEnd] = []
        self._projected = False
        self.running: dict[str, Wave] = {}
        self.exhausted: set[str] = set()

    # --- ends -----------------------------------------------------------------------------------------------------

    def ended(self, lane: str, due_at: int | None, failure: str | None, *, stopped: bool = False) -> bool:
        """A wave's fact. False if no wave of that lane runs."""
        wave = self.running.pop(lane, None)
        if wave is None:
            return False
        self._event.end(wave.command)
        self._ends.append(WaveEnd(wave, due_at, failure, stopped))
        return True

    def collect(self, now: int, j: float) -> None:
        """Complete what ended: the next deadline on success, the backoff on failure."""
        event, config = self._event, self._event.config
        ends, self._ends = self._ends, []
        for end in ends:
            row = end.wave.row
            if end.failure is None:
                event.complete(row, end.due_at)
            elif end.stopped or end.wave.interrupted or event.broken or _overdue_projection(end.wave, now):
                # Stopped, not failed: the charge stays and keeps the row away until its floor.
                self.exhausted.add(row.id)
            else:
                self.exhausted.add(row.id)
                event.fail(end.failure)
                delay = backoff(row.stalls, j, base=config.alarm_backoff_base_ms, cap=config.alarm_backoff_cap_ms)
                event.complete(row, now + delay)

    def interrupt(self) -> None:
        """A promptness yield: stop all waves; their rows keep the charge and are no longer observed."""
        for lane, wave in self.running.items():
            self.running[lane] = Wave(wave.row, wave.command, interrupted=True)
            self._event.observed.pop(lane, None)
        self._event.interrupt(wave.command for wave in self.running.values())

    # --- starts ---------------------------------------------------------------------------------------------------

    def start_due(self, now: int) -> None:
        """Start every concurrent lane, the messages and the projection that are due and have no producer."""
        for spec, row in self._due_lanes(now):
            # The longest due go first; whoever finds no room is looked at again when a wave ends.
            if len(self.running) >= limits.LANE_WAVES_MAX:
                break
            self.start(spec, row, now)
        messages = self._startable(MESSAGES, now)
        if messages is not None:
            self._start_messages(messages, now)
        projection = None if self._projected else self._startable(PROJECTION, now)
        if projection is not None:
            self._projected = True
            self._run(projection, limits.PROJECTION_TIMEOUT_MS, now, empty=not self._event.config.projection)

    def _due_lanes(self, now: int) -> list[tuple[LaneSpec, Row]]:
        found = [(spec, self._startable(spec.id, now)) for spec in self._event.lanes.concurrent]
        due = [(spec, row) for spec, row in found if row is not None]
        return sorted(due, key=lambda pair: (pair[1].due_at or 0, pair[0].id))

    def _startable(self, lane: str, now: int) -> Row | None:
        event = self._event
        row = event.state.queue.get(lane)
        if row is None or not row.due(now) or lane in self.running or lane in self.exhausted:
            return None
        return None if event.gate.producing(lane) else row

    def start(self, spec: LaneSpec, row: Row, now: int, *, after_native: bool = False) -> None:
        """Charge and run one wave of a lane, unless its allowance is refused or does not fit."""
        event = self._event
        allowance = spec.allowance()
        if allowance is None:
            self.exhausted.add(spec.id)
            event.fail(AlarmRefusal("host dispatch allowance", f"lane {spec.id}").told())
        elif now + allowance > event.deadline_at:
            self.exhausted.add(spec.id)
        else:
            self._run(row, allowance, now, empty=spec.empty, after_native=after_native)

    def _start_messages(self, row: Row, now: int) -> None:
        event, timeout_ms = self._event, self._event.config.message_timeout_ms
        if timeout_ms is not None and now + timeout_ms > event.deadline_at:
            # The charge stays: a driver that never fits is parked in the end.
            self.exhausted.add(MESSAGES)
            charged = event.charge(row, now)
            if charged is not None:
                event.complete(charged, row.due_at)
        else:
            self._run(row, timeout_ms or limits.LANE_ALLOWANCE_MS_MAX, now, empty=timeout_ms is None)

    def _run(self, row: Row, allowance_ms: int, now: int, *, empty: bool, after_native: bool = False) -> None:
        event = self._event
        charged = event.charge(row, now, after_native=after_native)
        if charged is None:
            return
        if empty:
            event.complete(charged, None)
            return
        command = RunLane(row.id, allowance_ms, min(now + allowance_ms, event.deadline_at))
        self.running[row.id] = Wave(charged, command)
        event.start(command)

    # --- deadlines ------------------------------------------------------------------------------------------------

    def deadlines(self, now: int) -> Iterable[int]:
        """Future deadlines of rows that could start a wave of this loop then."""
        event = self._event
        lanes = {spec.id: spec.allowance() or 1 for spec in event.lanes.concurrent}
        lanes[MESSAGES] = event.config.message_timeout_ms or 1
        if not self._projected:
            lanes[PROJECTION] = 1
        for row in event.state.queue:
            due_at = row.due_at
            if due_at is None or due_at <= now or row.id not in lanes:
                continue
            if row.id in self.running or row.id in self.exhausted or event.gate.producing(row.id):
                continue
            if due_at < event.yield_at and due_at + lanes[row.id] <= event.deadline_at:
                yield due_at


def _overdue_projection(wave: Wave, now: int) -> bool:
    return wave.row.id == PROJECTION and now >= wave.command.deadline_at
