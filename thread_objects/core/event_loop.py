"""The loop of one event: native steps, Attempts, recovery and lane waves side by side, then their end in order.

LOOP   until quiet, yield or failure
JOIN   nothing new; what was admitted ends
FINAL  one checkpoint step without dispatch, if an Attempt ended or recovery is owed its checkpoint
AFTER  the after-native phase
DONE   everything was joined
"""

from __future__ import annotations

from enum import Enum, auto

from thread_objects.core.after_native import AfterNative
from thread_objects.core.due_queue import PUBLICATION
from thread_objects.core.event_state import EventState
from thread_objects.core.lane_waves import LaneWaves
from thread_objects.core.native_step import Answer, NativeSteps, Step
from thread_objects.core.recovery_wave import RecoveryWave
from thread_objects.core.refusal import AlarmRefusal

PASS_DEADLINE = AlarmRefusal("maintenance pass deadline").told()


class Phase(Enum):
    """Where the event stands."""

    LOOP = auto()
    JOIN = auto()
    FINAL = auto()
    AFTER = auto()
    DONE = auto()


class EventLoop:
    """Decides at every look what starts, what goes on and when the event is over."""

    __slots__ = (
        "_after",
        "_again_at",
        "_event",
        "_first",
        "_lanes_valid",
        "_seen_revision",
        "_steps",
        "_wave",
        "_waves",
        "last",
        "observed_generation",
        "phase",
        "restart",
        "was_actionable",
    )

    def __init__(self, event: EventState, wave: RecoveryWave, steps: NativeSteps, waves: LaneWaves, now: int) -> None:
        self._event = event
        self._wave = wave
        self._steps = steps
        self._waves = waves
        self._after: AfterNative | None = None
        self._again_at: int | None = None
        self._lanes_valid = True
        self.phase = Phase.LOOP
        self.restart = True
        self.last: Answer | None = None
        self.was_actionable = False
        # The revision before the queue: a change in between then wakes once too often, never once too seldom.
        self._seen_revision = event.gate.revision
        self._first = event.begin(now)
        self.observed_generation = self._first.generation
        event.observe()

    def run(self, now: int, j: float) -> None:
        """Look until nothing more can be done at this instant."""
        event = self._event
        if event.running and now >= event.deadline_at and not event.broken:
            event.break_off(PASS_DEADLINE)
        while self._turn(now, j):
            pass

    def wake_at(self, now: int) -> int | None:
        """The next instant at which another look could start something."""
        event = self._event
        instants: list[int] = []
        if self.phase is Phase.LOOP and not event.closed:
            instants.extend(self._waves.deadlines(now))
            if self._slot_free():
                publication = event.state.queue.get(PUBLICATION)
                if publication is not None and publication.due_at is not None:
                    instants.append(publication.due_at)
                if self._again_at is not None:
                    instants.append(self._again_at)
            instants = [instant for instant in instants if now < instant < event.yield_at]
        elif self.phase is Phase.AFTER and self._after is not None:
            instants.extend(self._after.deadlines(now))
        return min(instants, default=None)

    # --- turns --------------------------------------------------------------------------------------------------

    def _turn(self, now: int, j: float) -> bool:
        """One look at the event. True when another look may find more to do."""
        self._waves.collect(now, j)
        if self.phase is Phase.LOOP:
            return self._loop(now, j)
        if self.phase is Phase.JOIN:
            return self._join(now, j)
        if self.phase is Phase.FINAL:
            return self._final(now, j)
        if self.phase is Phase.AFTER and self._after is not None:
            if self._event.broken or not self._after.turn(now):
                self.phase = Phase.AFTER if self._event.running else Phase.DONE
            return False
        return False

    def _loop(self, now: int, j: float) -> bool:
        event = self._event
        if now >= event.yield_at:
            event.closed = True
        if not event.broken:
            self._validate()
        if event.broken:
            self.phase = Phase.JOIN
            return True
        self._resume(now, j)
        if event.closed:
            self.phase = Phase.JOIN
            return True
        self._waves.start_due(now)
        # Quiet before another step: the end of the only Attempt normally ends the event.
        if self.last is None and self._steps.step is None:
            self._start_step(now)
        elif self._quiet():
            self.phase = Phase.JOIN
        elif self._step_wanted(now):
            self._start_step(now)
        elif not event.running:
            # Only a checkpoint is owed, and the barrier holds it back: the next event's matter.
            self.phase = Phase.JOIN
        else:
            return False
        return True

    def _validate(self) -> None:
        try:
            self._event.lanes.check(self._event.state.queue)
        except AlarmRefusal as refusal:
            self._lanes_valid = False
            self._event.break_off(refusal.told())

    def _quiet(self) -> bool:
        """Nothing runs and nothing is owed its checkpoint. Hints are not work."""
        return not (self._event.running or self._steps.step or self._wave.checkpoint_owed)

    def _slot_free(self) -> bool:
        return self._steps.step is None and len(self._event.attempts) < self._event.config.native_slots

    def _step_wanted(self, now: int) -> bool:
        if not self._slot_free():
            return False
        event = self._event
        publication = event.state.queue.get(PUBLICATION)
        return (
            self.restart
            or event.gate.revision != self._seen_revision
            or (self._again_at is not None and self._again_at <= now)
            or (publication is not None and publication.due(now))
        )

    def _start_step(self, now: int, *, final: bool = False) -> None:
        event = self._event
        self.restart = False
        self._again_at = None
        self._seen_revision = event.gate.revision
        after_attempts = event.ended_since and not event.attempts
        after_recovery = self._wave.checkpoint_owed and (self._wave.fresh or not event.attempts)
        self._wave.fresh = False
        checkpoint = final or after_attempts or after_recovery
        begin = self._first
        if self.last is not None and not checkpoint:
            begin = event.begin(now)
            self.observed_generation = begin.generation
        dispatch = not final and not after_attempts and not (after_recovery and event.settled > 0)
        self._steps.step = Step(begin, checkpoint=checkpoint, dispatch=dispatch, reserved=frozenset(event.attempts))

    def _resume(self, now: int, j: float) -> bool:
        """Let the running step go on. True when it ended."""
        answer = self._steps.resume(now, j)
        if answer is None:
            return False
        self.last = answer
        self._again_at = answer.again_at
        self.restart = self.restart or answer.left_room
        self.was_actionable = self.was_actionable or answer.actionable
        if self.phase is Phase.LOOP:
            self._event.native_only = bool(self._event.attempts)
        return True

    def _join(self, now: int, j: float) -> bool:
        event = self._event
        if event.broken:
            self._steps.step = None
        self._resume(now, j)
        if event.running or self._steps.step is not None:
            return False
        if event.broken or event.failures:
            if not event.broken:
                event.native_only = False
            return self._enter_after(now)
        event.native_only = False
        if event.ended_since or self._wave.checkpoint_owed:
            self.phase = Phase.FINAL
            event.native_only = True
            self._start_step(now, final=True)
            return True
        return self._enter_after(now)

    def _final(self, now: int, j: float) -> bool:
        if self._event.broken:
            self._steps.step = None
        elif not self._resume(now, j):
            return False
        return False if self._event.running else self._enter_after(now)

    def _enter_after(self, now: int) -> bool:
        if not self._lanes_valid or now >= self._event.deadline_at:
            self.phase = Phase.DONE
            return False
        self.phase = Phase.AFTER
        # A broken loop is joined; what follows is a phase of its own.
        self._event.broken = False
        self._after = AfterNative(self._event, self._waves, now)
        return True
