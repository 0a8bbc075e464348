"""One event: a pass from its begin to its alarm decision, as a machine without clock, task or await.

The shell calls `advance` after every fact, every gate change and at `wake_at`, starts the commands it answers, and
reports how each of them ended. When `done`, `finish` makes the alarm decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thread_objects.contract import limits
from thread_objects.contract.activities import AttemptAnswer, RecoverAnswer
from thread_objects.contract.states import AlarmOutcome, PassPhase
from thread_objects.contract.views import Registry
from thread_objects.contract.views import Survey as SurveyView
from thread_objects.core import binding, certification
from thread_objects.core.command import AttemptThread, Cancel, Command, Publish, RecoverThread, RunLane, Survey
from thread_objects.core.due_queue import NATIVE
from thread_objects.core.event_loop import PASS_DEADLINE, EventLoop, Phase
from thread_objects.core.event_state import EventState
from thread_objects.core.lane_waves import LaneWaves
from thread_objects.core.native_step import NativeSteps
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

_NEW_FACTS = frozenset(("settled", "suspended", "unknown"))


def _committed(answer: AttemptAnswer) -> bool:
    """Whether the Attempt left facts that are new to the object. One that yielded before its claim left none."""
    yielded_a_claim = answer.ended == "yielded" and answer.submission_id is not None
    return answer.ended in _NEW_FACTS or yielded_a_claim or answer.recovered.repaired


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

    __slots__ = ("_event", "_finished", "_loop", "_maintenance", "_now", "_steps", "_unbound", "_wave", "_waves")

    def __init__(self, maintenance: Maintenance, now: int) -> None:
        self._maintenance = maintenance
        event = EventState(maintenance.incarnation, now)
        self._event = event
        self._wave = RecoveryWave(event)
        self._steps = NativeSteps(event, self._wave)
        self._waves = LaneWaves(event)
        self._loop = EventLoop(event, self._wave, self._steps, self._waves, now)
        self._now = now
        self._finished = False
        self._unbound: list[BindingWait] = []

    # --- the shell's view ---------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Everything was joined; only `finish` is left."""
        return self._loop.phase is Phase.DONE

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
        return self._loop.wake_at(self._now)

    def advance(self, now: int, j: float) -> list[Command]:
        """Everything that may start now. Call after every fact, gate change and deadline; repeating is harmless."""
        self._now = now
        self._loop.run(now, j)
        return self._event.take_commands()

    def take_steps(self) -> tuple[str, ...]:
        """The durable steps that were made since the last call: select, checkpoint, binding-retry, finish or retry."""
        taken = tuple(self._event.steps)
        self._event.steps.clear()
        return taken

    # --- facts --------------------------------------------------------------------------------------------------

    def surveyed(self, survey: SurveyView, now: int) -> None:
        """The answer to `Survey`."""
        del now
        if self._end_asked(Survey):
            self._steps.surveyed(survey)

    def survey_failed(self, failure: str, now: int, *, outage: bool = False) -> None:
        """The survey could not be read: the native step fails, and the event at once. `outage`: storage is away."""
        if self._end_asked(Survey):
            self._break(failure, now, outage=outage)

    def published(self, due_at: int | None, now: int, *, progressed: Sequence[str] = ()) -> None:
        """The answer to `Publish`: the next deadline of publication, or none; `progressed`: lanes with new facts."""
        if self._end_asked(Publish):
            self._steps.published(due_at)
            if progressed:
                self._event.progress(progressed, now)

    def publish_failed(self, failure: str, now: int, *, progressed: Sequence[str] = ()) -> None:
        """Publication failed: the native step fails with it. What it committed still counts."""
        if self._end_asked(Publish):
            if progressed:
                self._event.progress(progressed, now)
            self._break(failure, now)

    def recovered(self, thread_id: str, answer: RecoverAnswer, now: int) -> None:
        """The answer to `RecoverThread`."""
        event, command = self._event, self._wave.current
        if command is None or command.thread_id != thread_id:
            return
        event.end(command)
        self._observe_registry(answer.registry, now)
        event.gate.ended()
        event.findings.learn(answer.recovered)
        event.sighting.replace(answer.view, self._wave.stamp)
        self._steps.own_work_ended(answer.view)
        if answer.recovered.repaired:
            event.progress((NATIVE,), now)
        ended = self._wave.take(command, answer.recovered, now)
        if self._wave.running:
            event.sighting.disturb()
        else:
            self._steps.forget_scan()
        if ended and (answer.recovered.fault is None or self._wave.checkpoint_owed):
            self._loop.restart = True

    def recovery_failed(self, thread_id: str, failure: str, now: int, *, outage: bool = False) -> None:
        """The recovery activity itself failed (its Thread's own failures are faults): the event ends at once."""
        command = self._wave.current
        if command is None or command.thread_id != thread_id:
            return
        self._event.end(command)
        self._event.gate.ended()
        self._event.sighting.disturb()
        self._wave.drop()
        self._break(failure, now, outage=outage)

    def attempt_ended(self, thread_id: str, answer: AttemptAnswer, now: int) -> None:
        """The answer to `AttemptThread`."""
        event = self._event
        attempt = event.attempts.pop(thread_id, None)
        if attempt is None:
            return
        event.end(attempt.command)
        self._observe_registry(answer.registry, now)
        event.gate.ended()
        event.findings.learn(answer.recovered)
        keep_cursor(event, answer.recovered)
        event.sighting.replace(answer.view, attempt.stamp)
        self._steps.own_work_ended(answer.view)
        self._steps.forget_scan()
        reported = binding.keep_wait(event, answer, now)
        if reported is not None:
            self._unbound.append(reported)
        if _committed(answer):
            event.progress((NATIVE,), now)
        if answer.ended == "settled":
            event.settled += 1
            event.settled_since += 1
        else:
            event.findings.deferred.add(thread_id)
        event.ended_since = True
        self._loop.restart = True

    def attempt_failed(self, thread_id: str, failure: str, now: int, *, outage: bool = False) -> None:
        """The Attempt's activity failed, or was cut at the deadline: the event ends at once, nothing is settled."""
        attempt = self._event.attempts.pop(thread_id, None)
        if attempt is None:
            return
        self._event.end(attempt.command)
        self._event.gate.ended()
        self._event.sighting.disturb()
        self._event.findings.deferred.add(thread_id)
        self._event.ended_since = True
        self._break(failure, now, outage=outage)

    def lane_ended(self, lane: str, due_at: int | None, now: int, *, progressed: Sequence[str] = ()) -> None:
        """A lane, message or projection wave ended with its next deadline; `progressed`: lanes with new facts."""
        if self._waves.ended(lane, due_at, None) and progressed:
            self._event.progress(progressed, now)

    def lane_failed(
        self, lane: str, failure: str, now: int, *, progressed: Sequence[str] = (), stopped: bool = False
    ) -> None:
        """A wave failed, ran over its allowance, or was interrupted. What it committed still counts.

        `stopped`: at a bound that is no failure of the pass (projection's time).
        """
        if self._waves.ended(lane, None, failure, stopped=stopped) and progressed:
            self._event.progress(progressed, now)

    def _end_asked(self, kind: type[Survey | Publish]) -> bool:
        asked = next((command for command in self._event.running if isinstance(command, kind)), None)
        if asked is not None:
            self._event.end(asked)
        return asked is not None

    def _break(self, failure: str, now: int, *, outage: bool = False) -> None:
        if self._event.broken:
            return
        if now >= self._event.deadline_at:
            self._event.break_off(PASS_DEADLINE)
        else:
            self._event.break_off(failure, outage=outage)

    def _observe_registry(self, registry: Registry, now: int) -> None:
        if registry.key:
            self._maintenance.observe_registry(registry.key, registry.deployment, now)

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
                    observed=self._loop.observed_generation,
                    native_only=event.native_only,
                    rows=event.observed.values(),
                    charged=event.charged,
                    active=active,
                    outage=event.outage,
                )
            else:
                rearmed = certification.finish(
                    tx,
                    now,
                    event.config,
                    observed=self._loop.observed_generation,
                    next_attempt_at=None if self._loop.last is None else self._loop.last.next_attempt_at,
                    active=active,
                )
        event.steps.append("retry:after" if event.failures else "finish:after")
        self._maintenance.event_ended(self)
        return PassReport(
            phase=PassPhase.ACTIONABLE if self._loop.was_actionable else PassPhase.CAUGHT_UP,
            recovered=event.findings.recovered_count,
            settled=event.settled,
            nonterminal=event.state.record.nonterminal,
            alarm=AlarmOutcome.REARMED if rearmed else AlarmOutcome.CLEARED,
            failure="; ".join(event.failures)[: limits.NAME_CHARS_MAX] if event.failures else None,
            parked=self._maintenance.take_parked_reports(),
            newly_unbound=tuple(self._unbound),
        )
