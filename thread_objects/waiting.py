"""Learning of settlements and of logs that grew without a workflow event: one poller per client for all waiters.

With a database the outcome is known when the Attempt commits it (LISTEN on PostgreSQL, the file's change counter on
SQLite), not when the workflow's last task has come round.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from thread_objects.contract.messages import Settlement
from thread_objects.errors import StoreUnavailable, ThreadError
from thread_objects.ports import Reader

POLL_MS_MAX = 250
CROWD = 8
CROWD_REST_S = 0.005
"""Where so many wait, something is committed all the time: one look for what comes together, not one for each."""
RECONNECT_S_MAX = 2.0


class SettlementWatch:
    """Watches a database for the settlements, and the logs, somebody waits for. Idle while nobody does."""

    def __init__(self, open_reader: Callable[[], Reader]) -> None:
        self._open_reader = open_reader
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, list[asyncio.Future[Settlement]]] = {}
        self._growing: dict[str, list[tuple[int, asyncio.Future[int]]]] = {}
        self._lock = threading.Lock()
        self._wanted = threading.Condition(self._lock)
        self._fresh = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._reader: Reader | None = None
        self.failure: ThreadError | None = None
        """Why the last look failed, None when it did not. Waiters go on: the database may come back."""

    async def settlement(self, submission_id: str) -> Settlement:
        """Wait, without a bound of its own, until the Submission is settled. Cancelling detaches only this waiter."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Settlement] = loop.create_future()
        with self._lock:
            self._begin(loop)
            self._waiting.setdefault(submission_id, []).append(future)
        try:
            return await future
        finally:
            with self._lock:
                rest = [other for other in self._waiting.get(submission_id, []) if other is not future]
                if rest:
                    self._waiting[submission_id] = rest
                else:
                    self._waiting.pop(submission_id, None)

    async def progress(self, thread_id: str, after: int) -> int:
        """Wait until a Thread's log is longer than `after`; answers how long it is. Cancelling detaches this waiter."""
        loop = asyncio.get_running_loop()
        grown: asyncio.Future[int] = loop.create_future()
        entry = (after, grown)
        with self._lock:
            self._begin(loop)
            self._growing.setdefault(thread_id, []).append(entry)
        try:
            return await grown
        finally:
            with self._lock:
                rest = [other for other in self._growing.get(thread_id, []) if other is not entry]
                if rest:
                    self._growing[thread_id] = rest
                else:
                    self._growing.pop(thread_id, None)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Somebody begins to wait; the lock is held, so the poller sees the waiter before it looks."""
        if self._closed:
            raise StoreUnavailable(reason="closed")
        self._loop = loop
        self._fresh = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="settlement-watch", daemon=True)
            self._thread.start()
        self._wanted.notify()
        if self._reader is not None:
            self._reader.quicken()

    def close(self) -> None:
        """Stop the poller; bounded by one poll. Whoever still waits is told: nobody will look again."""
        with self._lock:
            self._closed = True
            self._wanted.notify()
            if self._loop is not None and (self._waiting or self._growing):
                with suppress(RuntimeError):  # a loop that is gone took its waiters along
                    self._loop.call_soon_threadsafe(self._abandon)
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _watch(self) -> None:
        pause_s = 0.05
        while not self._closed:
            try:
                reader = self._reader = self._reader or self._open_reader()
                self._look(reader)
                self.failure, pause_s = None, 0.05
            except ThreadError as error:
                self.failure = error
                if self._reader is not None:
                    self._reader.close()
                    self._reader = None
                with self._lock:
                    # What was committed while nobody looked is told to nobody: look before waiting.
                    self._fresh = True
                    self._wanted.wait(timeout=pause_s)
                pause_s = min(RECONNECT_S_MAX, pause_s * 2)
        if self._reader is not None:
            self._reader.close()

    def _look(self, reader: Reader) -> None:
        with self._lock:
            while not self._waiting and not self._growing and not self._closed:
                self._wanted.wait()
            ids, threads = list(self._waiting), list(self._growing)
            fresh, self._fresh = self._fresh, False
        if self._closed:
            return
        # A waiter that came since the last look may wait for something settled long ago: look before waiting.
        if len(ids) >= CROWD:
            time.sleep(CROWD_REST_S)
        if fresh or reader.wait_for_change(POLL_MS_MAX):
            found = reader.settlements(ids) if ids else {}
            tails = reader.tails(threads) if threads else {}
            if found or tails:
                self._deliver(found, tails)

    def _deliver(self, found: dict[str, Settlement], tails: dict[str, int]) -> None:
        with self._lock:
            loop = self._loop
        if loop is None:
            raise StoreUnavailable(reason="no event loop waits")
        try:
            loop.call_soon_threadsafe(self._resolve, found, tails)
        except RuntimeError:
            self._closed = True  # the loop is gone, and every waiter with it

    def _abandon(self) -> None:
        with self._lock:
            left, self._waiting = self._waiting, {}
            growing, self._growing = self._growing, {}
        futures: list[asyncio.Future[Any]] = [future for waiters in left.values() for future in waiters]
        futures += [future for waiters in growing.values() for _, future in waiters]
        for future in futures:
            if not future.done():
                future.set_exception(StoreUnavailable(reason="closed"))

    def _resolve(self, found: dict[str, Settlement], tails: dict[str, int]) -> None:
        with self._lock:
            for submission_id, settlement in found.items():
                for future in self._waiting.pop(submission_id, []):
                    if not future.done():
                        future.set_result(settlement)
            for thread_id, tail in tails.items():
                for after, grown in self._growing.get(thread_id, []):
                    if tail > after and not grown.done():
                        grown.set_result(tail)
