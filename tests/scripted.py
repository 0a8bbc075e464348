"""A scripted agent: the input is the script, so that a test says in one line what the model will do.

Steps are separated by `;`. One step is one model response:

    say TEXT                 the final answer
    call TOOL ARG & TOOL ARG a tool batch; the call ids are `c0`, `c1`, ... per response, the same in every Run
    fail                     the model raises, for ever
    fail-once PATH           the model raises the first time (PATH remembers)
    hang SECONDS             the model takes this long, then the next step is answered
    stop-once PATH           the process is killed in the middle of the model call, the first time

Tools append a line to the effect ledger they are given (`NAME@PATH`), which lies outside the product.
"""

import asyncio
import os
import signal
import time
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from thread_objects.agents import Registry, RunPolicy, ToolPolicy, bind
from thread_objects.contract.states import ToolClass

AGENT = "scripted"
MODEL_CALLS = "THREADS_TEST_MODEL_CALLS"


def _steps(messages: list[ModelMessage]) -> tuple[list[str], int]:
    done = 0
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            prompts = [part for part in message.parts if isinstance(part, UserPromptPart)]
            if prompts:
                return [step.strip() for step in str(prompts[-1].content).split(";")], done
        else:
            done += 1
    return ["say nothing asked"], 0


async def _model(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    if MODEL_CALLS in os.environ:
        effect(os.environ[MODEL_CALLS], "model")
    steps, done = _steps(messages)
    # A `hang` belongs to the response that follows it.
    answers = [step for step in steps if not step.startswith(("hang", "stop-once", "fail-once"))]
    step = answers[min(done, len(answers) - 1)]
    before = steps[steps.index(step) - 1] if steps.index(step) > 0 else ""
    verb, _, rest = before.partition(" ")
    if verb == "hang":
        await asyncio.sleep(float(rest))
    if verb == "stop-once" and _first_time(rest):
        os.kill(os.getpid(), signal.SIGKILL)
    if verb == "fail-once" and _first_time(rest):
        raise ModelHTTPError(503, "scripted", "overloaded")
    return _answer(step)


def _first_time(path: str) -> bool:
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _answer(step: str) -> ModelResponse:
    verb, _, rest = step.partition(" ")
    if verb == "fail":
        raise ModelHTTPError(503, "scripted", "overloaded for ever")
    if verb == "call":
        calls = []
        for n, call in enumerate(part.strip() for part in rest.split("&")):
            tool, _, argument = call.partition(" ")
            calls.append(ToolCallPart(tool, {"arg": argument}, tool_call_id=f"c{n}"))
        return ModelResponse(parts=calls)
    return ModelResponse(parts=[TextPart(rest or step)])


def effect(path: str, name: str) -> None:
    """One line in the effect ledger, written at once."""
    with Path(path).open("a") as ledger:
        ledger.write(f"{name} {os.getpid()} {time.time()}\n")
        ledger.flush()
        os.fsync(ledger.fileno())


def effects(path: Path) -> list[str]:
    """The names in an effect ledger, in order."""
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


agent = Agent(FunctionModel(_model, model_name="scripted"))


def _book(arg: str) -> str:
    name, _, path = arg.partition("@")
    if path:
        effect(path, name)
    return f"ok {name}"


@agent.tool_plain
async def look(arg: str) -> str:
    """Readonly."""
    return _book(arg)


@agent.tool_plain
async def pay(arg: str) -> str:
    """Uncertain: the effect, then a while before the result is known."""
    told = _book(arg)
    await asyncio.sleep(float(os.environ.get("THREADS_TEST_PAY_S", "0")))
    return told


@agent.tool_plain
async def order(arg: str) -> str:
    """Idempotent."""
    return _book(arg)


@agent.tool_plain
async def refund(arg: str) -> str:
    """Needs approval."""
    return _book(arg)


@agent.tool_plain
async def slow(arg: str) -> str:
    """Readonly, takes `arg` seconds."""
    await asyncio.sleep(float(arg))
    return "ok"


@agent.tool_plain
def block(arg: str) -> str:
    """Readonly, blocks its thread for `arg` seconds."""
    time.sleep(float(arg))
    return "ok"


@agent.tool_plain
async def big(arg: str) -> str:
    """Readonly, returns `arg` bytes."""
    return "x" * int(arg)


@agent.tool_plain
async def broken(arg: str) -> str:
    """Raises."""
    raise RuntimeError(f"broken {arg}")


TOOLS = {
    "look": ToolClass.READONLY,
    "order": ToolClass.IDEMPOTENT,
    "slow": ToolClass.READONLY,
    "block": ToolClass.READONLY,
    "big": ToolClass.READONLY,
    "broken": ToolClass.READONLY,
    "refund": ToolPolicy(approval=True),
}

registry = Registry(
    [bind(agent, id=AGENT, tools=TOOLS, policy=RunPolicy(model_retry_base_ms=10, model_retry_cap_ms=50))]
)
