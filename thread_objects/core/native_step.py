"""Native steps: publication barrier, scan, selection, checkpoint. One step runs at a time.

A step stops where it needs an answer (a publication wave, a survey) and goes on in the stretch that brings it. From
the scan to the checkpoint there is no wait, so the scan is the checkpoint's rescan too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from thread_objects.contract.views import Page, ThreadView
from thread_objects.contract.views import Survey as SurveyView
from thread_objects.core import certification, selection
from thread_objects.core.certification import Observation
from thread_objects.core.command import AttemptThread, Publish, Survey
from thread_objects.core.due_queue import NATIVE, PUBLICATION, Row, RowState
from thread_objects.core.event_state import Attempt, EventState
from thread_objects.core.generation import Begin
from thread_objects.core.recovery_wave import RecoveryWave
from thread_objects.core.selection import Scan
from thread_objects.core.sighting import to_scan


class Stage(Enum):
    """Where a step stands."""

    BARRIER = auto()
    PUBLISHING = auto()
    PAST_BARRIER = auto()
    SCANNING = auto()
    SCANNED = auto()


@dataclass(slots=True)
class Step:
    """One running step. `newer`: views that own work brought while the survey was under way.

    `earlier`, `duties`: what the pages of a shared host read before this one held.
    """

    begin: Begin
    checkpoint: bool
    dispatch: bool
    reserved: frozenset[str]
    stage: Stage = Stage.BARRIER
    command: Publish | Survey | None = None
    publication: Row | None = None
    generation: int = 0
    overlapped: bool = False
    scan: Scan | None = None
    newer: dict[str, ThreadView] = field(default_factory=dict)
    earlier: dict[str, ThreadView] = field(default_factory=dict)
    duties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """How a step ended. `again_at`: when time alone may let another step start something; None when it cannot."""

    actionable: bool
    next_attempt_at: int | None = None
    again_at: int | None = None
    left_room: bool = False


class NativeSteps:
    """The steps of one event, and what later steps keep of earlier ones."""

    __slots__ = ("_event", "_remembered", "_seen", "_wave", "discovery_pending", "observation", "step")

    def __init__(self, event: EventState, wave: RecoveryWave) -> None:
        self._event = event
        self._wave = wave
        self._seen: tuple[int, int] | None = None
        self._remembered: tuple[int, int] | None = None
        self.step: Step | None = None
        self.observation: Observation | None = None
        self.discovery_pending = False

    # --- facts --------------------------------------------------------------------------------------------------

    def surveyed(self, survey: SurveyView) -> None:
        """The survey of the running step, or the next page of it."""
        step = self.step
        if step is not None and step.stage is Stage.SCANNING:
            scan = to_scan(survey, step.generation, step.newer, earlier=step.earlier, overlapped=step.overlapped)
            if step.duties:
                scan = replace(scan, duties=tuple(dict.fromkeys((*step.duties, *scan.duties))))
            if survey.following is None or self._enough(step, scan):
                step.scan = scan
                step.stage = Stage.SCANNED
                self._event.sighting.take(scan)
                return
            step.earlier = {view.thread_id: view for view in scan.views}
            step.duties = scan.duties
            step.newer = {}
            self._ask(step, survey.following)

    def _enough(self, step: Step, scan: Scan) -> bool:
        """Whether the pages so far say what the step does: fill its slots, or see that something is left to do.

        Without that the round goes on to its end, however many Threads merely wait: what is idle is certified, and no
        crowd of those hides one that is ready.
        """
        event = self._event
        event.findings.load_faults(scan.views)
        eligible = selection.eligible_heads(scan, event.findings, event.state.record)
        room = event.config.native_slots - len(step.reserved) if step.dispatch and not event.closed else 0
        if room <= 0:
            return bool(eligible)
        excluded = event.findings.deferred | step.reserved | event.attempts.keys()
        return sum(thread_id not in excluded for thread_id in eligible) >= room

    def _ask(self, step: Step, page: Page | None) -> None:
        step.command = Survey(self._event.state.record.last_recovered_thread_id, page)
        self._event.start(step.command)

    def published(self, due_at: int | None) -> None:
        """The publication wave of the running step."""
        step = self.step
        if step is not None and step.stage is Stage.PUBLISHING and step.publication is not None:
            self._event.complete(step.publication, due_at)
            step.publication = None
            step.stage = Stage.PAST_BARRIER

    def forget_scan(self) -> None:
        """An Attempt or the recovery wave ended: the next step scans anew."""
        self._remembered = None

    def own_work_ended(self, view: ThreadView) -> None:
        """An Attempt or a recovery ended: its view is newer than that of a survey under way."""
        step = self.step
        # Before the survey was asked for it is the older one: rows may have come since.
        if step is not None and step.stage is Stage.SCANNING:
            step.newer[view.thread_id] = view

    # --- the step -----------------------------------------------------------------------------------------------

    def resume(self, now: int, j: float) -> Answer | None:
        """Go on as far as possible. None while the step waits for an answer, or when none runs."""
        step = self.step
        if step is None:
            return None
        if step.stage is Stage.BARRIER:
            self._barrier(step, now)
        answer = self._past_barrier(step, now) if step.stage is Stage.PAST_BARRIER else None
        if step.stage is Stage.SCANNED and step.scan is not None:
            answer = self._scanned(step, step.scan, now, j)
        if answer is not None:
            self.step = None
        return answer

    def _barrier(self, step: Step, now: int) -> None:
        event = self._event
        step.stage = Stage.PAST_BARRIER
        row = event.state.queue.get(PUBLICATION)
        charged = event.charge(row, now) if row is not None and row.due(now) else None
        if charged is None:
            return
        if not event.config.publication_required:
            event.complete(charged, None)
            return
        # A generation that a body may still be changing is not prepared; the drain runs all the same.
        prepare = step.begin.actionable and event.gate.active == 0
        step.command = Publish(step.begin.generation if prepare else None, event.deadline_at)
        step.publication = charged
        step.stage = Stage.PUBLISHING
        event.start(step.command)

    def _past_barrier(self, step: Step, now: int) -> Answer | None:
        event = self._event
        publication = event.state.queue.get(PUBLICATION)
        blocked = publication is not None and (publication.due_at is not None or publication.state is RowState.PARKED)
        if blocked or not step.begin.actionable:
            self._wave.enrolled = True
            return self._caught_up(publication, now)
        event.native_only = True
        observed = (step.begin.generation, step.begin.revision)
        if self._seen != observed:
            self._seen = observed
            event.findings.deferred.clear()
        if event.attempts and self._remembered == observed:
            return Answer(actionable=True)
        if self.observation is None:
            self.observation = Observation(step.begin.generation, step.begin.active_at_start > 0)
        step.scan = event.sighting.certain()
        if step.scan is None and step.checkpoint and not step.dispatch:
            step.scan = event.sighting.behind()
        step.stage = Stage.SCANNED
        if step.scan is None:
            step.stage = Stage.SCANNING
            step.generation = event.state.record.dirty
            step.overlapped = event.gate.active > 0
            # A round over a host's Threads starts where the last selection ended.
            last = event.state.record.last_served_thread_id
            self._ask(step, Page(after=last, origin=last) if event.config.shared_host else None)
        return None

    def _caught_up(self, publication: Row | None, now: int) -> Answer:
        event = self._event
        record, floor = event.state.record, event.floor(now)
        if publication is not None and publication.due_at is not None:
            return Answer(actionable=False, next_attempt_at=max(floor, publication.due_at))
        if event.gate.active == 0 and record.dirty <= record.processed:
            return Answer(actionable=False)
        retry = record.valid_retry() if event.gate.active == 0 else None
        next_attempt_at = floor if retry is None else max(floor, retry.not_before)
        return Answer(actionable=False, next_attempt_at=next_attempt_at, again_at=self._again(next_attempt_at))

    def _again(self, next_attempt_at: int | None) -> int | None:
        """No earlier than a begin could find native work: its floor and a valid retry must have passed."""
        record, native = self._event.state.record, self._event.state.queue.get(NATIVE)
        if next_attempt_at is None or native is None or native.due_at is None or record.dirty <= record.processed:
            return None
        retry = record.valid_retry()
        return max(next_attempt_at, native.not_before, 0 if retry is None else retry.not_before)

    def _scanned(self, step: Step, scan: Scan, now: int, j: float) -> Answer:
        event = self._event
        event.findings.load_faults(scan.views)
        self.discovery_pending = self.discovery_pending or scan.more
        if step.begin.active_at_start == 0 and event.gate.active == 0:
            self._remembered = (step.begin.generation, step.begin.revision)
        eligible = selection.eligible_heads(scan, event.findings, event.state.record)
        taken: list[str] = []
        if step.dispatch and not event.closed:
            taken = self._select(step, scan, eligible, now)
        left_room = bool(taken) and len(event.attempts) < event.config.native_slots
        if left_room:
            self._remembered = None
        if event.attempts:
            return Answer(actionable=True, left_room=left_room)
        return self._checkpoint(step, scan, eligible, now, j)

    def _select(self, step: Step, scan: Scan, eligible: list[str], now: int) -> list[str]:
        """Fork an Attempt for each Thread taken; the event's first selection also enrols the recovery wave."""
        event = self._event
        excluded = event.findings.deferred | step.reserved | event.attempts.keys()
        room = event.config.native_slots - len(step.reserved)
        taken = selection.take(eligible, excluded, event.state.record.last_served_thread_id, room)
        if taken:
            with event.state.transaction() as tx:
                tx.record = tx.record.with_(last_served_thread_id=taken[-1])
        event.steps.append("select:after")
        for thread_id in taken:
            command = AttemptThread(thread_id, event.yield_at, event.deadline_at)
            event.attempts[thread_id] = Attempt(command, event.sighting.stamp())
            event.start(command)
        if not self._wave.enrolled:
            backlog = selection.backlog(scan, eligible, event.findings, event.state.record, now)
            self.discovery_pending = self.discovery_pending or backlog.more
            self._wave.enrol(backlog.thread_ids, now)
        if event.attempts or self._wave.running:
            event.sighting.disturb()
        return taken

    def _checkpoint(self, step: Step, scan: Scan, eligible: list[str], now: int, j: float) -> Answer:
        event = self._event
        observation = self.observation or Observation(step.begin.generation, step.begin.active_at_start > 0)
        with event.state.transaction() as tx:
            verdict = certification.checkpoint(
                tx,
                now,
                j,
                event.config,
                step=step.begin,
                observation=observation,
                scan=scan,
                findings=event.findings,
                eligible=eligible,
                progressed=event.settled_since > 0 or event.findings.repaired,
                discovery_pending=self.discovery_pending,
                active=event.gate.active,
            )
        event.steps.append("checkpoint:after")
        event.findings.deferred.clear()
        event.settled_since = 0
        event.ended_since = False
        if not self._wave.running:
            self._wave.checkpoint_owed = False
        if verdict.empty and not event.findings.pending:
            self.observation = Observation(observation.generation, overlapped=False)
        # Time alone helps only where somebody is left to dispatch, or rows changed behind this scan.
        helps = bool(eligible) or event.state.record.dirty != scan.generation
        again_at = self._again(verdict.next_attempt_at) if helps else None
        return Answer(actionable=True, next_attempt_at=verdict.next_attempt_at, again_at=again_at)
