"""The ledger's rules as data: which operation may meet which state, and what it leaves.

Theory of operation. A Submission moves through eight states; `settled` is the end. Ownership is a fact beside the
state, not a state. An operation looks up (operation, state): a hit is the new state (often the same: those are the
no-ops that make every operation repeatable), a miss is `IllegalTransition` and changes nothing. Guards that need
more than the state (tokens, evidence, decisions) belong to the caller and are named in the comments.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Protocol, TypeVar

from thread_objects.contract.states import Decision, SubmissionState

_ADMITTED = SubmissionState.ADMITTED
_READY = SubmissionState.READY
_JOINING = SubmissionState.JOINING
_JOINED = SubmissionState.JOINED
_APPLIED = SubmissionState.INPUT_APPLIED
_SUSPENDED = SubmissionState.SUSPENDED
_UNKNOWN = SubmissionState.UNKNOWN
_SETTLED = SubmissionState.SETTLED


class Operation(StrEnum):
    """What may be done to a row."""

    MARK_READY = "markReady"
    CLAIM = "claim"
    RELEASE = "releaseOwnership"
    MARK_INPUT_APPLIED = "markInputApplied"
    CLAIM_JOINING = "claimJoining"
    MARK_JOINED = "markJoined"
    REVERT_JOINING = "revertJoining"
    RETURN_JOINED = "returnJoined"
    SUSPEND = "suspend"
    WAKE_SUSPENDED = "wakeSuspended"
    MARK_UNKNOWN = "markUnknown"
    WAKE_UNKNOWN = "wakeUnknown"
    FINALIZE = "finalizeSettlement"
    FINALIZE_ABORTED = "finalizeAborted"


TRANSITIONS: Mapping[Operation, Mapping[SubmissionState, SubmissionState]] = {
    # Guard: the Thread is materialised and its created record committed. Later states have been ready.
    Operation.MARK_READY: {
        _ADMITTED: _READY,
        **{state: state for state in SubmissionState if state is not _ADMITTED},
    },
    # Guard: head rule, no live lease. Unknown work only under an abort intent.
    Operation.CLAIM: {_ADMITTED: _ADMITTED, _READY: _READY, _APPLIED: _APPLIED, _UNKNOWN: _UNKNOWN},
    # Guard: live token.
    Operation.RELEASE: {_ADMITTED: _ADMITTED, _READY: _READY, _APPLIED: _APPLIED, _UNKNOWN: _UNKNOWN},
    # Guard: live token, canonical input.
    Operation.MARK_INPUT_APPLIED: {_READY: _APPLIED, _APPLIED: _APPLIED},
    # Guard: the host's live token, contiguous later prefix.
    Operation.CLAIM_JOINING: {_READY: _JOINING},
    # Guard: the host's live token, canonical input.
    Operation.MARK_JOINED: {_JOINING: _JOINED, _JOINED: _JOINED},
    # Guard: no canonical input.
    Operation.REVERT_JOINING: {_JOINING: _READY, _JOINED: _JOINED, _READY: _READY},
    # Guard: a settled host none of whose responses came after the input.
    Operation.RETURN_JOINED: {_JOINING: _READY, _JOINED: _READY},
    # Guard: live token, nothing decided that would wake it at once.
    Operation.SUSPEND: {_APPLIED: _SUSPENDED},
    # Guard: the wake rule of the suspension.
    Operation.WAKE_SUSPENDED: {_SUSPENDED: _APPLIED},
    # Guard: canonical unknown evidence.
    Operation.MARK_UNKNOWN: {_READY: _UNKNOWN, _APPLIED: _UNKNOWN, _SUSPENDED: _UNKNOWN, _UNKNOWN: _UNKNOWN},
    # Guard: every open call covered by an intent.
    Operation.WAKE_UNKNOWN: {_UNKNOWN: _APPLIED},
    # Guard: the canonical settlement record, and its authority. A `joining` row has one when its marker was lost.
    Operation.FINALIZE: {
        _READY: _SETTLED,
        _JOINING: _SETTLED,
        _APPLIED: _SETTLED,
        _UNKNOWN: _SETTLED,
        _JOINED: _SETTLED,
        _SETTLED: _SETTLED,
    },
    Operation.FINALIZE_ABORTED: {
        _ADMITTED: _SETTLED,
        _READY: _SETTLED,
        _JOINING: _SETTLED,
        _APPLIED: _SETTLED,
        _UNKNOWN: _SETTLED,
        _JOINED: _SETTLED,
        _SETTLED: _SETTLED,
    },
}


class IllegalTransition(Exception):
    """The operation may not meet this state. Nothing was changed."""

    def __init__(self, operation: Operation, state: SubmissionState) -> None:
        super().__init__(f"{operation} is not possible from {state}")
        self.operation = operation
        self.state = state


def advance(operation: Operation, state: SubmissionState) -> SubmissionState:
    """The state after an operation. Raises `IllegalTransition`."""
    target = TRANSITIONS[operation].get(state)
    if target is None:
        raise IllegalTransition(operation, state)
    return target


class Queued(Protocol):
    """What the head rule looks at."""

    @property
    def queue_sequence(self) -> int:
        """Place in the lane."""

    @property
    def state(self) -> SubmissionState:
        """State of the row."""

    @property
    def abort_requested(self) -> bool:
        """Whether an abort intent is stored."""


_Row = TypeVar("_Row", bound=Queued)


def skipped(state: SubmissionState, abort_requested: bool) -> bool:
    """Whether the head rule steps over such a row: uncertain work that nobody asked to abort is parked."""
    return state is _UNKNOWN and not abort_requested


def head(rows: Iterable[_Row]) -> _Row | None:
    """The lowest unsettled row, stepping over parked unknown ones only. A blocked head is still the head."""
    open_rows = (r for r in rows if r.state is not _SETTLED and not skipped(r.state, r.abort_requested))
    return min(open_rows, key=lambda row: row.queue_sequence, default=None)


def claimable(state: SubmissionState, abort_requested: bool) -> bool:
    """Whether a head in this state may be granted. A joining, joined or suspended head blocks its lane."""
    return state in TRANSITIONS[Operation.CLAIM] and not skipped(state, abort_requested)


def fresh(state: SubmissionState, claims: int, abort_requested: bool) -> bool:
    """Ready, never claimed, no abort: nothing happened yet, so recovery has nothing to say."""
    return state is _READY and claims == 0 and not abort_requested


def joins(state: SubmissionState, claims: int, *, own_kind: bool) -> bool:
    """Whether a queued row may be taken by the Run before it: it never ran, and is of the host's own kind.

    Own kind: the same principal and agent, so that nobody's authority is lent to another, and no child.
    """
    return state in TRANSITIONS[Operation.CLAIM_JOINING] and claims == 0 and own_kind


def wakes(listed: Iterable[str], decisions: Mapping[str, Decision]) -> bool:
    """The wake rule of an approval suspension: all listed calls decided, or any one denied."""
    answers = [decisions.get(call) for call in listed]
    return Decision.DENIED in answers or None not in answers
