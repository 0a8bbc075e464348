"""The event loop of an Attempt: its thread's own, kept from one Attempt to the next.

Rule guarded: a loop on which something is stuck is given up with it, never waited for.
"""

import asyncio
import threading
from collections.abc import Coroutine
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


def run_on_own_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on this thread's loop. What it leaves behind is cancelled, not awaited for long."""
    loop: asyncio.AbstractEventLoop | None = getattr(_own, "loop", None)
    _own.loop = None
    if loop is None or loop.is_closed():
        loop = _new_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        if _swept(loop):
            _own.loop = loop
        else:
            loop.close()


def _swept(loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel what is left and give it a few turns of the loop. False when something stays."""
    left = asyncio.all_tasks(loop)
    for _ in range(_SWEEPS):
        if not left:
            return True
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        left = asyncio.all_tasks(loop)
    return not left
