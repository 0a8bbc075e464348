"""The messages that a model reads, rebuilt from the log.

Rule guarded: every call in them has exactly one result, whatever became of the Run that made it. Providers refuse
a history where one is missing, and with it every later input of the Thread.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from pydantic import JsonValue
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import to_json

from thread_objects.agents.prompts import Prompt
from thread_objects.agents.results import decode_parts, from_settled
from thread_objects.agents.transcript import Call, RunLog, Transcript, Turn
from thread_objects.contract.states import Decision, ToolClass

FOLLOW_UP = "followUp"
"""Key of a Turn's state: the parts of the request that answers a response without tool calls."""

UNKNOWN = "The outcome of this call is unknown: it may or may not have taken effect. Check before repeating it."
DENIED = "Not executed: approval was denied."
NOT_EXECUTED = "Not executed: the run ended before this call."


def messages_of(run: RunLog, prompt: Callable[[JsonValue], Prompt], *, live: bool) -> list[ModelMessage]:
    """A Run's messages. `live`: up to its open end, to be resumed; otherwise closed, to be followed by others."""
    messages: list[ModelMessage] = []
    request = ModelRequest(parts=[prompt_part(run, prompt(run.input))])
    for turn in run.turns:
        own = ModelMessagesTypeAdapter.validate_json(to_json(turn.messages))
        if isinstance(own[0], ModelResponse):
            messages.append(request)
        messages.extend(own)
        last = turn is run.last
        closing = last and not live
        request = ModelRequest(parts=_answer(run, turn, closing=closing))
        if not closing:  # what nobody answered goes back to the queue, and is read where it is answered
            request.parts = [*request.parts, *(prompt_part(run, prompt(value)) for value in joined_after(run, turn))]
        if last and (request.parts if not live else turn.closed and request.parts):
            messages.append(request)
    if not run.turns and not live:
        messages.append(request)
    return messages


def prompt_part(run: RunLog, prompt: Prompt) -> UserPromptPart:
    """An input as its Run reads it. The instant is the log's, so that it is the same whenever it is rebuilt."""
    return UserPromptPart(prompt, timestamp=_instant(run.started_at))


def joined_after(run: RunLog, turn: Turn) -> list[JsonValue]:
    """The inputs that the Run took at the seam behind this Turn."""
    return [joined.input for joined in run.joined if joined.after == turn.turn]


def _answer(run: RunLog, turn: Turn, *, closing: bool) -> list[ModelRequestPart]:
    """The request parts that follow a Turn's response."""
    if not turn.calls:
        follow_up = turn.state.get(FOLLOW_UP)
        return decode_parts(follow_up) if isinstance(follow_up, list) and not closing else []  # type: ignore[arg-type]
    parts: list[ModelRequestPart] = []
    extras: list[ModelRequestPart] = []
    for call in turn.calls.values():
        if call.settled is not None:
            part, *extra = from_settled(call.settled)
            parts.append(part)
            extras.extend(extra)
        elif closing:
            parts.append(_stand_in(run, turn, call))
    return [*parts, *extras]


def _stand_in(run: RunLog, turn: Turn, call: Call) -> ToolReturnPart:
    """What the model is told of a call that has no result."""
    denied = any(other.decision is Decision.DENIED for other in turn.calls.values())
    certain = call.declared.rejected or call.declared.tool_class is ToolClass.READONLY or turn.unstarted
    if denied:
        content = DENIED if call.decision is Decision.DENIED else NOT_EXECUTED
    elif call.unknown or (run.outcome is None and call.ordinary and not certain):
        content = UNKNOWN
    else:
        content = NOT_EXECUTED
    return ToolReturnPart(
        tool_name=call.declared.tool_name,
        content=content,
        tool_call_id=call.declared.tool_call_id,
        timestamp=_instant(run.started_at),
        outcome="denied" if denied else "interrupted",
    )


def _instant(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1_000, tz=UTC)


class History:
    """A Thread's decoded messages, Run by Run, kept while the Runs they came from do not change."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._decoded: dict[str, tuple[int, list[ModelMessage]]] = {}

    def before(self, run: RunLog, prompt: Callable[[JsonValue], Prompt]) -> list[ModelMessage]:
        """The messages of every Run whose input came before this one's."""
        messages: list[ModelMessage] = []
        for earlier in self.transcript.before(run):
            version, decoded = self._decoded.get(earlier.run_id, (-1, []))
            if version != earlier.version:
                decoded = messages_of(earlier, prompt, live=False)
                self._decoded[earlier.run_id] = (earlier.version, decoded)
            messages.extend(decoded)
        return messages
