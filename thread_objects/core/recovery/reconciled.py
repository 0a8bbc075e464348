"""What a reconciler is asked about a lost call, and what it may answer.

A reconciler looks at the outside world (an order system, a mailbox) and says what became of one call. It proves
something or it does not; it never runs the call.
"""

from dataclasses import dataclass

from thread_objects.contract.wire import Json
from thread_objects.core.digests import of_value


def idempotency_key(run_id: str, turn: int, tool_call_id: str) -> str:
    """The key of a call's effect: 64 hex characters, the same in every Attempt, different for every call."""
    return of_value(["tool-call", 1, run_id, turn, tool_call_id])


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call whose worker died before its result was recorded.

    `run_id`, `turn` and `tool_call_id` name it; `idempotency_key` is what its handler was given to key its effect by.
    """

    agent_id: str
    thread_id: str
    submission_id: str
    run_id: str
    turn: int
    tool_call_id: str
    tool_name: str
    arguments: Json

    @property
    def idempotency_key(self) -> str:
        """The key of the call's effect, as the handler had it."""
        return idempotency_key(self.run_id, self.turn, self.tool_call_id)


@dataclass(frozen=True, slots=True)
class CompletedWithResult:
    """The call took effect. The result is recorded as if the tool had returned it; it is not run again."""

    result: Json = None
    is_failure: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """The call had no effect: it may be run."""


@dataclass(frozen=True, slots=True)
class SafeToRetry:
    """Whether the call took effect is not known, and running it again does no harm."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Nothing can be said: the call becomes an Unknown Outcome."""


Reconciled = CompletedWithResult | NeverStarted | SafeToRetry | Uncertain
