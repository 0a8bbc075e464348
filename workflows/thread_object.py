"""The Thread Object: one long-lived workflow that owns a conversation with an agent.

This file is the Temporal shell: handlers fold messages into the inbox, three coroutines (pump, passes, timer) share
the state between awaits, and queries read it. What must hold is decided by pure code in `thread_objects.core`.

Who may interleave where: handlers run at any await. The pump and a pass run side by side; the gate's counters, not
their order, decide what a pass may acknowledge. Prearm, release, checkpoint and finish are stretches without await.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from thread_objects.contract import limits, names
from thread_objects.contract.alarms import NamedAlarm
from thread_objects.contract.lanes import Installed
from thread_objects.contract.messages import Retry, Schedule, Wake
from thread_objects.contract.object import Carried, EndedAttempts, ObjectStart
from thread_objects.contract.reports import (
    AlarmView,
    GenerationView,
    LaneView,
    MaintenancePassReport,
    ObjectReport,
    RecoveryStatus,
    StatusView,
)
from thread_objects.contract.views import Registry
from thread_objects.core.due_queue import RECOVERY_EVENTS
from thread_objects.core.maintenance import LaneSpec, Maintenance, MaintenanceConfig, MaintenanceState
from thread_objects.errors import Busy, InvalidInput, ThreadError, to_application_error

from . import inbox as _inbox
from .crash_points import hit
from .deliveries import Deliveries
from .passes import PassRunner
from .pump import Pump
from .retries import Retries
from .timer import Timer, now_ms
from .views import alarm_view, generation_view, lane_views, named_alarms, object_report, status_view
from .waves import WaveRunner


@workflow.defn(name=names.WORKFLOW_TYPE)
class ThreadObject:
    """See the module's docstring. Started by the client's first mutation; ends only when an operator ends it."""

    @workflow.init
    def __init__(self, start: ObjectStart | None = None) -> None:
        start = start or ObjectStart()
        carried = start.carried
        self.config = start.config
        self.object_id = workflow.info().workflow_id
        self.maintenance = Maintenance(
            MaintenanceState.from_json(carried.maintenance),
            MaintenanceConfig(
                alarm_backoff_base_ms=self.config.alarm_backoff_base_ms,
                alarm_backoff_cap_ms=self.config.alarm_backoff_cap_ms,
                shared_host=self.config.shared_host,
                native_slots=self.config.native_slots if self.config.shared_host else 0,
                # Not built in: events that nobody takes are acknowledged all the same.
                lanes=(LaneSpec(RECOVERY_EVENTS, limits.EVENTS_ALLOWANCE_MS, framework=True),),
            ),
        )
        self.inbox = _inbox.Inbox(carried.inbox, carried.next_n)
        self.refusals = list(carried.refusals)
        self.refused_total = carried.refused_total
        self.reports: list[MaintenancePassReport] = list(carried.passes)
        self.parked_reports = list(carried.parked_reports)
        self.last_failure = carried.last_failure
        self.runs = carried.runs + 1
        self.settled_total = carried.settled_total
        self.updates = 0
        info = workflow.info()
        # A fresh history starts with what is carried, and with what came before its first task.
        self._begun_at = (info.get_current_history_length(), info.get_current_history_size())
        self.closing = False
        self.broken: BaseException | None = None
        self._follow = False
        self.pump = Pump(self, carried)
        self.passes = PassRunner(self, carried)
        self.waves = WaveRunner(self, carried)
        self.deliveries = Deliveries(self)
        self.retries = Retries(self)
        self.timer = Timer(self._timer_deadline)
        self.maintenance.ensure_alarm(now_ms())
        hit("ensure:after")

    # --- the run ---------------------------------------------------------------------------------------------

    @workflow.run
    async def run(self, start: ObjectStart | None = None) -> None:
        """Passes, one at a time, until it is time for a fresh history."""
        del start  # taken by __init__; handlers may have run since, so it must not be read again here
        side = [self.watched(work) for work in (self.pump.run(), self.timer.follow(), self.deliveries.run())]
        while not self._leaving():
            await workflow.wait_condition(lambda: self._pass_due() or self._leaving() or self.broken is not None)
            self.raise_broken()
            if self._pass_due():
                await self.passes.run_one()
                # A pass that progressed and left work is followed at once: a sub-second timer would cost a second.
                self._follow = self.maintenance.ready_now(now_ms())
        await self._drain()
        for task in side:
            task.cancel()
        workflow.continue_as_new(ObjectStart(config=self.config, carried=self._carried()))

    def watched(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task whose defect fails the workflow task, visibly, instead of leaving the object half alive."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.broken = self.broken or task.exception()

    def raise_broken(self) -> None:
        """Raise the defect of a task, if one died."""
        if self.broken is not None:
            raise self.broken

    def _pass_due(self) -> bool:
        if self.pump.busy:
            return False
        deadline = self.maintenance.alarm.deadline
        return self._follow or (deadline is not None and deadline <= now_ms())

    def _timer_deadline(self) -> int | None:
        """What the one timer waits for. Nothing while the pump holds a batch: its end decides anew."""
        maintenance = self.maintenance
        timed = self.config.shared_host or len(maintenance.applications) or maintenance.state.installed.digest
        if self.pump.busy or (timed and self._decides_anew()):
            return None
        candidates = [
            self.pump.retry_at,
            # The batch goes first: an instant that has passed and cannot be acted on would hold all others back.
            None if self.inbox.entries else self.pump.ask_at,
            self.passes.wake_at() if self.passes.active else self.maintenance.alarm.deadline,
            self.deliveries.wake_at(),
        ]
        finite = [deadline for deadline in candidates if deadline is not None]
        return min(finite, default=None)

    def _decides_anew(self) -> bool:
        """A survey is in hand, or a pass starts in this very task: what is timed now would be replaced at once.

        Asked where a host, alarms or lanes make a timer likely. Needed there, not only thrifty: where a query comes
        with a task that runs a local activity, the SDK ends that task before it tells the answer, and on replay tells
        it in the same task. A timer started before such an answer and cancelled after it is then no command at all.
        """
        return self.passes.surveying or (not self.passes.active and self._pass_due())

    def continue_wanted(self) -> bool:
        """It is time for a fresh history, and no delivery runs that could still end in this one.

        Activities do not survive the move. Under a load that outgrows the trigger by a quarter the object moves all
        the same: the alarm stays listed and is delivered again.
        """
        return self.moving() and (not self.maintenance.applications.running or self._grown(5, 4))

    def moving(self) -> bool:
        """Past the trigger for a fresh history: nothing new is begun that would have to be left behind."""
        return self._grown(1, 1)

    def _grown(self, times: int, parts: int) -> bool:
        """Our own trigger lies far below the server's suggestion, so that a cold replay stays short.

        What the run began with does not count: an object that carries much would move for ever and apply nothing.
        """
        info, config = workflow.info(), self.config
        length, size = self._begun_at
        return (
            info.is_continue_as_new_suggested()
            or (info.get_current_history_length() - length) * parts >= config.continue_events * times
            or (info.get_current_history_size() - size) * parts >= config.continue_bytes * times
            or self.updates * parts >= config.continue_updates * times
        )

    def _leaving(self) -> bool:
        return self.continue_wanted() and not self.retries.busy

    async def _drain(self) -> None:
        """Finish the batch in hand, take no new one, answer every waiting update."""
        self.closing = True
        await workflow.wait_condition(lambda: not self.pump.busy or self.broken is not None)
        self.raise_broken()
        for entry in self.inbox.waiting():
            # The client sends the same key again; nothing of this entry has reached storage.
            self.inbox.drop([entry])
            if entry.waiter is not None and not entry.waiter.done():
                entry.waiter.set_result(Busy(reason="the object is moving to a fresh history"))
        await workflow.wait_condition(workflow.all_handlers_finished)

    def _carried(self) -> Carried:
        return Carried(
            maintenance=self.maintenance.state.to_json(),
            inbox=self.inbox.carried(),
            next_n=self.inbox.next_n,
            next_mark=self.pump.next_mark,
            applied_through=self.pump.applied_through,
            unmark_through=self.pump.unmark_through,
            ended_attempts=tuple(
                EndedAttempts(thread_id=thread_id, attempt_ids=tuple(ids))
                for thread_id, ids in sorted(self.passes.ended.items())
            ),
            refusals=tuple(self.refusals),
            refused_total=self.refused_total,
            passes=tuple(self.reports),
            faults=tuple(self.passes.faults[key] for key in sorted(self.passes.faults)),
            parked_reports=tuple(self.parked_reports),
            survey=self.pump.carried_survey(),
            runs=self.runs,
            applied_total=self.pump.applied_total,
            settled_total=self.settled_total,
            last_failure=self.last_failure,
            apply_stalls=self.pump.stalls,
            lane_failures=tuple(self.waves.failures.values()),
        )

    # --- mutations -----------------------------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Any signal, known or not. Never raises: what cannot be taken becomes an entry of the refusal list."""
        mutation = None
        try:
            message = self._decode(name, args, limits.SIGNAL_BYTES_MAX)
            if isinstance(message, Wake):
                self._wake(message)
                return
            if isinstance(message, _inbox.AlarmMessage):
                self.deliveries.take(message)
                return
            if isinstance(message, Retry):
                raise InvalidInput(what="retry: it is answered, so it is asked as an update")
            mutation = message
            if isinstance(mutation, Schedule) and self.maintenance.handles(mutation.lane):
                self.pump.schedule(mutation)
                return
            if self.inbox.saturated:
                raise Busy(reason="inbox saturated")
            self.inbox.add(mutation, _inbox.carried_bytes(mutation, args))
        except ThreadError as error:
            self.refuse(_inbox.refused(name, args, error, now_ms(), mutation))

    @workflow.update(dynamic=True)
    async def on_update(self, name: str, args: Sequence[RawValue]) -> Any:
        """Any mutation as an update: answered with its typed answer, or refused with a typed error."""
        self.updates += 1
        try:
            mutation = self._decode(name, args, limits.UPDATE_BYTES_MAX)
        except ThreadError as error:
            # Past the validator only on replay, by code that has become stricter since.
            raise to_application_error(error) from None
        if isinstance(mutation, Wake):
            self._wake(mutation)
            return alarm_view(self.maintenance, self.timer)
        if isinstance(mutation, _inbox.AlarmMessage):
            return self._take_alarm(mutation)
        if isinstance(mutation, Schedule) and self.maintenance.handles(mutation.lane):
            return self.pump.schedule(mutation)
        if isinstance(mutation, Retry):
            try:
                return await self.retries.ask(mutation)
            except ThreadError as error:
                raise to_application_error(error) from None
        if self.closing:
            raise to_application_error(Busy(reason="the object is moving to a fresh history"))
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.inbox.add(mutation, _inbox.payload_bytes(args), waiter)
        answer = await waiter
        if isinstance(answer, ThreadError):
            raise to_application_error(answer)
        return answer

    @on_update.validator
    def check_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse malformed input before anything is written."""
        try:
            message = self._decode(name, args, limits.UPDATE_BYTES_MAX)
            if isinstance(message, _inbox.AlarmMessage):
                self.deliveries.check(message)
            elif self.inbox.saturated:
                raise Busy(reason="inbox saturated")
        except ThreadError as error:
            raise to_application_error(error) from None

    def _take_alarm(self, message: _inbox.AlarmMessage) -> Any:
        try:
            return self.deliveries.take(message)
        except ThreadError as error:
            raise to_application_error(error) from None

    def _decode(self, name: str, args: Sequence[RawValue], bytes_max: int) -> Any:
        mutation = _inbox.decode(name, args, bytes_max=bytes_max)
        if isinstance(mutation, Schedule):
            _inbox.check_schedule(mutation)
            return mutation
        if not isinstance(mutation, Wake) and not self.config.shared_host and mutation.thread_id != self.object_id:
            raise InvalidInput(what=f"{name}: this object owns the thread {self.object_id}, not {mutation.thread_id}")
        return mutation

    def _wake(self, wake: Wake) -> None:
        now = now_ms()
        if wake.registry_key is not None and wake.deployment is not None:
            self.maintenance.observe_registry(wake.registry_key, wake.deployment, now)
            if wake.late and wake.registry_key == self.maintenance.state.registry_key:
                self.maintenance.look_again(now)
        if wake.mark is not None:
            self.pump.note_mark(wake.mark, now)
        if self.maintenance.unhandled:
            self.pump.ask_installed = True
        self.maintenance.hint(now)

    def observe(self, registry: Registry, installed: Installed | None, now: int) -> None:
        """An answer says which agents and which extensions its worker serves."""
        if registry.key:
            self.maintenance.observe_registry(registry.key, registry.deployment, now)
        if installed is not None:
            self.maintenance.install(installed, now)

    def refuse(self, entry: Any) -> None:
        """Keep the trace of a refused signal, the newest `REFUSALS_MAX` of them."""
        self.refusals = [*self.refusals, entry][-limits.REFUSALS_MAX :]
        self.refused_total += 1

    # --- queries ---------------------------------------------------------------------------------------------------

    @workflow.query(name=names.QUERY_REPORT)
    def report(self, thread_id: str | None = None) -> ObjectReport:
        """Everything at a glance; of a shared host with the lists of one Thread, where one is named."""
        return object_report(self, thread_id if self.config.shared_host else None)

    @workflow.query(name=names.QUERY_STATUS)
    def status(self, submission_id: str) -> StatusView:
        """What the workflow itself knows of a Submission."""
        return status_view(self, submission_id)

    @workflow.query(name=names.QUERY_ALARM)
    def alarm(self) -> AlarmView:
        """The alarm slot."""
        return alarm_view(self.maintenance, self.timer)

    @workflow.query(name=names.QUERY_ALARMS)
    def alarms(self, thread_id: str | None = None) -> list[NamedAlarm]:
        """The application alarms, of one Thread or of all, the next one first."""
        return named_alarms(self.maintenance, thread_id)

    @workflow.query(name=names.QUERY_LANES)
    def lanes(self) -> list[LaneView]:
        """The rows of the due queue, by id."""
        return list(lane_views(self.maintenance))

    @workflow.query(name=names.QUERY_GENERATION)
    def generation(self) -> GenerationView:
        """Dirty and processed generations."""
        return generation_view(self.maintenance)

    @workflow.query(name=names.QUERY_RECOVERY_STATUS)
    def recovery_status(self, thread_id: str | None = None) -> RecoveryStatus:
        """The retained fault of a Thread, by default the object's own."""
        return RecoveryStatus(fault=self.passes.faults.get(thread_id or self.object_id))

    @workflow.query(name=names.QUERY_PASSES)
    def last_passes(self) -> list[MaintenancePassReport]:
        """The last passes, oldest first."""
        return list(self.reports)
