"""One event: a pass from its begin to its alarm decision, as a machine without clock, task or await.

The shell calls `advance` after every fact and at `wake_at`, starts the commands it answers, and reports how each of
them ended. When `done`, `finish` makes the alarm decision. Phases:

    LOOP   native steps, Attempts, the recovery wave and lane waves side by side, until quiet, yield or failure
    JOIN   nothing new; what was admitted ends
    FINAL  one checkpoint step without dispatch, if an Attempt ran or recovery is owed its checkpoint
    AFTER  the after-native phase
    DONE   only `finish` is left
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from thread_objects.contract import limits
from thread_objects.contract.activities import AttemptAnswer, RecoverAnswer
from thread_objects.contract.states import AlarmOutcome, PassPhase
from thread_objects.contract.views import Registry
from thread_objects.contract.views import Survey as SurveyView
from thread_objects.core import certification
from thread_objects.core.after_native import AfterNative
from thread_objects.core.command import AttemptThread, Cancel, Command, Publish, RecoverThread, RunLane, Survey
from thread_objects.core.due_queue import NATIVE, PUBLICATION
from thread_objects.core.event_state import EventState
from thread_objects.core.lane_waves import LaneWaves
from thread_objects.core.native_step import Answer, NativeSteps, Step
from thread_objects.core.record import BindingWait
from thread_objects.core.recovery_wave import RecoveryWave, keep_cursor
from thread_objects.core.refusal import AlarmRefusal

if TYPE_CHECKING:
    from thread_objects.core.maintenance import Maintenance

__all__ = [
    "AttemptThread",
    "Cancel",
    "Command",
    "Event",
    "PassReport",
    "Publish",
    "RecoverThread",
    "RunLane",
    "Survey",
]

PASS_DEADLINE = AlarmRefusal("maintenance pass deadline").told()

# What an Attempt committed when it ended like this is new to the object; the others changed nothing.
_PROGRESS = frozenset(("settled", "suspended", "unknown", "yielded"))


class Phase(Enum):
    """Where the event stands."""

    LOOP = auto()
    JOIN = auto()
    FINAL = auto()
    AFTER = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class PassReport:
    """What a pass saw and left behind. `parked`: labels of lanes parked since the last report."""

    phase: PassPhase
    recovered: int
    settled: int
    nonterminal: int
    alarm: AlarmOutcome
    failure: str | None = None
    parked: tuple[str, ...] = ()
    newly_unbound: tuple[BindingWait, ...] = ()


class Event:
    """One pass of a `Maintenance`; made by `Maintenance.begin_event`, over with `finish`."""

    __slots__ = (
        "_after",
        "_again_at",
        "_event",
        "_finished",
        "_first",
        "_lanes_valid",
        "_last",
        "_maintenance",
        "_now",
        "_observed_generation",
        "_phase",
        "_restart",
        "_seen_revision",
        "_steps",
        "_unbound",
        "_was_actionable",
        "_wave",
        "_waves",
    )

    def __init__(self, maintenance: Maintenance, now: int) -> None:
        self._maintenance = maintenance
        event = EventState(maintenance.state, maintenance.gate, maintenance.sighting, maintenance.config, now)
        self._event = event
        self._wave = RecoveryWave(event)
        self._steps = NativeSteps(event, self._wave)
        self._waves = LaneWaves(event)
        self._after: AfterNative | None = None
        self._phase = Phase.LOOP
        self._now = now
        self._restart = True
        self._again_at: int | None = None
        self._last: Answer | None = None
        self._was_actionable = False
        self._finished = False
        self._lanes_valid = True
        self._unbound: list[BindingWait] = []
        # The revision before the queue: a change in between then wakes once too often, never once too seldom.
        self._seen_revision = event.gate.revision
        self._first = event.begin(now)
        self._observed_generation = self._first.generation
        event.observe()

    # --- the shell's view ---------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Everything was joined; only `finish` is left."""
        return self._phase is Phase.DONE

    @property
    def started_at(self) -> int:
        """When the event began."""
        return self._event.started_at

    @property
    def yield_at(self) -> int:
        """From then on nothing is admitted, and Attempts come to a Turn boundary."""
        return self._event.yield_at

    @property
    def deadline_at(self) -> int:
        """The end of everything this event started."""
        return self._event.deadline_at

    def stop_admission(self) -> None:
        """From now on as at the yield deadline: nothing new starts, what runs is joined."""
        self._event.closed = True

    def wake_at(self) -> int | None:
        """The next instant at which `advance` could start something. None: only a fact or a gate change can."""
        event, now = self._event, self._now
        instants: list[int] = []
        if self._phase is Phase.LOOP and not event.closed:
            instants.extend(self._waves.deadlines(now))
            if self._slot_free():
                publication = event.state.queue.get(PUBLICATION)
                if publication is not None and publication.due_at is not None:
                    instants.append(publication.due_at)
                if self._again_at is not None:
                    instants.append(self._again_at)
            instants = [instant for instant in instants if now < instant < event.yield_at]
        elif self._phase is Phase.AFTER and self._after is not None:
            instants.extend(self._after.deadlines(now))
        return min(instants, default=None)

    def advance(self, now: int, j: float) -> list[Command]:
        """Everything that may start now. Call after every fact, gate change and deadline; repeating is harmless."""
        self._now = now
        event = self._event
        if event.running and now >= event.deadline_at and not event.broken:
            event.break_off(PASS_DEADLINE)
        while self._turn(now, j):
            pass
        return event.take_commands()

    # --- turns --------------------------------------------------------------------------------------------------

    def _turn(self, now: int, j: float) -> bool:
        """One look at the event. True when another look may find more to do."""
        self._waves.collect(now, j)
        if self._phase is Phase.LOOP:
            return self._loop(now, j)
        if self._phase is Phase.JOIN:
            return self._join(now, j)
        if self._phase is Phase.FINAL:
            return self._final(now, j)
        if self._phase is Phase.AFTER and self._after is not None:
            if self._event.broken or not self._after.turn(now):
                self._phase = Phase.AFTER if self._event.running else Phase.DONE
            return False
        return False

    def _loop(self, now: int, j: float) -> bool:
        event = self._event
        if now >= event.yield_at:
            event.closed = True
        if not event.broken:
            self._validate()
        if event.broken:
            self._phase = Phase.JOIN
            return True
        self._resume(now, j)
        if event.closed:
            self._phase = Phase.JOIN
            return True
        self._waves.start_due(now)
        # Quiet before another step: the end of the only Attempt normally ends the event.
        if self._last is None and self._steps.step is None:
            self._start_step(now)
        elif self._quiet():
            self._phase = Phase.JOIN
        elif self._step_wanted(now):
            self._start_step(now)
        elif not event.running:
            # Only a checkpoint is owed, and the barrier holds it back: the next event's matter.
            self._phase = Phase.JOIN
        else:
            return False
        return True

    def _validate(self) -> None:
        try:
            self._waves.validate()
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
            self._restart
            or event.gate.revision != self._seen_revision
            or (self._again_at is not None and self._again_at <= now)
            or (publication is not None and publication.due(now))
        )

    def _start_step(self, now: int, *, final: bool = False) -> None:
        event = self._event
        self._restart = False
        self._again_at = None
        self._seen_revision = event.gate.revision
        after_attempts = event.ended_since and not event.attempts
        after_recovery = self._wave.checkpoint_owed and (self._wave.fresh or not event.attempts)
        self._wave.fresh = False
        checkpoint = final or after_attempts or after_recovery
        begin = self._first
        if self._last is not None and not checkpoint:
            begin = event.begin(now)
            self._observed_generation = begin.generation
        dispatch = not final and not after_attempts and not (after_recovery and event.settled > 0)
        self._steps.step = Step(begin, checkpoint=checkpoint, dispatch=dispatch, reserved=frozenset(event.attempts))

    def _resume(self, now: int, j: float) -> bool:
        """Let the running step go on. True when it ended."""
        answer = self._steps.resume(now, j)
        if answer is None:
            return False
        self._last = answer
        self._again_at = answer.again_at
        self._restart = self._restart or answer.left_room
        self._was_actionable = self._was_actionable or answer.actionable
        if self._phase is Phase.LOOP:
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
            self._phase = Phase.FINAL
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
            self._phase = Phase.DONE
            return False
        self._phase = Phase.AFTER
        # A broken loop is joined; what follows is a phase of its own.
        self._event.broken = False
        self._after = AfterNative(self._event, self._waves, now)
        return True

    # --- facts --------------------------------------------------------------------------------------------------

    def surveyed(self, survey: SurveyView, now: int) -> None:
        """The answer to `Survey`."""
        del now
        if self._end_asked(Survey):
            self._steps.surveyed(survey)

    def survey_failed(self, failure: str, now: int) -> None:
        """The survey could not be read: the native step fails, and the event at once."""
        if self._end_asked(Survey):
            self._break(failure, now)

    def published(self, due_at: int | None, now: int) -> None:
        """The answer to `Publish`: the next deadline of publication, or none."""
        del now
        if self._end_asked(Publish):
            self._steps.published(due_at)

    def publish_failed(self, failure: str, now: int) -> None:
        """Publication failed: the native step fails with it."""
        if self._end_asked(Publish):
            self._break(failure, now)

    def recovered(self, thread_id: str, answer: RecoverAnswer, now: int) -> None:
        """The answer to `RecoverThread`."""
        event, command = self._event, self._wave.current
        if command is None or command.thread_id != thread_id or not event.end(command):
            return
        self._observe_registry(answer.registry, now)
        event.gate.ends += 1
        event.findings.learn(answer.recovered)
        event.sighting.replace(answer.view, self._wave.stamp)
        self._steps.own_work_ended(answer.view)
        if answer.recovered.repaired:
            event.progress((NATIVE,), now)
        ended = self._wave.take(answer.recovered, now)
        if self._wave.running:
            event.sighting.disturb()
        if ended and (answer.recovered.fault is None or self._wave.checkpoint_owed):
            self._restart = True

    def recovery_failed(self, thread_id: str, failure: str, now: int) -> None:
        """The recovery activity itself failed (its Thread's own failures are faults): the event ends at once."""
        command = self._wave.current
        if command is None or command.thread_id != thread_id or not self._event.end(command):
            return
        self._event.gate.ends += 1
        self._event.sighting.disturb()
        self._wave.drop()
        self._break(failure, now)

    def attempt_ended(self, thread_id: str, answer: AttemptAnswer, now: int) -> None:
        """The answer to `AttemptThread`."""
        event = self._event
        attempt = event.attempts.pop(thread_id, None)
        if attempt is None:
            return
        event.end(attempt.command)
        self._observe_registry(answer.registry, now)
        event.gate.ends += 1
        event.findings.learn(answer.recovered)
        keep_cursor(event, answer.recovered)
        event.sighting.replace(answer.view, attempt.stamp)
        self._steps.own_work_ended(answer.view)
        self._keep_binding_wait(thread_id, answer, now)
        if answer.ended in _PROGRESS or answer.recovered.repaired:
            event.progress((NATIVE,), now)
        if answer.ended == "settled":
            event.settled += 1
            event.settled_since += 1
        else:
            event.findings.deferred.add(thread_id)
        event.ended_since = True
        self._restart = True

    def attempt_failed(self, thread_id: str, failure: str, now: int) -> None:
        """The Attempt's activity failed, or was cut at the deadline: the event ends at once, nothing is settled."""
        attempt = self._event.attempts.pop(thread_id, None)
        if attempt is None:
            return
        self._event.end(attempt.command)
        self._event.gate.ends += 1
        self._event.sighting.disturb()
        self._event.findings.deferred.add(thread_id)
        self._event.ended_since = True
        self._break(failure, now)

    def lane_ended(self, lane: str, due_at: int | None, now: int, *, progressed: Sequence[str] = ()) -> None:
        """A lane, message or projection wave ended with its next deadline; `progressed`: lanes with new facts."""
        if self._waves.ended(lane, due_at, None) and progressed:
            self._event.progress(progressed, now)

    def lane_failed(self, lane: str, failure: str, now: int, *, progressed: Sequence[str] = ()) -> None:
        """A wave failed, ran over its allowance, or was interrupted. What it committed still counts."""
        if self._waves.ended(lane, None, failure) and progressed:
            self._event.progress(progressed, now)

    def _end_asked(self, kind: type[Survey | Publish]) -> bool:
        asked = next((command for command in self._event.running if isinstance(command, kind)), None)
        return asked is not None and self._event.end(asked)

    def _break(self, failure: str, now: int) -> None:
        if not self._event.broken:
            self._event.break_off(PASS_DEADLINE if now >= self._event.deadline_at else failure)

    def _observe_registry(self, registry: Registry, now: int) -> None:
        if registry.key:
            self._maintenance.observe_registry(registry.key, registry.deployment, now)

    def _keep_binding_wait(self, thread_id: str, answer: AttemptAnswer, now: int) -> None:
        """A head without binding is reported once and waits for the registry; one that ran waits no longer."""
        record, head = self._event.state.record, answer.view.head
        held = record.wait_of(thread_id)
        wait: BindingWait | None = None
        if answer.ended == "unbound":
            submission_id = answer.submission_id or (head.submission_id if head is not None else "")
            if answer.registry.key and answer.registry.key != record.registry_key:
                # An older deployment's registry says nothing about the one that counts: try again.
                return
            known = held is not None and held.submission_id == submission_id
            wait = BindingWait(
                thread_id,
                submission_id,
                held.reported_at if held is not None and known else now,
                answer.agent_id or "",
                head.queue_sequence if head is not None else 0,
            )
            if not known:
                self._unbound.append(wait)
        elif held is None or held.submission_id != answer.submission_id or answer.ended == "faulted":
            return
        with self._event.state.transaction() as tx:
            tx.record = tx.record.with_wait(thread_id, wait)

    # --- the end ------------------------------------------------------------------------------------------------

    def finish(self, now: int, j: float) -> PassReport:
        """The alarm decision: §12, or after a failure §13. Once, when `done`."""
        if not self.done or self._finished:
            raise AlarmRefusal("finish pass", "the event is not done" if not self.done else "finished before")
        self._finished = True
        event = self._event
        active = event.gate.active
        with event.state.transaction() as tx:
            if event.failures:
                rearmed = certification.rearm_after_failure(
                    tx,
                    now,
                    j,
                    event.config,
                    observed=self._observed_generation,
                    native_only=event.native_only,
                    rows=event.observed.values(),
                    charged=event.charged,
                    active=active,
                )
            else:
                rearmed = certification.finish(
                    tx,
                    now,
                    event.config,
                    observed=self._observed_generation,
                    next_attempt_at=None if self._last is None else self._last.next_attempt_at,
                    active=active,
                )
        self._maintenance.event_ended(self)
        return PassReport(
            phase=PassPhase.ACTIONABLE if self._was_actionable else PassPhase.CAUGHT_UP,
            recovered=event.findings.recovered_count,
            settled=event.settled,
            nonterminal=event.state.record.nonterminal,
            alarm=AlarmOutcome.REARMED if rearmed else AlarmOutcome.CLEARED,
            failure="; ".join(event.failures)[: limits.NAME_CHARS_MAX] if event.failures else None,
            parked=self._maintenance.take_parked_reports(),
            newly_unbound=tuple(self._unbound),
        )
