"""What a resuming Attempt may do with the calls its predecessor left open.

A call without a result is run only where something permits it: a stored intent, its class, or a reconciler's proof
that belongs to exactly this claim. Everything else stays as it is.
"""

from collections.abc import Collection
from dataclasses import dataclass

from thread_objects.contract.states import ResolutionKind, ToolClass
from thread_objects.core.recovery.evidence import Evidence, OpenCall
from thread_objects.core.recovery.intents import unknown_intent
from thread_objects.core.recovery.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Permit:
    """A reconciler proved that a lost call may run. It writes no record, so it holds for the very next claim only.

    `epoch` is that of the claim under which the proof was given: any claim in between might have run the call.
    """

    submission_id: str
    turn: int
    call_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Resumption:
    """Open calls of a row, each in exactly one group.

    `answered`: a stored result closes it. `permitted`: it may be run. `blocked`: it may not, nobody has answered
    for it, and the row must not be advanced past it.
    """

    answered: tuple[OpenCall, ...]
    permitted: tuple[OpenCall, ...]
    blocked: tuple[OpenCall, ...]


def resumption(snapshot: Snapshot, evidence: Evidence, permits: Collection[Permit], epoch: int) -> Resumption:
    """Sort the open calls for an Attempt whose claim has this epoch."""
    answered, permitted, blocked = [], [], []
    for call in evidence.ordinary_open_calls():
        intent = unknown_intent(snapshot, call)
        permit = Permit(snapshot.submission_id, call.turn, call.call_id, epoch - 1)
        if intent is not None and intent.kind is ResolutionKind.COMPLETED_WITH_RESULT:
            answered.append(call)
        elif intent is not None or call.tool_class is ToolClass.IDEMPOTENT or permit in permits:
            permitted.append(call)
        else:
            blocked.append(call)
    return Resumption(tuple(answered), tuple(permitted), tuple(blocked))
