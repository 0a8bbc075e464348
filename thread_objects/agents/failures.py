"""What may be said of a failure, and whether asking a model again may help.

Rule guarded: a diagnostic holds a class name and a bounded message: no stack, no cause, no provider's payload.
"""

from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
)

from thread_objects.contract import limits
from thread_objects.contract.messages import Diagnostic
from thread_objects.errors import ThreadError

_PASSING = (
    ModelRateLimitError,
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
)
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_SERVER_SIDE = 500


def diagnose(error: BaseException) -> Diagnostic:
    """The diagnostic of a failed Settlement."""
    tag = error.code if isinstance(error, ThreadError) else type(error).__name__
    return Diagnostic(
        error_tag=tag[: limits.DIAGNOSTIC_TAG_CHARS_MAX],
        message=_message(error)[: limits.DIAGNOSTIC_MESSAGE_CHARS_MAX],
    )


def _message(error: BaseException) -> str:
    if isinstance(error, ModelHTTPError):
        code = f", code {error.provider_error_code}" if error.provider_error_code else ""
        return f"model {error.model_name!r} answered with status {error.status_code}{code}"
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(f"{type(inner).__name__}: {_message(inner)}" for inner in error.exceptions)
    return str(error) or type(error).__name__


def may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed later, as far as the provider's answer tells."""
    if isinstance(error, FallbackExceptionGroup):
        return any(may_pass(inner) for inner in error.exceptions)
    if not isinstance(error, ModelAPIError) or isinstance(error, (ModelQuotaExceededError, ModelRequestRejectedError)):
        return False
    if isinstance(error, ModelHTTPError):
        if error.provider_retry_hint is not None:
            return error.provider_retry_hint
        return isinstance(error, _PASSING) or error.status_code in _PASSING_STATUS or error.status_code >= _SERVER_SIDE
    return isinstance(error, _PASSING)


def asked_delay_ms(error: BaseException) -> int | None:
    """How long the provider asked to be left alone, if it did."""
    if isinstance(error, FallbackExceptionGroup):
        asked = [delay for inner in error.exceptions if (delay := asked_delay_ms(inner)) is not None]
        return max(asked, default=None)
    after = error.retry_after if isinstance(error, ModelAPIError) else None
    return None if after is None else int(after * 1_000)
