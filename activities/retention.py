"""Retention by the worker's sweep: some pieces at each look, where the settings say so; none by default.

Rule guarded: it never competes with the work. A look is bounded, all of its transactions are, and once nothing is left
the next round begins an hour later.
"""

import asyncio

import structlog

from thread_objects.clock import Clock
from thread_objects.contract.retention import RetentionCursor, RetentionPolicy
from thread_objects.ports import Store
from thread_objects.settings import Settings

log = structlog.get_logger("retention")

PIECES_MAX = 16
"""Transactions of one look."""
ROUND_MS = 3_600_000
DAY_MS = 86_400_000


class Retention:
    """One per worker process. Several workers may look at once: what one has done the others do not find."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._cursor = RetentionCursor()
        self._next_round = 0

    async def look(self) -> int:
        """Take the content of what is old enough, a bounded amount; answers how many Submissions lost theirs."""
        days, now = self._settings.retention_days, self._clock.now()
        if days is None or now < self._next_round:
            return 0
        policy = RetentionPolicy(mode=self._settings.retention_mode, before=max(0, now - days * DAY_MS))
        taken = 0
        for _ in range(PIECES_MAX):
            page = await asyncio.to_thread(self._store.retain, policy, self._cursor, now=now)
            taken += page.submissions
            if page.cursor is None:
                self._cursor, self._next_round = RetentionCursor(), now + ROUND_MS
                break
            self._cursor = page.cursor
        if taken:
            log.info("content taken", submissions=taken, mode=policy.mode)
        return taken
