"""One event loop per process for everything that keeps connections: models of real providers.

Rule guarded: each Attempt has an event loop of its own, and a connection belongs to the loop that opened it. A
client shared by Attempts would hand one loop's connections to another; here all of them live in one place, are
reused from Attempt to Attempt, and are closed when an Attempt cancels its request.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

T = TypeVar("T")


class Home:
    """A daemon thread with an event loop that lasts as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._entered: dict[int, Model] = {}

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, started at first use."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="model-connections", daemon=True).start()
            return self._loop

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there. Cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop()))

    async def enter(self, model: Model) -> None:
        """Enter a model once for the life of the process, so that no run replaces its client. Runs at home."""
        if id(model) not in self._entered:
            self._entered[id(model)] = model
            await model.__aenter__()


_home = Home()


class HomeModel(WrapperModel):
    """A model whose requests are made at home."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make the request there and wait for it here."""

        async def ask() -> ModelResponse:
            await _home.enter(self.wrapped)
            return await self.wrapped.request(messages, model_settings, model_request_parameters)

        return await _home.run(ask())

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        """Streams are not used: a stream would have to cross loops chunk by chunk."""
        del args, kwargs
        raise RuntimeError("this model is asked without streaming")
        yield


def at_home(model: Model) -> Model | None:
    """The model moved home, or None for one that keeps no connections (scripted models)."""
    return HomeModel(model) if _keeps_connections(model) else None


def _keeps_connections(model: Model) -> bool:
    if isinstance(model, HomeModel):
        return False
    if isinstance(model, FallbackModel):
        return any(_keeps_connections(inner) for inner in model.models)
    if isinstance(model, WrapperModel):
        return _keeps_connections(model.wrapped)
    return model.provider is not None
