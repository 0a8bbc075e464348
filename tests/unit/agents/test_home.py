"""Connections live on one event loop, whichever Attempt asks, and close when it stops asking."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers import Provider
from pydantic_ai.settings import ModelSettings

from activities.event_loop import run_on_own_loop
from thread_objects.agents.capability import ThreadCapability, request_settings
from thread_objects.agents.home import HomeModel, at_home
from thread_objects.agents.policy import RunPolicy


class Wire(Provider[Any]):
    """A provider that notes how it is entered."""

    name = "wire"
    base_url = "https://example.com"
    client = None

    def __init__(self) -> None:
        self.entered = 0

    async def __aenter__(self):
        self.entered += 1
        return self


class Wired(TestModel):
    """A model with connections: notes the loop of every request and the settings it got."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire()
        self.loops: list[Any] = []
        self.settings_seen: list[Any] = []
        self.started, self.closed = threading.Event(), threading.Event()
        self.hang = False

    @property
    def provider(self) -> Any:
        return self.wire

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        self.loops.append(asyncio.get_running_loop())
        self.settings_seen.append(model_settings)
        self.started.set()
        try:
            await asyncio.sleep(60 if self.hang else 0.01)
        finally:
            self.closed.set()
        return ModelResponse(parts=[TextPart("ok")])


async def ask(agent: Agent[Any, Any], policy: RunPolicy | None = None) -> str:
    """One run with our capability, as an Attempt makes it."""
    capability = ThreadCapability(policy or RunPolicy(), None, None, {})  # type: ignore[arg-type]
    result = await agent.run("hi", capabilities=[capability], model_settings=request_settings(policy or RunPolicy()))
    return str(result.output)


def test_requests_of_many_attempts_are_made_on_one_loop():
    """Four Attempts at once, each on its own loop; the model is entered once and asked on one other loop."""
    model = Wired()
    agent = Agent(model)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _n: run_on_own_loop(ask(agent)), range(8)))
    assert answers == ["ok"] * 8
    assert len(set(model.loops)) == 1
    assert model.wire.entered == 1


def test_cancelling_the_attempt_closes_the_request():
    """F13: what is not waited for any more does not go on generating."""
    model = Wired()
    model.hang = True

    async def cancelled() -> None:
        task = asyncio.create_task(ask(Agent(model)))
        await asyncio.get_running_loop().run_in_executor(None, model.started.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert model.closed.wait(5)


def test_the_provider_clients_own_retries_are_off_and_every_request_is_bounded():
    """F14: one owner of retries; an agent's own shorter bound counts."""
    model = Wired()
    asyncio.run(ask(Agent(model)))
    asyncio.run(ask(Agent(model, model_settings={"request_timeout": 5.0, "max_retries": 7, "temperature": 0.5})))
    first, second = model.settings_seen
    assert first == {"max_retries": 0, "request_timeout": 300.0}
    assert second == {"max_retries": 0, "request_timeout": 5.0, "temperature": 0.5}


def test_a_model_that_does_not_know_the_setting_is_not_given_it():
    """Others would warn about it, and warnings may be errors."""

    class Plain(Wired):
        unsupported_settings = frozenset({"max_retries"})

    model = Plain()
    asyncio.run(ask(Agent(model)))
    assert model.settings_seen == [{"request_timeout": 300.0}]


def test_scripted_models_stay_where_they_are():
    """No connections, no detour; a fallback chain moves as a whole if one of its models has any."""

    async def answer(_messages, _info):
        return ModelResponse(parts=[TextPart("ok")])

    scripted = FunctionModel(answer)
    assert at_home(scripted) is None
    assert at_home(FallbackModel(scripted, TestModel())) is None
    moved = at_home(FallbackModel(scripted, Wired()))
    assert isinstance(moved, HomeModel)
    assert at_home(moved) is None
