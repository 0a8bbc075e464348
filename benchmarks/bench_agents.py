"""The scripted agent as pydantic-ai sees it, bound for our worker: `--agents benchmarks.bench_agents:registry`."""

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from benchmarks import workload
from benchmarks.workload import AGENT, ANSWER, Script
from thread_objects.agents import Registry, bind
from thread_objects.contract.states import ToolClass


async def respond(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Reads the whole conversation, as a real model would be sent it, and follows the last text's script."""
    if not sum(_chars(part) for message in messages for part in message.parts):
        raise ValueError("an empty conversation")
    turns_done = 0
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            turns_done += 1
        elif (text := _text(message)) is not None:
            calls = Script.of(text).calls(turns_done)
            asked: list[ModelResponsePart] = [ToolCallPart("act", call, tool_call_id=str(call["id"])) for call in calls]
            # A provider reports its usage; without it pydantic-ai would estimate it by reading the history once more.
            return ModelResponse(parts=asked or [TextPart(ANSWER)], usage=RequestUsage(input_tokens=1, output_tokens=1))
    raise ValueError("nobody has said anything")


def _chars(part: object) -> int:
    content = getattr(part, "content", None)
    return len(content) if isinstance(content, str) else 0


def _text(message: ModelRequest) -> str | None:
    return next((str(part.content) for part in message.parts if isinstance(part, UserPromptPart)), None)


class Scripted(FunctionModel):
    """A model in this process: it reads the messages as they are, where a provider's would render a request first."""

    def prepare_messages(
        self, messages: list[ModelMessage], model_request_parameters: ModelRequestParameters | None = None
    ) -> list[ModelMessage]:
        """There is no wire format to prepare them for."""
        del model_request_parameters
        return messages


agent = Agent(Scripted(respond), name=AGENT)
agent.tool_plain(workload.act)

registry = Registry([bind(agent, id=AGENT, tools={"act": ToolClass.UNCERTAIN})])
