"""Waits that have a name, so that somebody else may end them. A name is a hint: ending a wait ends no work.

A cancellation may come before its wait, from another task or over another connection; it is then remembered, within
a bound, and the wait ends at once. The oldest hints are dropped first: a lost one costs a wait that goes on.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, TypeVar

from thread_objects.contract import limits
from thread_objects.errors import WaitCancelled

T = TypeVar("T")


class Waiters:
    """The named waits of one client. For one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._hints: OrderedDict[str, None] = OrderedDict()

    def cancel(self, waiter: str) -> bool:
        """End every wait of this name, or the next one if there is none now. True when one was ended."""
        waiting = self._waiting.get(waiter, set())
        for ended in waiting:
            if not ended.done():
                ended.set_result(None)
        if not waiting:
            self._hints[waiter] = None
            self._hints.move_to_end(waiter)
            while len(self._hints) > limits.CANCELLATION_HINTS_MAX:
                self._hints.popitem(last=False)
        return bool(waiting)

    async def until(self, waiter: str | None, work: Coroutine[Any, Any, T]) -> T:
        """The work's answer. Raises `WaitCancelled` when somebody ended the wait first, or had before it began."""
        if waiter is None:
            return await work
        if waiter in self._hints:
            del self._hints[waiter]
            work.close()
            raise WaitCancelled(waiter=waiter)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        working = asyncio.ensure_future(work)
        self._waiting.setdefault(waiter, set()).add(ended)
        try:
            either: set[asyncio.Future[Any]] = {working, ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return await working
            raise WaitCancelled(waiter=waiter)
        finally:
            working.cancel()
            rest = self._waiting[waiter]
            rest.discard(ended)
            if not rest:
                del self._waiting[waiter]
