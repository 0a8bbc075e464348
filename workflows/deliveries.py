"""Deliveries of application alarms: messages set and cancel them, one regular activity hands each due one over.

Rule guarded: the alarm is charged in the workflow task that schedules its activity, and only an end that was recorded
well takes it off the list. No delivery waits for a pass or a mutation, and none of those for it. The queue owns the
retries: an activity that fails is a fact, never tried again by the server.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from thread_objects.contract import limits, names
from thread_objects.contract.alarms import AlarmCancelled, AlarmSet, CancelAlarm, DeliverRequest, SetAlarm
from thread_objects.contract.ids import alarm_delivery_key
from thread_objects.core.application_alarms import AlarmName, ApplicationAlarm, Setting
from thread_objects.core.canonical import parse
from thread_objects.core.refusal import AlarmRefusal
from thread_objects.errors import AlarmHandlerUnavailable, DurableAlarmError

from .failure import not_taken, told
from .timer import now_ms

if TYPE_CHECKING:
    from .thread_object import ThreadObject

_ONCE = RetryPolicy(maximum_attempts=1)


class Deliveries:
    """Starts what is due, a bounded number at a time. While the object wants a fresh history nothing new starts."""

    def __init__(self, owner: ThreadObject) -> None:
        self._owner = owner
        self._alarms = owner.maintenance.applications

    # --- messages -----------------------------------------------------------------------------------------------

    def check(self, message: SetAlarm | CancelAlarm) -> None:
        """Refuse what `take` would refuse, before anything is written."""
        if isinstance(message, SetAlarm):
            try:
                self._alarms.admissible(message, now_ms())
            except AlarmRefusal as refusal:
                raise _typed(refusal) from None

    def take(self, message: SetAlarm | CancelAlarm) -> AlarmSet | AlarmCancelled:
        """Set or cancel: one stretch of workflow state, no storage. Raises `DurableAlarmError` past a bound."""
        name = AlarmName(message.thread_id, message.tag, message.alarm_id)
        if isinstance(message, CancelAlarm):
            delivering = self._alarms.is_delivering(name)
            return AlarmCancelled(**name._asdict(), cancelled=self._alarms.cancel(name), delivering=delivering)
        try:
            done = self._alarms.set(message, now_ms())
        except AlarmRefusal as refusal:
            raise _typed(refusal) from None
        return AlarmSet(
            **name._asdict(),
            run_at=message.run_at,
            replayed=done is Setting.UNCHANGED,
            replaced=done is Setting.REPLACED,
        )

    # --- deliveries ---------------------------------------------------------------------------------------------

    def wake_at(self) -> int | None:
        """When the next delivery may start."""
        at = self._alarms.next_at()
        return None if at is None or self._owner.moving() else at

    async def run(self) -> None:
        """Run for the life of the workflow run."""
        while True:
            await workflow.wait_condition(self._can_start)
            for alarm in self._alarms.begin_due(now_ms(), workflow.random().random()):
                self._owner.watched(self._deliver(alarm))

    def _can_start(self) -> bool:
        at = self.wake_at()
        return at is not None and at <= now_ms()

    async def _deliver(self, alarm: ApplicationAlarm) -> None:
        owner, name = self._owner, alarm.name
        request = DeliverRequest(
            object_id=owner.object_id,
            **name._asdict(),
            run_at=alarm.run_at,
            attempt=alarm.attempts,
            dedupe_key=alarm_delivery_key(*name, alarm.run_at, alarm.payload_digest),
            payload=parse(alarm.payload),
        )
        try:
            await workflow.execute_activity(
                names.ACTIVITY_DELIVER_ALARM,
                request,
                task_queue=workflow.info().task_queue + names.WAVES_QUEUE_SUFFIX,
                schedule_to_start_timeout=timedelta(milliseconds=limits.ALARM_PICKUP_MS),
                start_to_close_timeout=timedelta(milliseconds=limits.ALARM_TIMEOUT_MS),
                heartbeat_timeout=timedelta(milliseconds=owner.config.heartbeat_timeout_ms),
                retry_policy=_ONCE,
            )
        except (FailureError, asyncio.CancelledError) as failure:
            word = AlarmHandlerUnavailable.code if not_taken(failure) else told(failure)
            self._alarms.failed(alarm, word, now_ms(), workflow.random().random())
        else:
            self._alarms.delivered(alarm)


def _typed(refusal: AlarmRefusal) -> DurableAlarmError:
    return DurableAlarmError(f"alarm refused: {refusal}", operation=refusal.operation)
