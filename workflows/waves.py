"""Runs the waves of users' extensions: one regular activity each, within its allowance, never retried by the server.

The row was charged in the stretch that starts the activity; the due queue decides about the next wave. An end is always
awaited, also that of a wave that was interrupted: what it committed until then counts.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from thread_objects.contract import limits, names
from thread_objects.contract.reports import LaneFailure
from thread_objects.contract.waves import PublishRequest, WaveAnswer, WaveRequest
from thread_objects.core.due_queue import MESSAGES, PROJECTION, PUBLICATION, RECOVERY_EVENTS
from thread_objects.core.event import Event, Publish, RunLane

from .failure import left_behind, told_wave, was_not_taken, was_stopped
from .timer import now_ms

if TYPE_CHECKING:
    from thread_objects.contract.object import Carried

    from .thread_object import ThreadObject

_ONCE = RetryPolicy(maximum_attempts=1)
_ACTIVITIES = {
    PROJECTION: names.ACTIVITY_PROJECT,
    MESSAGES: names.ACTIVITY_MESSAGES,
    RECOVERY_EVENTS: names.ACTIVITY_RECOVERY_EVENTS,
}

Wave = Publish | RunLane


class WaveRunner:
    """Open waves by command, and the last failure of every lane that has not succeeded since."""

    def __init__(self, owner: ThreadObject, carried: Carried) -> None:
        self._owner = owner
        self._handles: dict[Wave, workflow.ActivityHandle[WaveAnswer]] = {}
        self._asked: dict[str, int] = {}
        self.failures = {failure.lane: failure for failure in carried.lane_failures}

    def start(self, command: Wave) -> workflow.ActivityHandle[WaveAnswer]:
        """Schedule the wave's activity in this very stretch, so that it can be interrupted from the next one on."""
        match command:
            case Publish(generation=generation, deadline_at=deadline_at):
                allowance_ms = max(1, deadline_at - now_ms())
                handle = self._publish(allowance_ms, generation=generation)
            case RunLane(lane=lane, deadline_at=deadline_at):
                handle = self._lane(lane, max(1, deadline_at - now_ms()))
        self._handles[command] = handle
        return handle

    def interrupt(self, command: Wave) -> None:
        """Ask a wave to stop; its end is awaited all the same."""
        handle = self._handles.get(command)
        if handle is not None:
            handle.cancel()

    def keep(self, lane: str, due_at: int) -> None:
        """A plain schedule that comes while a wave of the lane runs is not that wave's: it is made again at its end.

        Replayed by another worker, the end of a wave and a message that followed it may arrive in either order.
        """
        if any(_lane_of(command) == lane for command in self._handles):
            self._asked[lane] = min(due_at, self._asked.get(lane, due_at))

    def make_again(self) -> bool:
        """Schedules whose wave has ended. True when there was one, so that the pass looks again."""
        if not self._asked:
            return False
        running = {_lane_of(command) for command in self._handles}
        ended = [lane for lane in sorted(self._asked) if lane not in running]
        for lane in ended:
            self._owner.maintenance.schedule(lane, self._asked.pop(lane), now_ms())
        return bool(ended)

    async def after_mutation(self) -> None:
        """The publication's own hooks. Their failure is told, and never turns the committed operation into an error."""
        try:
            answer = await self._publish(limits.PUBLICATION_HOOK_MS, committed=True)
            self._learn(answer, None)
        except FailureError as failure:
            self._learn(left_behind(failure), failure)
            word = told_wave(PUBLICATION, failure)
            self._failed(PUBLICATION, word)
            workflow.logger.error("publication after a mutation failed", extra={"failure": word})

    # --- facts ----------------------------------------------------------------------------------------------------

    def feed(self, event: Event, command: Wave, answer: WaveAnswer | None, failure: BaseException | None) -> None:
        """Tell the running pass how the wave ended, progress first."""
        now = now_ms()
        lane = _lane_of(command)
        self._handles.pop(command, None)
        left = answer if answer is not None else left_behind(failure)
        self._learn(left, failure)
        if left.acknowledged:
            self._owner.maintenance.event_acknowledged(left.acknowledged, now)
        if failure is None:
            self.failures.pop(lane, None)
            if isinstance(command, Publish):
                event.published(left.due_at, now, progressed=left.progressed)
            else:
                event.lane_ended(lane, left.due_at, now, progressed=left.progressed)
            return
        word = told_wave(lane, failure)
        stopped = lane == PROJECTION and was_stopped(failure)
        if not stopped:
            self._failed(lane, word)
        if isinstance(command, Publish):
            event.publish_failed(word, now, progressed=left.progressed)
        else:
            event.lane_failed(lane, word, now, progressed=left.progressed, stopped=stopped)

    def _learn(self, left: WaveAnswer, failure: BaseException | None) -> None:
        """Of what is installed: from whoever answered; where nobody took the wave at all, by asking."""
        if left.installed is not None:
            self._owner.maintenance.install(left.installed, now_ms())
        elif was_not_taken(failure):
            self._owner.pump.ask_installed = True

    def _failed(self, lane: str, word: str) -> None:
        self.failures.pop(lane, None)
        self.failures[lane] = LaneFailure(lane=lane, failure=word, at=now_ms())
        while len(self.failures) > limits.LANE_FAILURES_MAX:
            self.failures.pop(next(iter(self.failures)))

    # --- activities -----------------------------------------------------------------------------------------------

    def _publish(
        self, allowance_ms: int, *, generation: int | None = None, committed: bool = False
    ) -> workflow.ActivityHandle[WaveAnswer]:
        request = PublishRequest(
            object_id=self._owner.object_id,
            allowance_ms=allowance_ms,
            generation=generation,
            committed=committed,
            installed=self._owner.maintenance.state.installed.digest,
        )
        return self._schedule(names.ACTIVITY_PUBLISH, request, allowance_ms, own_queue=True)

    def _lane(self, lane: str, allowance_ms: int) -> workflow.ActivityHandle[WaveAnswer]:
        state = self._owner.maintenance.state
        request = WaveRequest(
            object_id=self._owner.object_id, lane=lane, allowance_ms=allowance_ms, installed=state.installed.digest
        )
        # Without a consumer events are only acknowledged, which every worker can do.
        own_queue = lane != RECOVERY_EVENTS or state.installed.recovery_events
        if lane == RECOVERY_EVENTS:
            record = state.record
            bounds = {"after": record.event_acknowledged, "through": record.event_sequence}
            request = request.model_copy(update=bounds)
        return self._schedule(_ACTIVITIES.get(lane, names.ACTIVITY_LANE), request, allowance_ms, own_queue=own_queue)

    def _schedule(
        self, name: str, request: Any, allowance_ms: int, *, own_queue: bool
    ) -> workflow.ActivityHandle[WaveAnswer]:
        allowance = timedelta(milliseconds=allowance_ms)
        return workflow.start_activity(
            name,
            request,
            result_type=WaveAnswer,
            task_queue=workflow.info().task_queue + names.WAVES_QUEUE_SUFFIX if own_queue else None,
            # Nobody may be there to take it: waiting counts too.
            schedule_to_close_timeout=allowance,
            schedule_to_start_timeout=timedelta(milliseconds=min(allowance_ms, limits.WAVE_TAKEN_MS_MAX)),
            start_to_close_timeout=allowance,
            heartbeat_timeout=timedelta(milliseconds=self._owner.config.heartbeat_timeout_ms),
            retry_policy=_ONCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


def _lane_of(command: Wave) -> str:
    return PUBLICATION if isinstance(command, Publish) else command.lane
