"""What a client reads: from the database where it has one, else through a short workflow. The answers are the same."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

from temporalio.client import Client

from thread_objects import _runtime
from thread_objects.calls import RETRY_S
from thread_objects.contract import ids, limits, names
from thread_objects.contract.activities import ReadAnswer, ReadRequest
from thread_objects.contract.messages import LogRecord, SubmissionStatus
from thread_objects.contract.operations import Operation
from thread_objects.errors import InvalidInput, StoreUnavailable, StreamEnded
from thread_objects.objects import RPC_TIMEOUT, Objects
from thread_objects.ports import Reader
from thread_objects.settings import Settings

T = TypeVar("T")

FOLLOW_PAGE = 256


class Reading:
    """Statuses and logs. One database connection, opened at the first read, used by one read at a time."""

    def __init__(self, temporal: Client, objects: Objects, settings: Settings) -> None:
        self._temporal = temporal
        self._objects = objects
        self._settings = settings
        self._reader: Reader | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    def open_reader(self) -> Reader:
        """A connection of one's own to the database."""
        reader: Reader = _runtime.load("storage").open_reader(self._settings.database_url)
        return reader

    async def close(self) -> None:
        """Release the connection; followers are told."""
        self._closed = True
        if self._reader is not None:
            await asyncio.to_thread(self._reader.close)
            self._reader = None

    async def status(
        self,
        submission_id: str,
        thread_id: str | None = None,
        *,
        caller: str = "",
        operation: Operation = Operation.STATUS,
        by_wire: bool = False,
    ) -> SubmissionStatus | None:
        """Where a Submission stands. None too where it is another Thread's than the one named.

        `by_wire` asks a worker, also where this client has a database.
        """
        request = ReadRequest(
            submission_id=submission_id, thread_id=thread_id, operation=operation.value, caller=caller
        )
        return (await self._read(request, by_wire=by_wire)).status

    async def owner(self, thread_id: str) -> str | None:
        """The Thread Object that owns a Thread; None for a Thread that storage does not have."""
        return (await self._read(ReadRequest(owner_of=thread_id))).object_id

    async def find(self, thread_id: str, principal: str, key: str, *, caller: str = "") -> SubmissionStatus | None:
        """The Submission of an idempotency key."""
        request = ReadRequest(thread_id=thread_id, principal=principal, key=key, caller=caller)
        return (await self._read(request)).status

    async def log(self, thread_id: str, *, after: int, limit: int, caller: str = "") -> list[LogRecord]:
        """A page of a Thread's log."""
        if not 1 <= limit <= limits.READ_PAGE_RECORDS_MAX:
            raise InvalidInput(what="limit", limit="read-page", actual=limit, maximum=limits.READ_PAGE_RECORDS_MAX)
        request = ReadRequest(thread_id=thread_id, after=after, limit=limit, caller=caller)
        return list((await self._read(request)).records)

    async def with_reader(self, work: Callable[[Reader], T]) -> T:
        """Run a short read on the database connection, one at a time."""

        def read() -> T:
            reader = self._reader = self._reader or self.open_reader()
            return work(reader)

        async with self._lock:
            return await asyncio.to_thread(read)

    async def follow(
        self, thread_id: str, *, after: int = 0, until: str | None = None, caller: str = ""
    ) -> AsyncGenerator[LogRecord]:
        """The log from `after` on, as it grows. Ends after the settlement of `until`; without it, never by itself.

        A stream that ends in any other way raises: `StreamEnded` when the client was closed, `StoreUnavailable`
        when the database stayed away for 30 s.
        """
        pause_s = 0.02
        while True:
            if self._closed:
                raise StreamEnded(thread_id=thread_id)
            page = await self.outlasting(partial(self.log, thread_id, after=after, limit=FOLLOW_PAGE, caller=caller))
            for record in page:
                after = record.sequence
                yield record
                if until is not None and record.record_id == ids.settlement_id(until):
                    return
            pause_s = 0.02 if page else min(0.5, pause_s * 1.5)
            if not page:
                await asyncio.sleep(pause_s)

    async def outlasting(self, read: Callable[[], Awaitable[T]]) -> T:
        """A read for somebody who outlasts a database that is away for a while."""
        until = asyncio.get_running_loop().time() + RETRY_S
        while True:
            try:
                return await read()
            except StoreUnavailable:
                if self._closed or asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(0.25)

    async def _read(self, request: ReadRequest, *, by_wire: bool = False) -> ReadAnswer:
        if self._settings.database_url is not None and not by_wire:
            return await self.with_reader(partial(_read_database, request))

        async def ask() -> ReadAnswer:
            answer: ReadAnswer = await self._temporal.execute_workflow(
                names.READ_WORKFLOW_TYPE,
                request,
                id=f"read-{uuid.uuid4().hex}",
                task_queue=self._settings.task_queue,
                result_type=ReadAnswer,
                execution_timeout=timedelta(seconds=15),
                rpc_timeout=RPC_TIMEOUT,
            )
            return answer

        return await self._objects.call(ask)


def _read_database(request: ReadRequest, reader: Reader) -> ReadAnswer:
    if request.owner_of is not None:
        return ReadAnswer(object_id=reader.owner(request.owner_of))
    if request.submission_id is not None:
        found = reader.status(request.submission_id)
        elsewhere = found is not None and request.thread_id not in (None, found.thread_id)
        return ReadAnswer(status=None if elsewhere else found)
    if request.key is not None and request.principal is not None and request.thread_id is not None:
        return ReadAnswer(status=reader.find(request.thread_id, request.principal, request.key))
    if request.thread_id is None:
        raise InvalidInput(what="nothing to read")
    return ReadAnswer(records=tuple(reader.log(request.thread_id, after=request.after, limit=request.limit)))
