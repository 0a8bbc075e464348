"""The event loop of an Attempt: its thread's own, kept from one Attempt to the next.

Rule guarded: a loop on which something is stuck is given up with it, never waited for.
"""

import asyncio
import threading
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:  # optional
    _new_loop = asyncio.new_event_loop
else:
    _new_loop = uvloop.new_event_loop

T = TypeVar("T")
_SWEEPS = 3

_own = threading.local()


class _Tasks:
    """The tasks of one loop. `asyncio.all_tasks` would look at those of every workflow in the worker's memory."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[Any]] = set()

    def make(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **more: Any
    ) -> "asyncio.Task[Any]":
        """The loop's task factory."""
        task = asyncio.Task(work, loop=loop, **more)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return task

    def left(self) -> set["asyncio.Task[Any]"]:
        """Those that are not done."""
        return {task for task in self._open if not task.done()}


def run_on_own_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on this thread's loop. What it leaves behind is cancelled, not awaited for long."""
    loop: asyncio.AbstractEventLoop | None = getattr(_own, "loop", None)
    _own.loop = None
    if loop is None or loop.is_closed():
        loop = _new_loop()
        _own.tasks = _Tasks()
        loop.set_task_factory(_own.tasks.make)
    tasks: _Tasks = _own.tasks
    try:
        return loop.run_until_complete(main)
    finally:
        if _swept(loop, tasks):
            _own.loop = loop
        else:
            loop.close()


def _swept(loop: asyncio.AbstractEventLoop, tasks: _Tasks) -> bool:
    """Cancel what is left and give it a few turns of the loop. False when something stays."""
    left = tasks.left()
    for _ in range(_SWEEPS):
        if not left:
            return True
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        left = tasks.left()
    return not left
