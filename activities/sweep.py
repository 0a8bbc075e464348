"""The mark sweep: the bridge for batches whose workflow task never completed, and for workers that died.

A local activity's transaction can outlive the workflow task that ran it. Its mark stays on the object's row until a
certified pass clears it, and this sweep turns old marks into hints: at once when a worker starts, then regularly. A
starting worker also hints what a worker known to be gone had in hand, and resets that worker's sticky queues, so
that nobody waits for a process that will not answer; and it announces its registry where input waits for one.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

import structlog
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from thread_objects.clock import Clock
from thread_objects.contract import names
from thread_objects.contract.messages import Wake
from thread_objects.contract.object import ObjectStart
from thread_objects.contract.views import Registry
from thread_objects.errors import ThreadError
from thread_objects.objects import TASK_TIMEOUT, object_config
from thread_objects.ports import Store
from thread_objects.settings import Settings

from .retention import Retention

log = structlog.get_logger("sweep")

OBJECTS_MAX = 1_000
ANNOUNCED_MAX = 200
"""Objects told of a registry between two beats, or at one look for late ones."""
SILENT_MS = 10_000
"""A worker not seen for this long is taken for gone (it says so itself every `BEAT_MS`)."""
BEAT_MS = 2_000


class MarkSweep:
    """One per worker process. `step` is a single look; `run` repeats it."""

    def __init__(
        self,
        store: Store,
        temporal: Client,
        *,
        settings: Settings,
        clock: Clock,
        worker: str,
        registry: Registry,
        agents: Sequence[str],
    ) -> None:
        self._store = store
        self._temporal = temporal
        self._settings = settings
        self._clock = clock
        self._worker = worker
        self._registry = registry
        self._agents = agents
        self._announced = ""
        self._retention = Retention(store, settings, clock)

    async def run(self) -> None:
        """At once for what is gone, then a beat every 2 s and a look at old marks every `mark_sweep_ms`."""
        await self._guarded(self._beat)
        await self._guarded(self.gone_workers)
        await self._guarded(lambda: self.old_marks(0))
        await self._guarded(self.announce)
        next_sweep = self._clock.now() + self._settings.mark_sweep_ms
        while True:
            await asyncio.sleep(BEAT_MS / 1_000)
            await self._guarded(self._beat)
            if self._clock.now() >= next_sweep:
                next_sweep = self._clock.now() + self._settings.mark_sweep_ms
                await self._guarded(self.gone_workers)
                await self._guarded(lambda: self.old_marks(self._settings.mark_age_ms))
                await self._guarded(self.announce_late)
                await self._guarded(self._retention.look)

    async def _guarded(self, step: Callable[[], Awaitable[object]]) -> None:
        try:
            await step()
        except (ThreadError, RPCError) as error:
            # Promptness only: the marks stay and the next look finds them again.
            log.warning("sweep postponed", error=type(error).__name__)

    async def _beat(self) -> None:
        await asyncio.to_thread(
            self._store.worker_seen, self._worker, host=socket.gethostname(), pid=os.getpid(), now=self._clock.now()
        )

    async def gone_workers(self) -> list[str]:
        """Hint the objects of workers known to be gone; answers their ids."""
        silent = await asyncio.to_thread(self._store.workers_silent_since, self._clock.now() + 1)
        limit = self._clock.now() - SILENT_MS
        quiet = {row[0] for row in await asyncio.to_thread(self._store.workers_silent_since, limit)}
        gone = [
            worker
            for worker, host, pid in silent
            if worker != self._worker and (worker in quiet or (host == socket.gethostname() and not _alive(pid)))
        ]
        if not gone:
            return []
        objects = await asyncio.to_thread(self._store.objects_of_workers, gone, limit=OBJECTS_MAX)
        for object_id in objects:
            await self._reset_sticky(object_id)
            await self._hint(object_id, Wake())
        for worker in gone:
            await asyncio.to_thread(self._store.worker_gone, worker)
        log.info("workers gone", workers=len(gone), objects=len(objects))
        return objects

    async def old_marks(self, age_ms: int) -> list[str]:
        """Hint the objects whose mark is older than this; answers their ids."""
        marks = await asyncio.to_thread(self._store.old_marks, before=self._clock.now() - age_ms, limit=OBJECTS_MAX)
        for mark in marks:
            await self._hint(mark.object_id, Wake(mark=mark.mark))
        return [mark.object_id for mark in marks]

    async def announce(self) -> None:
        """Tell this worker's registry to the objects that it could serve: some may wait for just that binding."""
        wake = Wake(registry_key=self._registry.key, deployment=self._registry.deployment)
        after = ""
        while objects := await asyncio.to_thread(
            self._store.objects_owed_by, self._agents, after=after, limit=ANNOUNCED_MAX
        ):
            for object_id in objects:
                await self._hint(object_id, wake)
            after = objects[-1]
            await self._beat()

    async def announce_late(self) -> None:
        """The same where a head is not taken up: a worker of another registry may have turned it away since."""
        objects = await asyncio.to_thread(
            self._store.objects_owed_by,
            self._agents,
            after=self._announced,
            limit=ANNOUNCED_MAX,
            ready_by=self._clock.now() - self._settings.mark_age_ms,
        )
        wake = Wake(registry_key=self._registry.key, deployment=self._registry.deployment, late=True)
        for object_id in objects:
            await self._hint(object_id, wake)
        self._announced = objects[-1] if len(objects) == ANNOUNCED_MAX else ""

    async def _hint(self, object_id: str, wake: Wake) -> None:
        # Signal-with-start: an object that an operator ended, or that never came to be, is owed its work all the same.
        await self._temporal.start_workflow(
            names.WORKFLOW_TYPE,
            ObjectStart(config=object_config(self._settings)),
            id=object_id,
            task_queue=self._settings.task_queue,
            task_timeout=TASK_TIMEOUT,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=names.WAKE,
            start_signal_args=[wake],
        )

    async def _reset_sticky(self, object_id: str) -> None:
        try:
            await self._temporal.workflow_service.reset_sticky_task_queue(
                ResetStickyTaskQueueRequest(
                    namespace=self._temporal.namespace, execution=WorkflowExecution(workflow_id=object_id)
                )
            )
        except RPCError as error:
            log.debug("sticky queue not reset", object_id=object_id, status=str(error.status))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
