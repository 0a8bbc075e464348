"""Retries that operators ask for: one activity at a time, and what it did becomes a generation of the object.

A retry may run beside a pass and beside an Attempt: the claim decides between them. Nothing is acknowledged over it,
since what it did is prearmed and counted as progress in the stretch that takes its end, also where that end tells
nothing of what was done. The object takes no fresh history while one runs.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from thread_objects.contract import limits, names
from thread_objects.contract.ids import producer_id
from thread_objects.contract.operations import RetryAnswer, RetryDone, RetryRequest
from thread_objects.core.due_queue import NATIVE
from thread_objects.errors import Busy, InvalidInput, NotFound, OperationDenied, RetryRefused, ThreadError, from_failure

from .timer import now_ms

if TYPE_CHECKING:
    from thread_objects.contract.messages import Retry

    from .thread_object import ThreadObject

WAITING_MAX = 8
_BOUND = timedelta(milliseconds=limits.RECOVERY_TIMEOUT_MS + 10_000)
_QUEUED = timedelta(seconds=30)
_NOTHING_DONE = (RetryRefused, NotFound, OperationDenied, InvalidInput)


class Retries:
    """`busy` while one is in hand or waits."""

    def __init__(self, owner: ThreadObject) -> None:
        self._owner = owner
        self._waiting: dict[Retry, asyncio.Future[RetryAnswer | ThreadError]] = {}

    @property
    def busy(self) -> bool:
        """Somebody waits for an answer."""
        return bool(self._waiting)

    async def ask(self, retry: Retry) -> RetryAnswer:
        """The answer, or its typed error. Who asks the same again while it runs waits for the same answer."""
        answered = self._waiting.get(retry)
        if answered is None:
            if self._owner.closing or self._owner.continue_wanted() or len(self._waiting) >= WAITING_MAX:
                raise Busy(reason="the object takes no retry just now")
            answered = self._waiting[retry] = asyncio.get_running_loop().create_future()
            if len(self._waiting) == 1:
                self._owner.watched(self._run())
        answer = await answered
        if isinstance(answer, ThreadError):
            raise answer
        return answer

    async def _run(self) -> None:
        while self._waiting:
            retry, answered = next(iter(self._waiting.items()))
            answer = await self._one(retry)
            del self._waiting[retry]
            answered.set_result(answer)

    async def _one(self, retry: Retry) -> RetryAnswer | ThreadError:
        owner, attempt_id = self._owner, str(workflow.uuid4())
        try:
            done: RetryDone = await workflow.execute_activity(
                names.ACTIVITY_RETRY,
                RetryRequest(
                    object_id=owner.object_id,
                    thread_id=retry.thread_id,
                    submission_id=retry.submission_id,
                    author=retry.author,
                    reason=retry.reason,
                    producer_id=producer_id(names.PRODUCER_PREFIX, owner.object_id),
                    attempt_id=attempt_id,
                    ended_attempts=owner.passes.over(retry.thread_id),
                ),
                result_type=RetryDone,
                schedule_to_start_timeout=_QUEUED,
                start_to_close_timeout=_BOUND,
                heartbeat_timeout=timedelta(milliseconds=owner.config.heartbeat_timeout_ms),
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except FailureError as failure:
            known = from_failure(failure)
            if isinstance(known, _NOTHING_DONE):
                return known
            # Its short claims may have died with their worker, and what it did is not known.
            owner.passes.note_ended(retry.thread_id, attempt_id)
            self._progressed()
            return known or Busy(reason="the worker that executed the retry ended before it answered")
        owner.pump.see_view(done.view)
        self._progressed()
        return done.answer

    def _progressed(self) -> None:
        # One stretch, as the pump's: the work is due before the body is over.
        maintenance, now = self._owner.maintenance, now_ms()
        maintenance.in_task(workflow.info().get_current_history_length())
        maintenance.release(maintenance.prearm(now), now, progressed=(NATIVE,))
        maintenance.hint(now)
