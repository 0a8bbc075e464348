"""The maintenance of one Thread Object: generations, due queue, alarm slot, and one pass at a time.

Sans-IO: the workflow calls it in stretches without await, gives it the time and the jitter, and starts what it is
told to. In the stretch that takes a batch's answer the order is: `observe_registry`, `release`, `note_survey`, `hint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from thread_objects.contract import reports, views
from thread_objects.contract.lanes import Installed
from thread_objects.core import generation
from thread_objects.core.alarm import AlarmSlot
from thread_objects.core.application_alarms import ApplicationAlarms
from thread_objects.core.config import LanePhase, LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import (
    MESSAGES,
    NATIVE,
    PROJECTION,
    PUBLICATION,
    RECOVERY_EVENTS,
    RowState,
    check_lane,
)
from thread_objects.core.event import Event
from thread_objects.core.gate import Mutation
from thread_objects.core.incarnation import Incarnation
from thread_objects.core.refusal import AlarmRefusal
from thread_objects.core.state import MaintenanceState, StateTransaction

__all__ = [
    "AlarmRefusal",
    "Event",
    "LanePhase",
    "LaneSpec",
    "Maintenance",
    "MaintenanceConfig",
    "MaintenanceState",
    "Mutation",
]


class Maintenance:
    """One incarnation: the carried state, and counters that start at zero."""

    def __init__(self, state: MaintenanceState, config: MaintenanceConfig) -> None:
        self.incarnation = Incarnation(state, config)
        self.state = state
        self.gate = self.incarnation.gate
        self.sighting = self.incarnation.sighting
        self._event: Event | None = None

    @property
    def config(self) -> MaintenanceConfig:
        """The configuration, with what the workers have installed."""
        return self.incarnation.config

    # --- start-up -----------------------------------------------------------------------------------------------

    def ensure_alarm(self, now: int) -> tuple[str, ...]:
        """At the start of every run: register the framework's rows, restore the alarm. Answers parked reports."""
        with self.state.transaction() as tx:
            generation.register(tx, self.config)
            generation.ensure_alarm(tx, now, self._floor(now))
        return self.take_parked_reports()

    def observe_registry(self, key: str, deployment: int, now: int) -> bool:
        """An answer carried this registry key. True when it was new: every binding wait is over, one pass is owed."""
        record = self.state.record
        if record.registry_key == key and record.deployment >= deployment:
            return False
        with self.state.transaction() as tx:
            changed = generation.check_registry(tx, key, deployment)
            if changed:
                tx.by(tx.queue.next(), self._floor(now))
        if changed:
            self.gate.notify()
        return changed

    def install(self, installed: Installed, now: int) -> bool:
        """An answer told what its worker has installed. False, and no change, if that is known or older.

        Rows whose handler came or went, and parked ones that have a handler, get one fresh opportunity; so does
        native work that stood still for want of a handler.
        """
        held = self.state.installed
        if installed.deployment <= held.deployment or installed.digest == held.digest:
            return False
        before, stood_still = self.config, self.unhandled
        self.state.installed = installed
        self.incarnation.configure()
        after, lanes = self.config, self.incarnation.lanes
        renewed = [
            row_id
            for row_id, changed in (
                (PUBLICATION, before.publication_required != after.publication_required),
                (PROJECTION, before.projection != after.projection),
                (MESSAGES, before.message_timeout_ms != after.message_timeout_ms),
            )
            if changed
        ]
        parked = [row.id for row in self.state.queue.rows() if row.state is RowState.PARKED and lanes.known(row.id)]
        rows = {*renewed, *parked} - {NATIVE}
        if stood_still and not self.unhandled:
            rows.add(NATIVE)
        with self.state.transaction() as tx:
            generation.install(tx, now, self._floor(now), sorted(rows))
        self.gate.notify()
        return True

    @property
    def unhandled(self) -> bool:
        """A row has a deadline and nobody to run its wave: every pass fails, and all work stands still."""
        try:
            self.incarnation.lanes.check(self.state.queue)
        except AlarmRefusal:
            return True
        return False

    def handles(self, lane: str) -> bool:
        """Whether a row of this id would have somebody to run its waves."""
        return self.incarnation.lanes.known(lane)

    def host_lanes(self) -> tuple[str, ...]:
        """The lanes that users have installed."""
        lanes = self.incarnation.lanes
        return tuple(spec.id for spec in (*lanes.concurrent, *lanes.after_native) if not spec.framework)

    def look_again(self, now: int) -> bool:
        """A sweep has seen a head of this object that nobody takes up, although a worker for it is there.

        An object that owes nothing has missed it: whoever wrote it last could not tell (a process that was given up
        and went on, a transaction that outlived its caller). It gets one discovery pass.
        """
        if self.gate.active > 0 or self.state.record.dirty > self.state.record.processed:
            return False
        self.release(self.prearm(now), now)
        return True

    def take_parked_reports(self) -> tuple[str, ...]:
        """Labels of lanes parked since the last report; each is told once."""
        with self.state.transaction() as tx:
            return tx.queue.take_parked_reports()

    # --- the gate -----------------------------------------------------------------------------------------------

    def prearm(self, now: int, *, invalidates_recovery: bool = True, lanes: Sequence[str] = ()) -> Mutation:
        """Before a body runs: make its work due and arm the alarm, then count it. Refused inside a transaction."""
        for lane in lanes:
            check_lane(lane)
        with self.state.transaction() as tx:
            generation.prearm(
                tx,
                now,
                self._floor(now),
                invalidates_recovery=invalidates_recovery,
                lanes=lanes,
                publication_required=self.config.publication_required,
            )
        return self.gate.enter(tuple(lanes), invalidates_recovery=invalidates_recovery)

    def release(self, mutation: Mutation, now: int, *, progressed: Sequence[str] = ()) -> None:
        """The body is over. `progressed`: lanes with new facts; the mutation's own lanes then count too.

        A body that failed passes none: its prearm stays behind, nothing worse.
        """
        if progressed:
            with self.transaction() as tx:
                self._progress(tx, (*progressed, *mutation.lanes), now)
        self.gate.leave(mutation)

    def in_task(self, task: int) -> None:
        """The shell is about to report facts of, or begin a mutation in, this workflow task."""
        self.gate.task = task

    def note_survey(self, survey: views.Survey, now: int) -> None:
        """A survey read at the end of the batch just released: the next scan, while nothing else moves."""
        del now
        self.sighting.take_applied(survey)

    @contextmanager
    def transaction(self) -> Iterator[StateTransaction]:
        """A source transaction: rows, record and slot commit together. Refused while another one is open."""
        with self.state.transaction() as tx:
            yield tx

    def record_progress(self, lanes: Sequence[str], now: int) -> None:
        """New facts for these lanes, inside an open transaction only."""
        tx = self.state.open
        if tx is None:
            raise AlarmRefusal("record progress", "no transaction is open")
        self._progress(tx, lanes, now)

    def _progress(self, tx: StateTransaction, lanes: Sequence[str], now: int) -> None:
        if generation.record_progress(
            tx, lanes, now, self._floor(now), own=False, publication_required=self.config.publication_required
        ):
            self.gate.notify()

    def schedule(self, lane: str, due_at: int, now: int, cursor: int | None = None) -> bool:
        """Make a lane due by `due_at`; with a cursor, as progress. False, and no change, for a cursor known before."""
        with self.state.transaction() as tx:
            counted = generation.schedule(tx, lane, due_at, now, self._floor(now), cursor)
        self.gate.notify()
        return counted

    def hint(self, now: int) -> None:
        """A promptness hint. It wakes a running pass; else it moves the slot to the earliest due row, if any."""
        if self._event is not None:
            self.gate.notify()
        elif self.gate.active == 0 and self.gate.deferred == 0:
            due_at = self.state.queue.next()
            if due_at is not None:
                self.state.alarm.ensure_by(max(now, due_at))

    @contextmanager
    def hints_deferred(self) -> Iterator[None]:
        """While this runs, hints are dropped, whoever gives them."""
        self.gate.deferred += 1
        try:
            yield
        finally:
            self.gate.deferred -= 1

    # --- recovery events ----------------------------------------------------------------------------------------

    def events_recorded(self, sequence: int, now: int) -> None:
        """Recovery events up to `sequence` are stored: their lane is due at once. The slot follows the queue."""
        with self.state.transaction() as tx:
            if sequence <= tx.record.event_sequence:
                return
            tx.record = tx.record.with_(event_sequence=sequence)
            tx.queue.dirty(RECOVERY_EVENTS, 0, progress=True)
        del now
        self.gate.notify()

    def event_acknowledged(self, sequence: int, now: int) -> None:
        """The consumer has the event: the lane is due again while more are left."""
        with self.state.transaction() as tx:
            if not tx.record.event_acknowledged < sequence <= tx.record.event_sequence:
                return
            tx.record = tx.record.with_(event_acknowledged=sequence)
            tx.queue.progress(RECOVERY_EVENTS, now, sequence)
            row = tx.row(RECOVERY_EVENTS)
            if row is not None and sequence == tx.record.event_sequence:
                tx.queue.complete(row, None)

    # --- alarms -------------------------------------------------------------------------------------------------

    @property
    def alarm(self) -> AlarmSlot:
        """The slot; `alarm.deadline` is the maintenance deadline."""
        return self.state.alarm

    @property
    def applications(self) -> ApplicationAlarms:
        """The application alarms beside it."""
        return self.state.alarm.applications

    def next_deadline(self) -> int | None:
        """What the one physical timer waits for between passes."""
        return self.state.alarm.earliest()

    # --- passes -------------------------------------------------------------------------------------------------

    def ready_now(self, now: int) -> bool:
        """A pass begun now would find native work, so that it need not wait for a timer."""
        if self._event is not None:
            return False
        publication = self.state.queue.get(PUBLICATION)
        if publication is not None and publication.due_at is not None and publication.due_at > now:
            return False
        with self.state.transaction() as tx:
            return generation.native_ready(tx, now)

    def begin_event(self, now: int) -> Event:
        """Begin a pass. One at a time; hints are deferred until its `finish`."""
        if self._event is not None:
            raise AlarmRefusal("begin pass", "a pass is running")
        self.gate.deferred += 1
        self._event = Event(self, now)
        return self._event

    def event_ended(self, event: Event) -> None:
        """The pass made its alarm decision."""
        if self._event is event:
            self._event = None
            self.gate.deferred -= 1

    # --- what queries answer ------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """Changes whenever a waiting pass should look again."""
        return self.gate.revision

    @property
    def active_mutations(self) -> int:
        """Bodies in hand."""
        return self.gate.active

    @property
    def active_lanes(self) -> tuple[str, ...]:
        """Lanes with a producer."""
        return self.gate.active_lanes()

    def generation_view(self) -> reports.GenerationView:
        """Dirty and processed generations, and the retry."""
        record, retry = self.state.record, self.state.record.retry
        return reports.GenerationView(
            dirty=record.dirty,
            processed=record.processed,
            nonterminal=record.nonterminal,
            retry=retry
            and reports.RetryView(
                generation=retry.generation,
                not_before=retry.not_before,
                native_only=retry.native_only,
                stalls=retry.stalls,
            ),
            active_mutations=self.gate.active,
            revision=self.gate.revision,
        )

    def lane_views(self) -> tuple[reports.LaneView, ...]:
        """The rows of the due queue, by id."""
        return tuple(
            reports.LaneView(
                id=row.id,
                revision=row.revision,
                due_at=row.due_at,
                stalls=row.stalls,
                progress_key=row.progress_key,
                not_before=row.not_before,
                state=row.state.value,
                reported=row.reported,
            )
            for row in self.state.queue.rows()
        )

    def binding_waits(self) -> tuple[views.BindingWait, ...]:
        """Heads that wait for a binding."""
        return tuple(
            views.BindingWait(
                thread_id=wait.thread_id,
                submission_id=wait.submission_id,
                reported_at=wait.reported_at,
                agent_id=wait.agent_id,
            )
            for wait in self.state.record.binding_waits
        )

    def _floor(self, now: int) -> int:
        return now + self.config.floor_ms
