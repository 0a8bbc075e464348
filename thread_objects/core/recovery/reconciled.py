"""What a reconciler is asked about a lost call, and what it may answer.

A reconciler looks at the outside world (an order system, a mailbox) and says what became of one call. It proves
something or it does not; it never runs the call.
"""

from dataclasses import dataclass

from thread_objects.contract.wire import Json


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call whose worker died before its result was recorded.

    `run_id`, `turn` and `tool_call_id` name it; they are what the tool itself was given to key its effect by.
    """

    agent_id: str
    thread_id: str
    submission_id: str
    run_id: str
    turn: int
    tool_call_id: str
    tool_name: str
    arguments: Json


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
