"""Calls to Temporal: bounded, repeated while that may help, and failing with typed errors only."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from thread_objects.errors import Busy, InvalidInput, NotFound, ServerUnavailable, ThreadError, from_failure

T = TypeVar("T")

RETRY_S = 30.0
"""How long a retryable refusal is repeated before it reaches the caller."""
PAUSE_S_MIN = 0.01
PAUSE_S_MAX = 1.0

_MOVED = "AcceptedUpdateCompletedWorkflow"
_UNREACHABLE = {
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.ABORTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
}
_BUSY = {
    RPCStatusCode.RESOURCE_EXHAUSTED,
    # An update met a workflow task that the server took back (the object was moving to a fresh history).
    RPCStatusCode.FAILED_PRECONDITION,
}
_FAILURES = (
    RPCError,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowAlreadyStartedError,
)


async def call(attempt: Callable[[], Awaitable[T]], *, object_id: str, address: str) -> T:
    """Make the call. Retryable refusals are repeated for `RETRY_S`; every other one leaves at once, typed."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RETRY_S
    pause_s = PAUSE_S_MIN
    while True:
        try:
            return await attempt()
        except _FAILURES as failure:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # The SDK tells a cancelled wait as a failed update; whoever cancelled must not be kept waiting.
                raise asyncio.CancelledError from failure
            error = typed(failure, object_id=object_id, address=address)
            if not error.retryable or loop.time() + pause_s > until:
                raise error from failure
        await asyncio.sleep(pause_s)
        pause_s = min(PAUSE_S_MAX, pause_s * 2)


def typed(failure: BaseException, *, object_id: str, address: str) -> ThreadError:
    """The typed error that a failure of the Temporal client stands for."""
    known = from_failure(failure.__cause__)
    if known is not None:
        return known
    if isinstance(failure, RPCError):
        return _of_rpc(failure, object_id=object_id, address=address)
    cause = failure.__cause__
    if isinstance(cause, ApplicationError) and cause.type == _MOVED:
        return Busy(reason="the object moved to a fresh history")
    if isinstance(failure, WorkflowUpdateRPCTimeoutOrCancelledError):
        return ServerUnavailable(address=address, reason="no answer in time")
    return ThreadError(str(cause or failure))


def _of_rpc(failure: RPCError, *, object_id: str, address: str) -> ThreadError:
    if failure.status is RPCStatusCode.NOT_FOUND:
        return NotFound(what="thread object", id=object_id)
    if failure.status is RPCStatusCode.INVALID_ARGUMENT:
        # An id of 256 characters may be more bytes than the server takes.
        return InvalidInput(what=failure.message)
    if failure.status in _BUSY:
        return Busy(reason=failure.message)
    if failure.status in _UNREACHABLE:
        return ServerUnavailable(address=address, reason=failure.message)
    return ThreadError(failure.message)
