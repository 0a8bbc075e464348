"""What an operator asks through a client: of the database where it has one, else of a worker. The answers are the same.

One thing only a worker can tell, whether its code still offers the operation that a stored permission to retry names,
and one only the Thread Object itself: that its head waits for a binding. Both are asked for where they matter, within
a short bound, and an answer without them is an answer all the same.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from temporalio.client import Client

from thread_objects.contract import names
from thread_objects.contract.operations import Explanation, InspectAnswer, InspectRequest, Operation, ThreadExplanation
from thread_objects.contract.reports import ObjectReport
from thread_objects.contract.states import SubmissionState
from thread_objects.contract.views import BindingWait
from thread_objects.errors import ThreadError
from thread_objects.objects import RPC_TIMEOUT, Objects
from thread_objects.reading import Reading
from thread_objects.settings import Settings

if TYPE_CHECKING:
    from thread_objects.ports import Reader

EXTRA_S = 3.0
"""How long to wait for what only a worker or the object can tell."""
ANSWER_TIMEOUT = timedelta(seconds=15)
VERIFY_TIMEOUT = timedelta(minutes=30)


class Inspecting:
    """Questions that read and change nothing."""

    def __init__(self, temporal: Client, objects: Objects, reading: Reading, settings: Settings) -> None:
        self._temporal = temporal
        self._objects = objects
        self._reading = reading
        self._settings = settings

    async def ask(self, request: InspectRequest) -> InspectAnswer:
        """One question."""
        if self._settings.database_url is None:
            return await self._by_wire(request)
        if request.operation is Operation.VERIFY:
            # Long: on a connection of its own, beside the short reads of others.
            return await asyncio.to_thread(self._verify, request)
        return await self._reading.with_reader(partial(_inspected, request))

    async def explanation(self, request: InspectRequest) -> Explanation | None:
        """Explain a Submission, with what only a worker or its object can tell."""
        found = (await self.ask(request)).explanation
        if found is None:
            return None
        if found.retry_contract == "unchecked" and self._settings.database_url is not None:
            found = await self._checked(request) or found
        if not _could_wait_for_binding(found):
            return found
        waits = await self._binding_waits(found.object_id)
        wait = next((wait for wait in waits if wait.submission_id == found.submission_id), None)
        return found.model_copy(update={"binding_wait": wait})

    async def thread_explanation(self, request: InspectRequest) -> ThreadExplanation | None:
        """Explain a Thread, with the binding waits its object tells of."""
        found = (await self.ask(request)).thread
        if found is None or not any(_could_wait_for_binding(row) for row in found.submissions):
            return found
        waits = {
            w.submission_id: w for w in await self._binding_waits(found.object_id) if w.thread_id == found.thread_id
        }
        if not waits:
            return found
        rows = tuple(row.model_copy(update={"binding_wait": waits.get(row.submission_id)}) for row in found.submissions)
        return found.model_copy(update={"submissions": rows, "binding_waits": tuple(waits.values())})

    async def _checked(self, request: InspectRequest) -> Explanation | None:
        try:
            async with asyncio.timeout(EXTRA_S):
                return (await self._by_wire(request)).explanation
        except (TimeoutError, ThreadError):
            return None

    async def _binding_waits(self, object_id: str) -> tuple[BindingWait, ...]:
        try:
            async with asyncio.timeout(EXTRA_S):
                return (await self._objects.query(object_id, names.QUERY_REPORT, None, ObjectReport)).binding_waits
        except (TimeoutError, ThreadError):
            return ()

    async def _by_wire(self, request: InspectRequest) -> InspectAnswer:
        whole = VERIFY_TIMEOUT if request.operation is Operation.VERIFY else ANSWER_TIMEOUT

        async def ask() -> InspectAnswer:
            answer: InspectAnswer = await self._temporal.execute_workflow(
                names.INSPECT_WORKFLOW_TYPE,
                request,
                id=f"inspect-{uuid.uuid4().hex}",
                task_queue=self._settings.task_queue,
                result_type=InspectAnswer,
                execution_timeout=whole,
                rpc_timeout=RPC_TIMEOUT,
            )
            return answer

        return await self._objects.call(ask)

    def _verify(self, request: InspectRequest) -> InspectAnswer:
        reader = self._reading.open_reader()
        try:
            return _inspected(request, reader)
        finally:
            reader.close()


def _inspected(request: InspectRequest, reader: Reader) -> InspectAnswer:
    return reader.inspect(request, now=time.time_ns() // 1_000_000)


def _could_wait_for_binding(found: Explanation) -> bool:
    """At the head of its lane, owned by nobody, and a worker's to go on with."""
    idle = found.owner is None and found.behind is None
    return idle and found.state in (SubmissionState.READY, SubmissionState.INPUT_APPLIED)
