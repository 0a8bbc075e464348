"""What a failed activity tells a pass: one bounded word, and whether the database was away.

A local activity's failure arrives wrapped in an `ActivityError` when it happens and bare when its marker is replayed:
everything here looks past the wrapping, so that the state comes out the same.
"""

from contextlib import suppress

from temporalio import exceptions
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, TimeoutType

from thread_objects.contract import limits
from thread_objects.contract.waves import WaveAnswer
from thread_objects.errors import StoreUnavailable, WaveFailed, from_failure


def told(failure: BaseException) -> str:
    """Class names and static words only, never a payload."""
    cause = _bare(failure)
    if isinstance(cause, ApplicationError):
        return (cause.type or "failure")[: limits.NAME_CHARS_MAX]
    if isinstance(cause, exceptions.TimeoutError):
        kind = cause.type.name if isinstance(cause.type, TimeoutType) else "some"
        return f"{kind.lower().replace('_', '-')} timeout"
    return type(cause).__name__


def is_outage(failure: BaseException) -> bool:
    """The database was away: nobody's fault, so it must not park native work for an hour."""
    return isinstance(from_failure(_bare(failure)), StoreUnavailable)


def told_wave(lane: str, failure: BaseException) -> str:
    """The same for a wave: which lane, why, and the class of what its handler raised."""
    error = from_failure(_bare(failure))
    if not isinstance(error, WaveFailed):
        return f"{lane}: {told(failure)}"[: limits.NAME_CHARS_MAX]
    return f"{lane}: {' '.join(word for word in (error.reason, error.error_tag) if word)}"[: limits.NAME_CHARS_MAX]


def was_stopped(failure: BaseException) -> bool:
    """A wave ran over its time, and was stopped for that by its worker or by the server."""
    cause = _bare(failure)
    error = from_failure(cause)
    return isinstance(cause, exceptions.TimeoutError) or (isinstance(error, WaveFailed) and error.reason == "timeout")


def not_taken(failure: BaseException) -> bool:
    """No worker took the activity in time."""
    cause = _bare(failure)
    return isinstance(cause, exceptions.TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_START


def was_not_taken(failure: BaseException | None) -> bool:
    """The server gave a wave up that no worker had begun."""
    cause = None if failure is None else _bare(failure)
    kinds = (TimeoutType.SCHEDULE_TO_START, TimeoutType.SCHEDULE_TO_CLOSE)
    return isinstance(cause, exceptions.TimeoutError) and cause.type in kinds


def left_behind(failure: BaseException | None) -> WaveAnswer:
    """What a wave that failed had committed before."""
    cause = None if failure is None else _bare(failure)
    if isinstance(cause, ApplicationError) and len(cause.details) > 1 and isinstance(cause.details[1], dict):
        with suppress(ValueError):
            return WaveAnswer.model_validate(cause.details[1])
    return WaveAnswer()


def _bare(failure: BaseException) -> BaseException:
    while isinstance(failure, ActivityError) and isinstance(failure.cause, FailureError):
        failure = failure.cause
    return failure
