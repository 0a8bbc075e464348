"""One wave of foreign code, on a thread of its own: bounded, told when to stop, and given up where it does not.

Rules guarded: a handler that never returns costs its wave, not the worker's slot; cancellation is never thrown into
running code, a flag is set and an `async` handler's task is cancelled; whatever it raises leaves as a typed failure.
"""

import asyncio
import contextvars
import inspect
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from thread_objects.clock import instant_ms
from thread_objects.contract import limits
from thread_objects.contract.waves import WaveAnswer
from thread_objects.errors import WaveFailed
from thread_objects.extensions import Due, Extensions, WaveContext, WaveInterrupted

from .control import Control

log = structlog.get_logger("waves")

CLEANUP_MS_MAX = 1_000
"""Of a wave's time for its handler to unwind; a tenth of it, where that is less."""


class WaveCancelled(Exception):
    """The wave ended because it was cancelled."""


LOOK_S = 0.25
LEAVING_S = 5.0
"""How long a worker that shuts down waits for a handler that ignores it."""


@dataclass(slots=True)
class WaveResult:
    """What a wave leaves behind, however it ends. `error` is None when it ended well."""

    answer: WaveAnswer
    error: WaveFailed | WaveCancelled | None = None


class Calls:
    """Calls a handler's methods on the wave's thread, whether they are plain or `async`."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def __call__(self, method: Callable[..., Any], *args: Any) -> Any:
        """The method's answer. Raises `WaveInterrupted` instead of beginning when the wave is to end."""
        if self._stopping.is_set():
            raise WaveInterrupted
        answer = method(*args)
        return self._awaited(answer) if inspect.isawaitable(answer) else answer

    def _awaited(self, answer: Any) -> Any:
        async def main() -> Any:
            with self._lock:
                self._task = asyncio.current_task()
                if self._stopping.is_set() and self._task is not None:
                    self._task.cancel()
            return await answer

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(main())
        finally:
            with self._lock:
                self._task = None

    def interrupt(self) -> None:
        """Cancel what is awaited; plain code sees the flag."""
        with self._lock:
            self._stopping.set()
            if self._task is not None and self._loop is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        """What an `async` handler left behind is cancelled with its loop."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=CLEANUP_MS_MAX / 1_000))
        loop.close()


Body = Callable[[Calls, WaveContext], Due]


@dataclass(slots=True)
class Handling:
    """One wave from its start to its end. `run` blocks its caller for at most `budget_ms`."""

    extensions: Extensions
    object_id: str
    lane: str
    key: str
    now: int
    budget_ms: int
    control: Control
    leaving: Callable[[], bool] = lambda: False
    """Whether the worker shuts down."""
    acknowledged: int = 0
    """Raised by the body as it goes; counts even when the wave fails."""
    _progressed: set[str] = field(default_factory=set)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)
    _left: bool = False
    _due: Due = None
    _error: BaseException | None = None

    def run(self, body: Body) -> WaveResult:
        """Run the body; answer what it left behind. Never raises for what the body does."""
        calls = Calls(self._stopping)
        context = WaveContext(
            object_id=self.object_id,
            lane=self.lane,
            key=self.key,
            now=self.now,
            deadline=self.now + self.budget_ms,
            progressed=self._progressed,
            told=self._stopping.is_set,
        )
        ends_at = time.monotonic() + self.budget_ms / 1_000
        cleanup_s = min(CLEANUP_MS_MAX, self.budget_ms // 10) / 1_000
        copied = contextvars.copy_context()
        threading.Thread(
            target=lambda: copied.run(self._main, body, calls, context), name=f"wave {self.lane}", daemon=True
        ).start()
        self.control.attach(calls.interrupt)
        try:
            in_time = self._ended_by(ends_at - cleanup_s)
            if not in_time and not self._left:
                calls.interrupt()
                self._done.wait(max(0.0, ends_at - time.monotonic()))
        finally:
            self.control.attach(None)
        return self._result(in_time=in_time)

    def _ended_by(self, instant: float) -> bool:
        """Wait for the body. A process that leaves waits no longer than `LEAVING_S` for one that does not end."""
        leave_at = None
        while not self._done.wait(min(LOOK_S, max(0.0, instant - time.monotonic()))):
            now = time.monotonic()
            if leave_at is None and self.leaving():
                leave_at = now + LEAVING_S
            if now >= instant or (leave_at is not None and now >= leave_at):
                self._left = now < instant
                return False
        return True

    def _main(self, body: Body, calls: Calls, context: WaveContext) -> None:
        try:
            self._due = body(calls, context)
        except BaseException as error:  # noqa: BLE001 - foreign code: everything it raises is this wave's end
            self._error = error
        finally:
            self._done.set()
            calls.close()

    # --- the end --------------------------------------------------------------------------------------------------

    def _result(self, *, in_time: bool) -> WaveResult:
        error = self._error
        if self._left:
            return self._failed("shutdown")
        stopped = not self._done.is_set() or isinstance(error, (asyncio.CancelledError, WaveInterrupted))
        if stopped and not in_time:
            return self._failed("timeout")
        if stopped and self.control.told:
            return WaveResult(self._answer(None), WaveCancelled())
        if error is not None:
            log.error(
                "wave failed", lane=self.lane, object_id=self.object_id, error=type(error).__name__, at=_where(error)
            )
            return self._failed("failure", type(error).__name__)
        try:
            return WaveResult(self._answer(due_ms(self._due)))
        except (ValueError, OverflowError):
            return self._failed("answer", type(self._due).__name__)

    def _answer(self, due_at: int | None) -> WaveAnswer:
        # A row that nobody handles would fail every pass of its object.
        known = sorted(lane for lane in set(self._progressed) if self.extensions.knows(lane))
        return WaveAnswer(
            due_at=due_at, progressed=tuple(known[: limits.LANES_NAMED_MAX]), acknowledged=self.acknowledged
        )

    def _failed(self, reason: str, error_tag: str = "") -> WaveResult:
        error = WaveFailed(lane=self.lane, reason=reason, error_tag=error_tag[: limits.DIAGNOSTIC_TAG_CHARS_MAX])
        return WaveResult(self._answer(None), error)


def _where(error: BaseException) -> str:
    """Where foreign code raised, without what it said: a message may hold anything."""
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-4:]))


def due_ms(due: Due) -> int | None:
    """A handler's answer in epoch milliseconds. Raises ValueError for anything else than it may answer."""
    if due is None:
        return None
    due = instant_ms(due)
    if isinstance(due, bool) or not isinstance(due, int) or not 0 <= due <= limits.SERIAL_MAX:
        raise ValueError("epoch milliseconds, an aware datetime or None is expected")
    return due
