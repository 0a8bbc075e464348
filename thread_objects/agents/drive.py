"""The drive: pydantic-ai's own loop, node by node, with the journal between the nodes.

Rule guarded: nothing is acted on before it is committed, and nothing that is committed is asked or done again. A
Run is taken up where its log ends: before its first request, at a request, or inside a batch whose calls get their
recorded results.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.run import AgentRun
from pydantic_core import to_jsonable_python

from thread_objects.agents.batch import Arrivals
from thread_objects.agents.binding import Completed, Journal, Response, Result, RunRequest
from thread_objects.agents.capability import ThreadCapability, request_settings
from thread_objects.agents.counters import counted, counters_after
from thread_objects.agents.declare import declare, repairs_arguments
from thread_objects.agents.guard import CallGuard
from thread_objects.agents.history import FOLLOW_UP, History, joined_after, messages_of, prompt_part
from thread_objects.agents.prompts import Prompt
from thread_objects.agents.results import encode_parts, from_settled, pruned
from thread_objects.agents.transcript import Call
from thread_objects.contract.records import DeclaredCall
from thread_objects.contract.states import CallKind
from thread_objects.core.canonical import canonical
from thread_objects.errors import BindingUnavailable

if TYPE_CHECKING:
    from thread_objects.agents.bind import PydanticAgentBinding

Run = AgentRun[Any, Any]


class Drive:
    """One Attempt's drive of one Run."""

    def __init__(
        self,
        binding: "PydanticAgentBinding",
        request: RunRequest,
        journal: Journal,
        *,
        after: "Drive | None" = None,
    ) -> None:
        self.deps: tuple[Any, ...] = after.deps if after is not None else ()
        """What the Attempt depends on, once it is made; it is made once."""
        # No two drives may say the same of their messages.
        self._name = request.attempt if after is None else f"{request.attempt}+{len(request.run.turns)}"
        self._binding = binding
        self._request = request
        self._journal = journal
        self._log = request.run
        self._turn = len(request.run.turns)
        self._held: Response | None = None
        self._last: ModelResponse | None = None
        self._expected: list[ModelRequestPart] | None = None
        self._results: tuple[Result, ...] = ()
        self._asked = False
        self._ended: BaseException | None = None
        self._counters = counters_after(request.run.last)
        self._counted = (self._counters.usage.input_tokens, self._counters.usage.output_tokens)
        self._guard = CallGuard(request, journal, binding.tool, binding.policy.tool_result_bytes_max)
        self._capability = ThreadCapability(binding.policy, journal, self._guard, self._counters.retries)

    async def run(self) -> Completed:
        """Drive the Run to its end."""
        if self._log.completed is not None:
            return Completed(output=self._log.completed.output, turn=self._turn)
        await self._seam_passed_over()
        prompt, history = self._position()
        if not self.deps:
            self.deps = (await self._binding.dependencies(self._request),)
        result: Any = None
        try:
            async with self._binding.agent.iter(
                prompt,
                message_history=history,
                deps=self.deps[0],
                model=self._binding.model,
                usage=self._counters.usage,
                usage_limits=UsageLimits(request_limit=None),
                model_settings=request_settings(self._binding.policy),
                capabilities=[self._capability],
                conversation_id=self._request.thread_id,
                run_id=self._name,
                infer_name=False,
            ) as run:
                run.ctx.state.output_retries_used = self._counters.output_retries
                await self._nodes(run)
            result = run.result
        except BaseException as error:
            # Leaving the run may wrap what was raised inside it; what counts is the first.
            if self._ended is not None and self._ended is not error:
                raise self._ended from None
            raise
        output: JsonValue = to_jsonable_python(result.output)
        canonical(output)
        return Completed(output=output, turn=self._turn, response=self._held, results=self._results)

    def _position(self) -> tuple[Prompt | None, list[ModelMessage]]:
        """Where the log ends: the prompt to begin with, or none to resume, and the messages before it."""
        history: History = self._request.transcript.derived.setdefault(
            self._binding.id, History(self._request.transcript)
        )
        messages = history.before(self._log, self._prompt)
        if not self._log.turns:
            prompt = self._prompt(self._log.input)
            return prompt, messages
        own = messages_of(self._log, self._prompt, live=True)
        if isinstance(own[-1], ModelRequest):
            self._expected = list(own[-1].parts)
        return None, [*messages, *own]

    def _prompt(self, value: JsonValue) -> Prompt:
        try:
            return self._binding.prompt(value)
        except Exception as error:
            raise BindingUnavailable(
                agent_id=self._binding.id, reason=f"the input cannot be read by this deploy: {type(error).__name__}"
            ) from error

    async def _nodes(self, run: Run) -> None:
        try:
            node: Any = run.next_node
            while not Agent.is_end_node(node):
                if Agent.is_model_request_node(node):
                    node = await self._ask(run, node)
                elif Agent.is_call_tools_node(node):
                    node = await self._act(run, node)
                else:
                    node = await run.next(node)
        except BaseException as error:
            self._ended = error
            if isinstance(error, Exception):
                await self._commit_held()  # the response was paid for, whatever its output was worth
            raise

    async def _ask(self, run: Run, node: Any) -> Any:
        """One model request."""
        self._journal.asking(self._turn + 1)
        self._asked = True
        self._capability.asked = 0
        self._capability.turn = self._turn + 1
        self._capability.used_ids = self._log.call_ids()
        return await run.next(node)

    async def _act(self, run: Run, node: Any) -> Any:
        """One response: commit what it declares, then let pydantic-ai run the batch."""
        response: ModelResponse = node.model_response
        if not self._asked and self._log.last is not None:
            calls = tuple(call.declared for call in self._log.last.calls.values())
        else:
            self._turn += 1
            manager = run.ctx.deps.tool_manager
            calls = declare(
                response,
                manager.tools or {},
                self._binding.tool,
                self._capability.needs_approval,
                judge=None if repairs_arguments(run) else manager.ctx,
            )
            self._held = self._response(run, response, calls)
        self._last = response
        if any(call.call_kind is not CallKind.OUTPUT for call in calls):
            await self._commit_held()
            await self._journal.approve(self._turn)
            return await self._batch(run, node)
        following = await run.next(node)
        await self._after(run, following)
        return following

    async def _batch(self, run: Run, node: Any) -> Any:
        turn = self._log.turns[self._turn - 1]
        self._guard.open(turn)
        arrivals = self._arrivals()
        try:
            async with node.stream(run.ctx) as events:
                async for event in events:
                    if isinstance(event, FunctionToolResultEvent) and isinstance(event.part, ToolReturnPart):
                        arrivals.take(event.part, event.content)
        except (Exception, asyncio.CancelledError):
            arrivals.flush()
            raise
        following = await run.next(node)
        await self._after(run, following, arrivals)
        return following

    async def _after(self, run: Run, following: Any, arrivals: Arrivals | None = None) -> None:
        """What a node left behind: results to commit, a request to expect, or the Run's end."""
        await self._journal.catch_up()
        ends = Agent.is_end_node(following)
        parts = _answering(run) if ends else list(following.request.parts)
        if ends and self._guard.fatal is None and not self._guard.lost:
            self._results = tuple((arrivals or self._arrivals()).rest(parts))
            return
        if self._held is not None and not self._held.calls:
            # A response without calls that does not end the Run is answered by a request that only this node made.
            self._held.state.update(counted(run))
            self._held.state[FOLLOW_UP] = encode_parts(parts)  # type: ignore[assignment]
        await self._commit_held()
        rest = (arrivals or self._arrivals()).rest(parts)
        if rest:
            await self._journal.settle_last(self._turn, rest)
        if self._guard.fatal is not None:
            raise self._guard.fatal
        if self._guard.lost:
            self._journal.lost(self._turn, self._guard.lost)
        if not ends:
            joined = await self._seam()
            following.request.parts = self._expected = [*self._recorded(parts), *joined]

    async def _seam(self) -> list[ModelRequestPart]:
        """The parts of queued input that joins here."""
        taken = await self._journal.seam(self._turn, self._binding.prompt)
        return [prompt_part(self._log, self._prompt(value)) for value in taken]

    async def _seam_passed_over(self) -> None:
        """A Run that is taken up at a seam which nobody used: the owner died between results and request."""
        last = self._log.last
        if last is None or not last.closed or joined_after(self._log, last):
            return
        if last.calls or FOLLOW_UP in last.state:
            await self._seam()

    def _arrivals(self) -> Arrivals:
        """The calls of the Turn in progress, committed or still held."""
        if self._held is not None:
            held = {call.tool_call_id: Call(call) for call in self._held.calls}
            return Arrivals(self._turn, held, self._guard, self._journal)
        return Arrivals(self._turn, self._log.turns[self._turn - 1].calls, self._guard, self._journal)

    def _recorded(self, parts: list[ModelRequestPart]) -> list[ModelRequestPart]:
        """The parts as the log holds them where they were recorded by an earlier Attempt."""
        calls = self._log.turns[self._turn - 1].calls
        return [
            from_settled(call.settled)[0]
            if isinstance(part, ToolReturnPart)
            and (call := calls.get(part.tool_call_id)) is not None
            and call.settled is not None
            and part.tool_call_id not in self._guard.returned
            else part
            for part in parts
        ]

    async def _commit_held(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            await self._journal.respond(held)

    def _response(self, run: Run, response: ModelResponse, calls: tuple[DeclaredCall, ...]) -> Response:
        """The response as the journal takes it, with every message that the log could not rebuild."""
        fresh = self._fresh(run.all_messages(), response)
        before, after = self._counted, run.usage
        self._counted = (after.input_tokens, after.output_tokens)
        told = response.usage.has_values()
        return Response(
            turn=self._turn,
            messages=[pruned_message(message) for message in ModelMessagesTypeAdapter.dump_python(fresh, mode="json")],
            calls=calls,
            input_tokens=after.input_tokens - before[0] if told else None,
            output_tokens=after.output_tokens - before[1] if told else None,
            state=counted(run),
        )

    def _fresh(self, messages: list[ModelMessage], response: ModelResponse) -> list[ModelMessage]:
        """The messages since the last recorded response: only the response where its request can be rebuilt."""
        start = len(messages) - 2
        if self._last is not None:
            start = next((i for i in range(len(messages) - 1, -1, -1) if messages[i] is self._last), start - 1) + 1
        fresh = messages[max(0, start) :]
        if len(fresh) == len(("request", "response")) and self._rebuildable(fresh[0]):
            return fresh[1:]
        return fresh if fresh and fresh[-1] is response else [*messages[-2:-1], response]

    def _rebuildable(self, request: ModelMessage) -> bool:
        if not isinstance(request, ModelRequest):
            return False
        if self._expected is not None:
            return len(request.parts) == len(self._expected) and all(
                mine is expected for mine, expected in zip(request.parts, self._expected, strict=True)
            )
        first = request.parts[0] if len(request.parts) == 1 else None
        return isinstance(first, UserPromptPart) and first.content == self._prompt(self._log.input)


def _answering(run: Run) -> list[ModelRequestPart]:
    """The parts that answered the last response's calls when the Run ended."""
    last = run.all_messages()[-1]
    return list(last.parts) if isinstance(last, ModelRequest) else []


def pruned_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message's JSON without the fields that say nothing, its own and its parts'."""
    slim = pruned(message)
    slim["parts"] = [pruned(part) for part in slim["parts"]]
    if "usage" in slim:
        slim["usage"] = {name: value for name, value in slim["usage"].items() if value}
    return slim
