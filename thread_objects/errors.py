"""One tree of typed errors, each with a stable `code`, and the one translator to and from Temporal's failures.

Expected refusals are typed errors. They cross the wire as (code, message, fields) and arrive as the same class
with the same attributes; an unknown code arrives as the base `ThreadError` with its code kept.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_type_hints

from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from thread_objects.contract.activities import Refusal


class ThreadError(Exception):
    """Base of all errors of this package.

    `code` is stable across versions. `retryable`: the same call may succeed later without any change.
    Subclasses declare their fields as annotations; all are keyword arguments and attributes.
    """

    code: ClassVar[str] = "ThreadError"
    retryable: ClassVar[bool] = False
    summary: ClassVar[str] = "thread error"

    def __init__(self, message: str | None = None, **fields: Any) -> None:
        known = self.field_names()
        missing = [name for name in known if name not in fields and not hasattr(type(self), name)]
        if missing:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
        self.fields: dict[str, JsonValue] = {}
        for name in known:
            value = fields.pop(name, getattr(type(self), name, None))
            setattr(self, name, value)
            self.fields[name] = value
        self.fields.update(fields)
        told = ", ".join(f"{name}={value}" for name, value in self.fields.items() if value is not None)
        self.message = message or (f"{self.summary} ({told})" if told else self.summary)
        super().__init__(self.message)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """The declared fields, base classes first."""
        own = get_type_hints(cls)
        return tuple(n for n in own if n not in {"code", "retryable", "summary", "fields", "message"})

    def refusal(self) -> Refusal:
        """This error as it crosses the wire."""
        return Refusal(code=self.code, message=self.message, fields=self.fields, retryable=self.retryable)


class AdmissionLimitExceeded(ThreadError):
    """A configured limit was reached before anything was written. Replayed keys are exempt."""

    code = "AdmissionLimitExceeded"
    summary = "admission limit exceeded"
    limit: str
    actual: int
    maximum: int


class AdmissionConflict(ThreadError):
    """The key was used before, for another input or with other facts."""

    code = "AdmissionConflict"
    summary = "this key was used for another input"
    thread_id: str
    principal: str
    idempotency_key: str
    existing_input_digest: str
    attempted_input_digest: str


class AdmissionPolicyError(ThreadError):
    """The admission policy refused, or could not answer."""

    code = "AdmissionPolicyError"
    summary = "admission refused by policy"
    reason: str
    policy_code: str = ""


class InvalidInput(ThreadError):
    """Malformed, of the wrong type, or outside a bound of the persisted-JSON rules."""

    code = "InvalidInput"
    summary = "input refused"
    what: str
    limit: str | None = None
    actual: int | None = None
    maximum: int | None = None


class Busy(ThreadError):
    """The object cannot take more just now (inbox saturated, database away, object moving). Try again, same key."""

    code = "Busy"
    retryable = True
    summary = "busy, try again"
    reason: str


class OwnershipLost(ThreadError):
    """Another claim superseded this one."""

    code = "OwnershipLost"
    summary = "ownership lost"
    submission_id: str
    actual_epoch: int


class SettlementConflict(ThreadError):
    """The Submission is settled."""

    code = "SettlementConflict"
    summary = "already settled"
    submission_id: str
    existing_outcome: str


class ApprovalConflict(ThreadError):
    """The approval was answered the other way."""

    code = "ApprovalConflict"
    summary = "already decided"
    submission_id: str
    tool_call_id: str
    existing_decision: str


class UnknownResolutionConflict(ThreadError):
    """The resolution contradicts one that stands."""

    code = "UnknownResolutionConflict"
    summary = "contradicts a recorded resolution"
    submission_id: str
    tool_call_id: str


class JoinedToHost(ThreadError):
    """The Submission was consumed by another Run."""

    code = "JoinedToHost"
    summary = "joined to another run"
    submission_id: str
    host_submission_id: str


class NotFound(ThreadError):
    """No such Submission, Thread or call."""

    code = "NotFound"
    summary = "not found"
    what: str
    id: str


class ChildReservationConflict(ThreadError):
    """A child's budget is reserved, bound or accounted for in another way."""

    code = "ChildReservationConflict"
    summary = "reservation conflict"
    reservation_id: str
    status: str


class LedgerError(ThreadError):
    """An illegal transition or contradictory evidence; nothing was changed."""

    code = "LedgerError"
    summary = "ledger operation refused"
    operation: str


class ThreadPlacedElsewhere(ThreadError):
    """Another Thread Object owns this Thread; `object_id` names it. A client goes there by itself."""

    code = "ThreadPlacedElsewhere"
    summary = "another object owns the thread"
    thread_id: str
    object_id: str


class ThreadNotMaterialized(ThreadError):
    """The Thread has no log yet."""

    code = "ThreadNotMaterialized"
    summary = "thread has no log"
    thread_id: str


class AppendConflict(ThreadError):
    """An append was refused; nothing of it was stored. On `tail` the actual tail is attached."""

    code = "AppendConflict"
    summary = "append refused"
    thread_id: str
    conflict: str
    tail_sequence: int | None = None
    tail_digest: str | None = None


class FenceRejected(ThreadError):
    """A stale epoch."""

    code = "FenceRejected"
    summary = "stale epoch"
    thread_id: str
    actual: int
    attempted: int


class CheckpointRejected(ThreadError):
    """A checkpoint that does not fit the log."""

    code = "CheckpointRejected"
    summary = "checkpoint refused"
    thread_id: str
    reason: str


class ArchiveRefused(ThreadError):
    """An archive that cannot be imported; nothing was changed. `line` is where it was noticed, counted from 1.

    `reason`: `format`, `malformed`, `bounds`, `truncated`, `archive-digest`, `identity`, `reference`, `contradiction`,
    the name of a failed check of verification, `not-empty` or `duplicate-submission` (both of the destination).
    """

    code = "ArchiveRefused"
    summary = "archive refused"
    reason: str
    line: int | None = None


class CorruptRecord(ThreadError):
    """A stored row cannot be decoded. It is never rewritten."""

    code = "CorruptRecord"
    summary = "stored row cannot be decoded"
    thread_id: str
    sequence: int | None = None
    decoder: str = ""


class RecoveryBlocked(ThreadError):
    """A Thread whose recovery failed may not be claimed."""

    code = "RecoveryBlocked"
    summary = "recovery of the thread failed"
    thread_id: str
    failure: str


class WorkDiscoveryUnavailable(ThreadError):
    """The inventory of a Thread's work is not usable: `missing-index`, `incomplete-rebuild` or `unsupported`."""

    code = "WorkDiscoveryUnavailable"
    summary = "work inventory unavailable"
    thread_id: str
    reason: str


class BindingUnavailable(ThreadError):
    """No, or no unambiguous, current binding for the agent."""

    code = "BindingUnavailable"
    summary = "no binding for the agent"
    agent_id: str
    reason: str


class BindingError(ThreadError):
    """An agent was bound wrongly; raised at bind time, never at run time."""

    code = "BindingError"
    summary = "agent cannot be bound"
    agent_id: str
    reason: str


class StepDiverged(ThreadError):
    """A recorded Step does not hold what its digest says, or is entered in a way that no record can answer."""

    code = "StepDiverged"
    summary = "step diverged"
    run_id: str
    tool_call_id: str
    step: str
    reason: str


class AgentPolicyError(ThreadError):
    """A Run used up a bound of its policy. `policy_limit`: turns, tool-calls, tokens or duration."""

    code = "AgentPolicyError"
    summary = "run policy exhausted"
    policy_limit: str
    maximum: int


class AgentApprovalDenied(ThreadError):
    """An approval was denied: no handler of the batch started, and the Run is over."""

    code = "AgentApprovalDenied"
    summary = "approval denied"
    tool_call_id: str
    tool_name: str
    resolver: str
    reason: str = ""


class OperationDenied(ThreadError):
    """The authoriser refused, before any read or write."""

    code = "OperationDenied"
    summary = "operation denied"
    operation: str
    reason: str
    thread_id: str | None = None
    submission_id: str | None = None


class RetryRefused(ThreadError):
    """A retry has nothing to execute: the row is settled, or somebody must answer first. Nothing was changed.

    `refused_because`: settled, await-unknown-resolution or await-approval-decision.
    """

    code = "RetryRefused"
    summary = "nothing to retry"
    submission_id: str
    refused_because: str
    decision_tag: str


class WaitCancelled(ThreadError):
    """Somebody ended this wait by its name. The work goes on."""

    code = "WaitCancelled"
    retryable = True
    summary = "the wait was ended"
    waiter: str


class DurableAlarmError(ThreadError):
    """The alarm slot, the due queue, a lane or an allowance refused."""

    code = "DurableAlarmError"
    summary = "alarm refused"
    operation: str


class AlarmHandlerUnavailable(ThreadError):
    """No worker has a handler for alarms of that tag, or none was free. The alarm stays and is tried again."""

    code = "AlarmHandlerUnavailable"
    summary = "no handler for alarms of this tag"
    tag: str


class LaneRefused(ThreadError):
    """No worker has a lane of this id, or it is none that this caller may name."""

    code = "LaneRefused"
    summary = "lane refused"
    lane: str
    reason: str


class WaveFailed(ThreadError):
    """A wave of an extension failed. `reason`: failure, timeout, shutdown, unhandled or answer; names only, no payload.

    What it told as progressed or acknowledged before counts all the same.
    """

    code = "WaveFailed"
    summary = "wave failed"
    lane: str
    reason: str
    error_tag: str = ""


class ConfigError(ThreadError):
    """A setting is outside its bound; nothing was opened."""

    code = "ConfigError"
    summary = "configuration refused"
    setting: str
    reason: str


class StoreUnavailable(ThreadError):
    """The database is away or busy beyond the bound. Nothing accepted is lost."""

    code = "StoreUnavailable"
    retryable = True
    summary = "database unavailable"
    reason: str


class ServerUnavailable(ThreadError):
    """The Temporal server cannot be reached."""

    code = "ServerUnavailable"
    retryable = True
    summary = "Temporal server unavailable"
    address: str
    reason: str


class WaitTimeout(ThreadError):
    """The wait ended, the work goes on."""

    code = "WaitTimeout"
    retryable = True
    summary = "still not settled"
    submission_id: str
    waited_ms: int


class SignalRefused(ThreadError):
    """A Submission sent by signal was refused after the server had taken it; `refusal` is the refusing error's code."""

    code = "SignalRefused"
    summary = "the signal was refused"
    submission_id: str
    refused_with: str


class StreamEnded(ThreadError):
    """A followed log ended without a terminal event."""

    code = "StreamEnded"
    retryable = True
    summary = "stream ended without a terminal event"
    thread_id: str


def _tree(cls: type[ThreadError]) -> list[type[ThreadError]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in _tree(sub))]


def error_classes() -> dict[str, type[ThreadError]]:
    """All classes of the tree by code."""
    return {cls.code: cls for cls in _tree(ThreadError)}


def from_refusal(refusal: Refusal) -> ThreadError:
    """The typed error that a refusal stands for."""
    cls = error_classes().get(refusal.code, ThreadError)
    try:
        error = cls(refusal.message, **refusal.fields)
    except TypeError:
        error = ThreadError(refusal.message, **refusal.fields)
    if error.code != refusal.code:
        error.code = refusal.code  # type: ignore[misc]  # an instance of an unknown class keeps its code
    return error


def to_application_error(error: ThreadError) -> ApplicationError:
    """The failure that carries this error through Temporal: type = code, details = the refusal."""
    refusal = error.refusal()
    return ApplicationError(
        refusal.message,
        refusal.model_dump(mode="json", by_alias=True),
        type=refusal.code,
        non_retryable=not refusal.retryable,
    )


def from_failure(failure: BaseException | None) -> ThreadError | None:
    """The typed error inside a Temporal failure, however deep; None when there is none."""
    while failure is not None:
        if isinstance(failure, ThreadError):
            return failure
        if isinstance(failure, ApplicationError) and failure.details and isinstance(failure.details[0], dict):
            try:
                return from_refusal(Refusal.model_validate(failure.details[0]))
            except ValueError:
                return None
        failure = failure.__cause__
    return None
