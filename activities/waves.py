"""Waves of extensions as Temporal sees them: synchronous activities with a heartbeat, one wave each.

Nothing here is retried: the object's due queue charges, backs off and parks. A wave's failure carries what it left
behind, so that facts it committed are not waited for.
"""

from collections.abc import Callable

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError

from thread_objects.clock import Clock
from thread_objects.contract import names
from thread_objects.contract.lanes import Installed
from thread_objects.contract.waves import PublishRequest, WaveAnswer, WaveRequest
from thread_objects.core.due_queue import MESSAGES, PROJECTION, PUBLICATION, RECOVERY_EVENTS
from thread_objects.errors import ThreadError, WaveFailed, to_application_error
from thread_objects.extensions import Due, Extensions, WaveContext
from thread_objects.ports import Store

from .control import Control
from .event_delivery import EventDelivery
from .handling import Body, Calls, Handling, WaveCancelled, WaveResult
from .pulse import pulse

Request = WaveRequest | PublishRequest


class WaveActivities:
    """Waves of one worker process."""

    def __init__(
        self, extensions: Extensions, store: Store, *, clock: Clock, installed: Installed | None = None
    ) -> None:
        self._installed = installed or extensions.installed
        self._extensions = extensions
        self._store = store
        self._clock = clock

    def listed(self) -> list[Callable[..., object]]:
        """What the queue of waves serves."""
        return [self.publish, self.project, self.messages, self.lane, self.recovery_events]

    @activity.defn(name=names.ACTIVITY_PUBLISH, no_thread_cancel_exception=True)
    def publish(self, request: PublishRequest) -> WaveAnswer:
        """Invalidate after a mutation, or prepare a new generation; then drain."""
        return self._run(request, PUBLICATION, self.publishing(request))

    @activity.defn(name=names.ACTIVITY_PROJECT, no_thread_cancel_exception=True)
    def project(self, request: WaveRequest) -> WaveAnswer:
        """One bounded piece of the projection."""
        return self._run(request, PROJECTION, self.projecting())

    @activity.defn(name=names.ACTIVITY_MESSAGES, no_thread_cancel_exception=True)
    def messages(self, request: WaveRequest) -> WaveAnswer:
        """Prepare, then deliver."""
        return self._run(request, MESSAGES, self.delivering())

    @activity.defn(name=names.ACTIVITY_LANE, no_thread_cancel_exception=True)
    def lane(self, request: WaveRequest) -> WaveAnswer:
        """One wave of a host lane."""
        return self._run(request, request.lane, self.running(request.lane))

    @activity.defn(name=names.ACTIVITY_RECOVERY_EVENTS, no_thread_cancel_exception=True)
    def recovery_events(self, request: WaveRequest) -> WaveAnswer:
        """Deliver recovery events in order, acknowledging one by one; without a handler they are dropped."""
        handler = self._extensions.recovery_events

        def delivery(handling: Handling) -> Body:
            return EventDelivery(handler, self._store, self._clock, handling, request)

        return self._handle(request, RECOVERY_EVENTS, delivery)

    # --- what the waves do; None where this worker has no handler -----------------------------------------------

    def publishing(self, request: PublishRequest) -> Body | None:
        """The publication's calls, in their order."""
        publication = self._extensions.publication
        if publication is None:
            return None

        def body(call: Calls, context: WaveContext) -> Due:
            if request.committed:
                call(publication.invalidate, context)
            if request.generation is not None:
                call(publication.prepare_generation, context, request.generation)
            due: Due = call(publication.drain, context)
            return due

        return body

    def projecting(self) -> Body | None:
        """The projection's call."""
        projection = self._extensions.projection
        return None if projection is None else lambda call, context: call(projection.backfill, context)

    def delivering(self) -> Body | None:
        """The message driver's calls, in their order."""
        driver = self._extensions.messages
        if driver is None:
            return None
        return lambda call, context: call(driver.deliver, context, call(driver.prepare, context))

    def running(self, lane: str) -> Body | None:
        """The lane's call."""
        handler = self._extensions.lanes.get(lane)
        return None if handler is None else lambda call, context: call(handler.run, context)

    # --- underneath -----------------------------------------------------------------------------------------------

    def _run(self, request: Request, lane: str, body: Body | None) -> WaveAnswer:
        if body is None:
            # An older or newer deployment than the object knows of; the queue tries again, elsewhere.
            raise failure_of(WaveFailed(lane=lane, reason="unhandled"), self._told(request, WaveAnswer()))
        return self._handle(request, lane, lambda _handling: body)

    def _handle(self, request: Request, lane: str, body: Callable[[Handling], Body]) -> WaveAnswer:
        control = Control()
        with pulse.beating(control):
            handling = handling_here(self._extensions, self._clock, request, lane, control)
            result = handling.run(body(handling))
            result.answer = self._told(request, result.answer)
            return answered(result, lane)

    def _told(self, request: Request, answer: WaveAnswer) -> WaveAnswer:
        """Any contact with a deployment that the object has not heard of tells of it."""
        if request.installed == self._installed.digest:
            return answer
        return answer.model_copy(update={"installed": self._installed})


def handling_here(extensions: Extensions, clock: Clock, request: Request, lane: str, control: Control) -> Handling:
    """The wave of the running activity: what it waited for a free slot is part of its allowance."""
    info = activity.info()
    # Both instants are the server's: no worker's clock decides how long a wave may take.
    waited_ms = int((info.started_time - info.current_attempt_scheduled_time).total_seconds() * 1_000)
    return Handling(
        extensions,
        request.object_id,
        lane,
        f"{info.workflow_run_id}:{info.activity_id}",
        clock.now(),
        max(1, request.allowance_ms - max(0, waited_ms)),
        control,
        leaving=activity.is_worker_shutdown,
    )


def answered(result: WaveResult, lane: str) -> WaveAnswer:
    """The answer; or the failure, with what the wave left behind."""
    if result.error is None:
        return result.answer
    if isinstance(result.error, WaveCancelled):
        if activity.is_cancelled():
            raise CancelledError("wave cancelled")
        raise failure_of(WaveFailed(lane=lane, reason="shutdown"), result.answer)
    raise failure_of(result.error, result.answer) from result.error


def failure_of(error: ThreadError, answer: WaveAnswer) -> ApplicationError:
    """A typed failure whose second detail is the wave's answer."""
    failure = to_application_error(error)
    return ApplicationError(
        failure.message,
        *failure.details,
        answer.model_dump(mode="json", by_alias=True),
        type=failure.type,
        non_retryable=True,
    )
