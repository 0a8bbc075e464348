"""What a failed activity tells a pass: one bounded word, and whether the database was away.

A local activity's failure arrives wrapped in an `ActivityError` when it happens and bare when its marker is replayed:
everything here looks past the wrapping, so that the state comes out the same.
"""

from temporalio import exceptions
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, TimeoutType

from thread_objects.contract import limits
from thread_objects.errors import StoreUnavailable, from_failure


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


def _bare(failure: BaseException) -> BaseException:
    while isinstance(failure, ActivityError) and isinstance(failure.cause, FailureError):
        failure = failure.cause
    return failure
