"""The delivery of an application alarm: one call of the handler that this worker has for its tag.

Rule guarded: only a handler that returned has taken the alarm. What it raised leaves as a class name, since a message
may hold what nobody wants in a history; the worker's log has the whole of it. One that does not come back costs its
delivery, not a slot of the worker.
"""

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from thread_objects import failpoints
from thread_objects.alarms import AlarmHandler, DueAlarm
from thread_objects.contract import limits, names
from thread_objects.contract.alarms import DeliverRequest
from thread_objects.errors import AlarmHandlerUnavailable, ThreadError, to_application_error

from .control import Control
from .event_loop import run_on_own_loop
from .pulse import pulse

LOOK_S = 0.1
log = structlog.get_logger("alarms")


class AlarmActivities:
    """Deliveries with the handlers of one worker process."""

    def __init__(self, handlers: Mapping[str, AlarmHandler]) -> None:
        self._handlers = handlers

    @activity.defn(name=names.ACTIVITY_DELIVER_ALARM, no_thread_cancel_exception=True)
    def deliver_alarm(self, request: DeliverRequest) -> None:
        """Hand one alarm over. Repeated by the object until it returns."""
        control = Control()
        with pulse.beating(control):
            try:
                self.deliver(request, control)
            except ThreadError as error:
                raise to_application_error(error) from error
            except Exception as error:
                log.exception("alarm handler failed", tag=request.tag, alarm_id=request.alarm_id)
                raise ApplicationError("the handler failed", type=type(error).__name__, non_retryable=True) from None

    def deliver(self, request: DeliverRequest, control: Control) -> None:
        """The same without Temporal."""
        handler = self._handlers.get(request.tag)
        if handler is None:
            raise AlarmHandlerUnavailable(tag=request.tag)
        failpoints.hit("alarm:before")
        alarm = DueAlarm(
            object_id=request.object_id,
            thread_id=request.thread_id,
            tag=request.tag,
            alarm_id=request.alarm_id,
            payload=request.payload,
            run_at=datetime.fromtimestamp(request.run_at / 1_000, UTC),
            attempt=request.attempt,
            dedupe_key=request.dedupe_key,
        )
        pending = _called(lambda: handler(alarm), control)
        if inspect.isawaitable(pending):
            run_on_own_loop(_watched(pending, control))
        failpoints.hit("alarm:after")


def _called(call: Callable[[], Awaitable[None] | None], control: Control) -> Awaitable[None] | None:
    """What the handler answers, for as long as its delivery counts; told to end, it has the same grace."""
    answered: Future[Awaitable[None] | None] = Future()
    copied = contextvars.copy_context()

    def main() -> None:
        try:
            answered.set_result(copied.run(call))
        except BaseException as error:  # noqa: BLE001 - foreign code: everything it raises is this delivery's end
            answered.set_exception(error)

    threading.Thread(target=main, name="alarm", daemon=True).start()
    ends_at = time.monotonic() + limits.ALARM_TIMEOUT_MS / 1_000
    told = False
    while True:
        try:
            return answered.result(LOOK_S)
        except TimeoutError:
            if answered.done():
                raise
        if control.told and not told:
            told, ends_at = True, min(ends_at, time.monotonic() + limits.ALARM_GRACE_MS / 1_000)
        if time.monotonic() >= ends_at:
            raise TimeoutError("the handler did not come back")


async def _watched(pending: Awaitable[None], control: Control) -> None:
    """Await the handler; once the delivery is cancelled (its time is over, the worker leaves) it has a grace left."""
    loop = asyncio.get_running_loop()
    task, over = asyncio.ensure_future(pending), asyncio.Event()

    def cancel_later() -> None:
        loop.call_later(limits.ALARM_GRACE_MS / 1_000, task.cancel)
        loop.call_later(2 * limits.ALARM_GRACE_MS / 1_000, over.set)

    def told() -> None:
        loop.call_soon_threadsafe(cancel_later)

    control.attach(told)
    giving_up = asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait((task, giving_up), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError("the handler ignores its cancellation")
        task.result()
    except asyncio.CancelledError:
        raise TimeoutError("the handler was cancelled") from None
    finally:
        control.attach(None)
        giving_up.cancel()
