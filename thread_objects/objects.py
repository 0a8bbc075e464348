"""Messages to Thread Objects: updates and signals (with start), queries. Bounded, typed, repeated where that helps."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pydantic_core import PydanticSerializationError
from temporalio.client import Client, WithStartWorkflowOperation, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from thread_objects import placement
from thread_objects.calls import RETRY_S, call
from thread_objects.connection import resolve
from thread_objects.contract import limits, names
from thread_objects.contract.object import ObjectConfig, ObjectStart
from thread_objects.contract.wire import Wire
from thread_objects.errors import Busy, InvalidInput
from thread_objects.settings import Settings

T = TypeVar("T")

TASK_TIMEOUT = timedelta(seconds=5)
"""A worker that was killed with a workflow task in hand costs this much, not Temporal's default of 10 s."""
RPC_TIMEOUT = timedelta(seconds=15)
MET_MAX = 10_000
"""Objects a client remembers as being there, the ones it spoke to last."""
UPDATES_IN_FLIGHT = 8
"""Of one client to one object: the server takes 10, and whom it turns away waits for nothing but its own pause."""


def object_config(settings: Settings) -> ObjectConfig:
    """What an object is started with, whoever starts it."""
    return ObjectConfig(
        shared_host=settings.placement != placement.NONE,
        native_slots=settings.native_slots,
        alarm_backoff_base_ms=settings.alarm_backoff_base_ms,
        alarm_backoff_cap_ms=settings.alarm_backoff_cap_ms,
        heartbeat_timeout_ms=settings.heartbeat_timeout_ms,
        continue_events=settings.continue_events,
        continue_updates=settings.continue_updates,
        continue_bytes=settings.continue_bytes,
    )


def wire_bytes(message: Wire) -> int:
    """Size of a message on the wire. `InvalidInput` for text that no JSON can carry."""
    try:
        return len(message.model_dump_json(by_alias=True).encode())
    except PydanticSerializationError as error:
        raise InvalidInput(what=str(error)) from None


class Objects:
    """Thread Objects by their workflow id, started on their first mutation."""

    def __init__(self, temporal: Client, settings: Settings) -> None:
        self._temporal = temporal
        self._task_queue = settings.task_queue
        self._met: OrderedDict[str, None] = OrderedDict()
        self._gates: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._address = resolve(settings).address or ""
        self._config = object_config(settings)

    async def call(self, attempt: Callable[[], Awaitable[T]], *, object_id: str = "") -> T:
        """Any call of the Temporal client, with the bounds and errors of `thread_objects.calls`."""
        return await call(attempt, object_id=object_id, address=self._address)

    def _start(self, *, shared: bool) -> ObjectStart:
        config = self._config
        return ObjectStart(config=config.model_copy(update={"shared_host": True}) if shared else config)

    async def signal(self, object_id: str, name: str, message: Wire, *, shared: bool = False) -> None:
        """Signal, starting the object if it is not there. Returns when the server has it."""

        async def existing() -> None:
            await self._handle(object_id).signal(name, message, rpc_timeout=RPC_TIMEOUT)

        async def with_start() -> None:
            await self._temporal.start_workflow(
                names.WORKFLOW_TYPE,
                self._start(shared=shared),
                id=object_id,
                task_queue=self._task_queue,
                task_timeout=TASK_TIMEOUT,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                start_signal=name,
                start_signal_args=[message],
                rpc_timeout=RPC_TIMEOUT,
            )

        await self.call(lambda: self._standing(object_id, existing, with_start), object_id=object_id)

    async def _standing(
        self, object_id: str, existing: Callable[[], Awaitable[T]], with_start: Callable[[], Awaitable[T]]
    ) -> T:
        """The plain call to an object this client has met; the call with start where it is not there (any more)."""
        if object_id in self._met:
            self._met.move_to_end(object_id)
            try:
                return await existing()
            except RPCError as failure:
                if failure.status is not RPCStatusCode.NOT_FOUND:
                    raise
                self._met.pop(object_id, None)
        answer = await with_start()
        self._met[object_id] = None
        while len(self._met) > MET_MAX:
            self._met.popitem(last=False)
        return answer

    async def update(
        self, object_id: str, name: str, message: Wire, answer: type[T], *, start: bool = False, shared: bool = False
    ) -> T:
        """Update, and its typed answer; with `start` the object is started where it is not, as a host if `shared`."""
        update_bytes = wire_bytes(message)
        if update_bytes > limits.UPDATE_BYTES_MAX:
            raise InvalidInput(what=name, limit="wire-bytes", actual=update_bytes, maximum=limits.UPDATE_BYTES_MAX)

        async def with_start() -> T:
            operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                names.WORKFLOW_TYPE,
                self._start(shared=shared),
                id=object_id,
                task_queue=self._task_queue,
                task_timeout=TASK_TIMEOUT,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            )
            # The start's own outcome is told through the update; its future must be looked at all the same.
            started = asyncio.ensure_future(operation.workflow_handle())
            started.add_done_callback(lambda task: task.cancelled() or task.exception())
            try:
                result: T = await self._temporal.execute_update_with_start_workflow(
                    name, message, start_workflow_operation=operation, result_type=answer, rpc_timeout=RPC_TIMEOUT
                )
            finally:
                started.cancel()
            return result

        async def existing() -> T:
            result: T = await self._handle(object_id).execute_update(
                name, message, result_type=answer, rpc_timeout=RPC_TIMEOUT
            )
            return result

        gate = self._gates.setdefault(object_id, asyncio.Semaphore(UPDATES_IN_FLIGHT))

        async def in_turn() -> T:
            try:
                async with asyncio.timeout(RETRY_S):
                    await gate.acquire()
            except TimeoutError:
                raise Busy(reason="too many updates of this client are in flight") from None
            try:
                return await (self._standing(object_id, existing, with_start) if start else existing())
            finally:
                gate.release()

        return await self.call(in_turn, object_id=object_id)

    async def query(self, object_id: str, name: str, argument: Any, answer: type[T]) -> T:
        """Query; `NotFound` where there is no such object."""

        async def ask() -> T:
            handle = self._handle(object_id)
            if argument is None:
                result: T = await handle.query(name, result_type=answer, rpc_timeout=RPC_TIMEOUT)
            else:
                result = await handle.query(name, argument, result_type=answer, rpc_timeout=RPC_TIMEOUT)
            return result

        return await self.call(ask, object_id=object_id)

    def _handle(self, object_id: str) -> WorkflowHandle[Any, Any]:
        return self._temporal.get_workflow_handle(object_id)
