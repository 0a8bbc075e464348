"""Waiting for settlements: nothing that was committed is missed, and nobody waits for a watch that is closed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from thread_objects.contract.messages import Settlement
from thread_objects.contract.states import Outcome
from thread_objects.errors import StoreUnavailable
from thread_objects.waiting import SettlementWatch

SETTLED = Settlement(
    submission_id="s",
    settlement_id="settlement:s",
    receipt_id="r",
    thread_id="t",
    outcome=Outcome.COMPLETED,
    settled_at=1,
)


class Scripted:
    """A database that is told of no change; `away` makes its watch fail."""

    def __init__(self, settled: dict[str, Settlement], *, away: bool = False) -> None:
        self._settled = settled
        self._away = away

    def wait_for_change(self, timeout_ms: int) -> bool:
        """Nothing, or a lost connection."""
        del timeout_ms
        if self._away:
            self._settled["s"] = SETTLED
            raise StoreUnavailable(reason="away")
        return False

    def settlements(self, submission_ids: Sequence[str]) -> dict[str, Settlement]:
        """What is settled."""
        return {sid: self._settled[sid] for sid in submission_ids if sid in self._settled}

    def quicken(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to release."""


async def test_what_was_committed_while_the_database_was_away_is_seen() -> None:
    """A connection of its own age is told of nothing older: the watch looks before it waits again."""
    settled: dict[str, Settlement] = {}
    readers: list[Any] = [Scripted(settled, away=True), Scripted(settled)]
    watch = SettlementWatch(lambda: readers.pop(0))
    try:
        assert await asyncio.wait_for(watch.settlement("s"), 5) == SETTLED
    finally:
        watch.close()


async def test_a_closed_watch_keeps_nobody_waiting() -> None:
    """Whoever waits when it closes, or comes later, is told."""
    watch = SettlementWatch(lambda: Scripted({}))  # type: ignore[arg-type, return-value]
    waiter = asyncio.create_task(watch.settlement("s"))
    await asyncio.sleep(0)
    watch.close()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(waiter, 5)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(watch.settlement("s"), 5)
