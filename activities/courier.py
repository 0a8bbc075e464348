"""Carries messages from Attempts, which run on threads of their own, to their Thread Objects."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from thread_objects.contract import names
from thread_objects.contract.messages import Schedule
from thread_objects.objects import Objects


class Courier:
    """Sends on the worker's event loop: the one that its Temporal client belongs to."""

    def __init__(self, objects: Objects, loop: asyncio.AbstractEventLoop) -> None:
        self._objects = objects
        self._loop = loop

    def schedules(self, object_id: str, attempt_id: str) -> Callable[[Schedule], Future[None]]:
        """What sends the schedules of one Attempt. They say whose they are."""

        def send(schedule: Schedule) -> Future[None]:
            message = schedule.model_copy(update={"attempt_id": attempt_id})
            return asyncio.run_coroutine_threadsafe(
                self._objects.signal(object_id, names.SCHEDULE, message), self._loop
            )

        return send
