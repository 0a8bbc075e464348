"""Asks a reconciler about one lost call, within a bound.

The question runs on a thread of its own, since it is the application's code and may hang: it is then left behind and
its answer thrown away. An answer that is none proves nothing.
"""

import asyncio
import queue
import threading
from collections.abc import Awaitable
from inspect import isawaitable

from thread_objects.core.recovery import (
    CompletedWithResult,
    LostCall,
    NeverStarted,
    Reconciled,
    SafeToRetry,
    Uncertain,
)
from thread_objects.ports import Reconciler


class ReconcilerFailed(Exception):
    """The reconciler raised, took too long, or answered something else than a verdict. It proved nothing."""


async def _awaited(answer: Awaitable[Reconciled]) -> Reconciled:
    return await answer


def ask(reconciler: Reconciler, call: LostCall, *, timeout_ms: int) -> Reconciled:
    """The reconciler's verdict. Raises `ReconcilerFailed`; anything that is no `Exception` passes through."""
    box: queue.SimpleQueue[Reconciled | BaseException] = queue.SimpleQueue()

    def answer() -> None:
        try:
            said = reconciler(call)
            box.put(asyncio.run(_awaited(said)) if isawaitable(said) else said)
        except BaseException as error:  # noqa: BLE001 - carried to the thread that asked
            box.put(error)

    threading.Thread(target=answer, name="reconciler", daemon=True).start()
    try:
        verdict = box.get(timeout=timeout_ms / 1_000)
    except queue.Empty:
        raise ReconcilerFailed from TimeoutError(f"no answer within {timeout_ms} ms")
    if isinstance(verdict, Exception):
        raise ReconcilerFailed from verdict
    if isinstance(verdict, BaseException):
        raise verdict
    if not isinstance(verdict, CompletedWithResult | NeverStarted | SafeToRetry | Uncertain):
        raise ReconcilerFailed from TypeError(f"answered {type(verdict).__name__}")
    return verdict
