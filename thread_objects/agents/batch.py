"""Results of one batch as they arrive, and when to commit them.

Rule guarded: a result is committed as soon as siblings still run, so that a crash leaves as little uncertain as can
be; results that arrive together cost one commit.
"""

from collections.abc import Iterable, Mapping, Sequence

from pydantic_ai.messages import ModelRequestPart, ToolReturnPart, UserContent, UserPromptPart

from thread_objects.agents.binding import Journal, Result
from thread_objects.agents.guard import CallGuard
from thread_objects.agents.results import to_results
from thread_objects.agents.transcript import Call
from thread_objects.contract.states import CallKind


class Arrivals:
    """The results of one Turn's calls, those that the log does not hold yet."""

    def __init__(self, turn: int, calls: Mapping[str, Call], guard: CallGuard, journal: Journal) -> None:
        self._turn = turn
        self._calls = calls
        self._guard = guard
        self._journal = journal
        self._waiting: dict[str, ToolReturnPart] = {}
        self._contents: dict[str, UserPromptPart] = {}
        self._arrived: set[str] = set()

    def take(self, part: ToolReturnPart, content: str | Sequence[UserContent] | None) -> None:
        """A result arrived. Commit what waits if a sibling still runs and none is about to arrive as well."""
        call_id = part.tool_call_id
        self._arrived.add(call_id)
        if not self._owed(call_id):
            return
        self._waiting[call_id] = part
        if content:
            self._contents[call_id] = UserPromptPart(content)
        missing = [call for call_id, call in self._calls.items() if call_id not in self._arrived]
        if any(call.declared.tool_call_id in self._guard.returned for call in missing):
            return
        if any(call.declared.call_kind is not CallKind.OUTPUT and not call.declared.rejected for call in missing):
            self.flush()

    def flush(self) -> None:
        """Commit what waits; it stays waiting when the store is away."""
        parts = self._ordered(self._waiting.values())
        if parts and self._journal.settle(self._turn, to_results(parts, self._extras())):
            self._waiting.clear()

    def rest(self, parts: Sequence[ModelRequestPart]) -> list[Result]:
        """What pydantic-ai made of the batch, less what is committed: the last results, with all that follows them."""
        returns = self._ordered(
            part for part in parts if isinstance(part, ToolReturnPart) and self._owed(part.tool_call_id)
        )
        if not returns:
            return []
        told = [part.content for call_id, part in self._contents.items() if not self._owed(call_id)]
        following = [
            part
            for part in parts
            if not isinstance(part, ToolReturnPart)
            and not (isinstance(part, UserPromptPart) and any(part.content is content for content in told))
        ]
        return to_results(returns, {returns[-1].tool_call_id: following})

    def _owed(self, call_id: str) -> bool:
        call = self._calls.get(call_id)
        return call is not None and call.settled is None and call_id not in self._guard.lost

    def _ordered(self, parts: Iterable[ToolReturnPart]) -> list[ToolReturnPart]:
        found = {part.tool_call_id: part for part in parts}
        return [found[call_id] for call_id in self._calls if call_id in found]

    def _extras(self) -> dict[str, list[ModelRequestPart]]:
        return {call_id: [part] for call_id, part in self._contents.items() if call_id in self._waiting}
