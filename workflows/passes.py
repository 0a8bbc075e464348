"""Runs one pass: turns the commands of the pure event machine into activities and feeds their ends back.

The machine decides; this file only starts, waits and reports. One pass at a time. An activity that fails is a fact
for the machine, never an error of the workflow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from thread_objects import failpoints
from thread_objects.contract import limits, names
from thread_objects.contract.activities import (
    AttemptAnswer,
    AttemptRequest,
    RecoverAnswer,
    RecoverRequest,
    SurveyAnswer,
    SurveyRequest,
)
from thread_objects.contract.ids import producer_id
from thread_objects.contract.reports import MaintenancePassReport, RunningAttempt
from thread_objects.contract.views import Fault, Page
from thread_objects.core.event import (
    AttemptThread,
    Cancel,
    Command,
    Event,
    PassReport,
    Publish,
    RecoverThread,
    RunLane,
    Survey,
)

from .crash_points import hit
from .failure import is_outage, told
from .timer import now_ms

if TYPE_CHECKING:
    from thread_objects.contract.object import Carried

    from .thread_object import ThreadObject

_ONCE = RetryPolicy(maximum_attempts=1)
_QUICK_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=50), maximum_interval=timedelta(milliseconds=500), maximum_attempts=4
)


class PassRunner:
    """`active` while a pass runs. Keeps the open Attempts and the ids of those that ended without an answer."""

    def __init__(self, owner: ThreadObject, carried: Carried) -> None:
        self._owner = owner
        self._event: Event | None = None
        self._ends: list[tuple[Command, Any, BaseException | None]] = []
        self._tasks: dict[Command, asyncio.Task[None]] = {}
        self._handles: dict[str, workflow.ActivityHandle[AttemptAnswer]] = {}
        self.running: dict[str, RunningAttempt] = {}
        self.begun: dict[str, str] = {}
        """Attempts that began with the batch of their input, by Thread: the next one to be started is that one."""
        self.offered: dict[str, str] = {}
        """Head starts that may live and be adopted yet, by Thread: superseded by nothing but the next Attempt."""
        self.ended = {entry.thread_id: list(entry.attempt_ids) for entry in carried.ended_attempts}
        self.faults: dict[str, Fault] = {fault.thread_id: fault for fault in carried.faults}

    @property
    def active(self) -> bool:
        """A pass is running."""
        return self._event is not None

    @property
    def surveying(self) -> bool:
        """A survey is in hand, or something ended that is still to be looked at."""
        return bool(self._ends) or any(isinstance(command, Survey) for command in self._tasks)

    def wake_at(self) -> int | None:
        """The next instant at which the running pass could start something."""
        return None if self._event is None else self._event.wake_at()

    def tell_to_look(self, thread_id: str) -> None:
        """An abort intent was stored for the running Attempt's Submission: cancellation makes it look."""
        handle = self._handles.get(thread_id)
        if handle is not None:
            handle.cancel()

    async def run_one(self) -> None:
        """One pass, from begin to the alarm decision."""
        owner, maintenance = self._owner, self._owner.maintenance
        started_at = now_ms()
        event = self._event = maintenance.begin_event(started_at)
        hit("begin:after")
        yielded = False
        while True:
            for command in event.advance(now_ms(), workflow.random().random()):
                self._start(command)
            hit(*event.take_steps())
            again = owner.waves.make_again()
            if event.done:
                break
            if again:
                continue
            revision, wake_at = maintenance.revision, event.wake_at()
            await workflow.wait_condition(
                lambda: (
                    bool(self._ends)
                    or owner.broken is not None
                    or maintenance.revision != revision  # noqa: B023 - read again at every look
                    or (wake_at is not None and wake_at <= now_ms())  # noqa: B023
                    or (not yielded and owner.continue_wanted())  # noqa: B023
                )
            )
            owner.raise_broken()
            if not yielded and owner.continue_wanted():
                # Ends admission and asks the Attempts to come to a Turn boundary; their facts still arrive below.
                yielded = True
                event.stop_admission()
                for handle in self._handles.values():
                    handle.cancel()
            self._feed(event)
            hit(*event.take_steps())
        facts = event.finish(now_ms(), workflow.random().random())
        if again:
            # As promptly as if the schedule had come after this pass: by a replay it may.
            maintenance.hint(now_ms())
        hit(*event.take_steps())
        self._event = None
        self._note(facts, started_at)

    def _note(self, facts: PassReport, started_at: int) -> None:
        owner = self._owner
        report = MaintenancePassReport(
            phase=facts.phase,
            recovered=facts.recovered,
            settled=facts.settled,
            nonterminal=facts.nonterminal,
            alarm=facts.alarm,
            started_at=started_at,
            ended_at=now_ms(),
            failure=facts.failure,
        )
        if facts.failure is not None and owner.maintenance.unhandled:
            owner.pump.ask_installed = True
        owner.reports = [*owner.reports, report][-limits.PASSES_MAX :]
        if facts.failure is not None:
            owner.last_failure = facts.failure
        for lane in facts.parked:
            owner.parked_reports = [*owner.parked_reports, lane][-limits.PASSES_MAX :]
            workflow.logger.error(
                "maintenance retry parked", extra={"lane": lane, "retry_after_ms": limits.QUEUE_PARKED_RETRY_MS}
            )
        for wait in facts.newly_unbound:
            workflow.logger.error("no binding for the agent", extra={"submission_id": wait.submission_id})

    # --- commands -----------------------------------------------------------------------------------------------

    def _start(self, command: Command) -> None:
        match command:
            case Survey():
                self._spawn(command, survey(self._owner, command.page, command.after))
            case RecoverThread():
                self._spawn(command, self._recover(command))
            case AttemptThread():
                self._spawn(command, self._attempt(command))
            case Publish() | RunLane():
                self._spawn(command, self._owner.waves.start(command))
            case Cancel():
                self._interrupt(command.command)
            case _:
                assert_never(command)

    def _interrupt(self, command: Command) -> None:
        # The end of the interrupted command is still awaited and reported as usual.
        if isinstance(command, AttemptThread):
            self.tell_to_look(command.thread_id)
        elif isinstance(command, Publish | RunLane):
            self._owner.waves.interrupt(command)
        elif (task := self._tasks.get(command)) is not None:
            task.cancel()

    def _spawn(self, command: Command, work: Awaitable[Any]) -> None:
        self._tasks[command] = self._owner.watched(self._settle(command, work))

    async def _settle(self, command: Command, work: Awaitable[Any]) -> None:
        try:
            answer = await work
        except (FailureError, asyncio.CancelledError) as failure:
            self._ends.append((command, None, failure))
        else:
            self._ends.append((command, answer, None))
        finally:
            self._tasks.pop(command, None)

    async def _recover(self, command: RecoverThread) -> RecoverAnswer:
        owner, attempt_id = self._owner, str(workflow.uuid4())
        try:
            answer: RecoverAnswer = await workflow.execute_activity(
                names.ACTIVITY_RECOVER,
                RecoverRequest(
                    object_id=owner.object_id,
                    thread_id=command.thread_id,
                    producer_id=producer_id(names.PRODUCER_PREFIX, owner.object_id),
                    ended_attempts=self.over(command.thread_id),
                    cursor=command.cursor,
                    attempt_id=attempt_id,
                ),
                result_type=RecoverAnswer,
                start_to_close_timeout=timedelta(milliseconds=max(1, command.deadline_at - now_ms())),
                heartbeat_timeout=timedelta(milliseconds=owner.config.heartbeat_timeout_ms),
                retry_policy=_ONCE,
            )
        except (FailureError, asyncio.CancelledError):
            # Recovery takes short claims too; one that died with its worker must not hold the Thread for a lease.
            self.note_ended(command.thread_id, attempt_id)
            raise
        return answer

    async def _attempt(self, command: AttemptThread) -> AttemptAnswer:
        owner = self._owner
        thread_id = command.thread_id
        attempt_id = self.begun.pop(thread_id, None) or str(workflow.uuid4())
        if self.offered.get(thread_id) != attempt_id:
            self.offered.pop(thread_id, None)
        handle = self._handles[thread_id] = workflow.start_activity(
            names.ACTIVITY_ATTEMPT,
            AttemptRequest(
                object_id=owner.object_id,
                thread_id=thread_id,
                producer_id=producer_id(names.PRODUCER_PREFIX, owner.object_id),
                attempt_id=attempt_id,
                ended_attempts=tuple(self.ended.get(thread_id, ())),
                applied_through=owner.pump.applied_through,
                yield_at=command.yield_at,
                deadline_at=command.deadline_at,
            ),
            result_type=AttemptAnswer,
            start_to_close_timeout=timedelta(milliseconds=max(1, command.deadline_at - now_ms())),
            heartbeat_timeout=timedelta(milliseconds=owner.config.heartbeat_timeout_ms),
            retry_policy=_ONCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        self.running[thread_id] = RunningAttempt(thread_id=thread_id, attempt_id=attempt_id, since=now_ms())
        try:
            answer: AttemptAnswer = await handle
        except (FailureError, asyncio.CancelledError):
            # The activity is closed, so its lease may be superseded at once; the epoch fences a zombie.
            self.note_ended(thread_id, attempt_id)
            raise
        finally:
            self._handles.pop(thread_id, None)
            self.running.pop(thread_id, None)
            self.offered.pop(thread_id, None)
        return answer

    def over(self, thread_id: str) -> tuple[str, ...]:
        """The Attempts of this Thread that nobody runs any more, whoever asks."""
        alive = self.offered.get(thread_id)
        return tuple(attempt_id for attempt_id in self.ended.get(thread_id, ()) if attempt_id != alive)

    def note_ended(self, thread_id: str, attempt_id: str) -> None:
        """This activity is over without an answer: a lease it left may be superseded."""
        noted = [known for known in self.ended.pop(thread_id, []) if known != attempt_id]
        self.ended[thread_id] = [*noted, attempt_id][-limits.ENDED_ATTEMPTS_MAX :]
        while len(self.ended) > limits.HOST_ENDED_THREADS_MAX:
            # The one heard of least lately: its Thread waits for the lease, which is a matter of seconds.
            self.ended.pop(next(iter(self.ended)))

    # --- ends ------------------------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        ends, self._ends = self._ends, []
        self._owner.maintenance.in_task(workflow.info().get_current_history_length())
        for command, answer, failure in ends:
            now = now_ms()
            match command:
                case Survey(page=page):
                    if failure is None:
                        self._owner.pump.see(answer.survey, page)
                        self._owner.maintenance.events_recorded(answer.survey.event_sequence, now)
                        self._owner.observe(answer.registry, answer.installed, now)
                        event.surveyed(answer.survey, now)
                    else:
                        event.survey_failed(told(failure), now, outage=is_outage(failure))
                case RecoverThread(thread_id=thread_id):
                    if failure is None:
                        self._keep_fault(thread_id, answer.recovered.fault)
                        self._owner.maintenance.events_recorded(answer.recovered.event_sequence, now)
                        self._owner.pump.see_view(answer.view)
                        event.recovered(thread_id, answer, now)
                    else:
                        event.recovery_failed(thread_id, told(failure), now, outage=is_outage(failure))
                case AttemptThread(thread_id=thread_id):
                    if failure is None:
                        self._answered(answer, thread_id)
                        event.attempt_ended(thread_id, answer, now)
                    else:
                        event.attempt_failed(thread_id, told(failure), now, outage=is_outage(failure))
                case Publish() | RunLane():
                    self._owner.waves.feed(event, command, answer, failure)

    def _answered(self, answer: AttemptAnswer, thread_id: str) -> None:
        if not workflow.unsafe.is_replaying():
            failpoints.hit("attempt:answered")
        if answer.submission_id is not None and answer.ended != "unbound":
            # It claimed, so no lease of the ended ones is left. An Attempt that only looked superseded nothing.
            self.ended.pop(thread_id, None)
        self._keep_fault(thread_id, answer.recovered.fault)
        self._owner.maintenance.events_recorded(answer.recovered.event_sequence, now_ms())
        if answer.settled is not None:
            self._owner.settled_total += 1
        self._owner.pump.see_view(answer.view)

    def _keep_fault(self, thread_id: str, fault: Fault | None) -> None:
        if fault is None:
            self.faults.pop(thread_id, None)
        elif thread_id in self.faults or len(self.faults) < limits.FAULTS_MAX:
            self.faults[thread_id] = fault


async def survey(owner: ThreadObject, page: Page | None = None, after: str | None = None) -> SurveyAnswer:
    """Read the control views of the object (or a page), and what its workers have installed where that is news."""
    answer: SurveyAnswer = await workflow.execute_local_activity(
        names.ACTIVITY_SURVEY,
        SurveyRequest(
            object_id=owner.object_id,
            installed=owner.maintenance.state.installed.digest,
            page=page,
            discover_after=None if page is None else after,
        ),
        result_type=SurveyAnswer,
        schedule_to_close_timeout=timedelta(milliseconds=owner.config.apply_timeout_ms),
        retry_policy=_QUICK_RETRIES,
    )
    return answer
