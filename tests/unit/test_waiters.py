"""Named waits: ended by their name, also before they begin, and nothing but the wait ends."""

import asyncio

import pytest

from thread_objects.contract import limits
from thread_objects.errors import WaitCancelled
from thread_objects.waiters import Waiters


async def _never() -> int:
    await asyncio.Event().wait()
    return 0


async def _one() -> int:
    await asyncio.sleep(0)
    return 1


async def test_a_hint_that_came_before_the_wait_ends_it_at_once():
    """ADM-030: a cancellation that arrives early is remembered, and used up by the wait it ends."""
    waiters = Waiters()
    assert not waiters.cancel("w")
    with pytest.raises(WaitCancelled):
        await waiters.until("w", _one())
    assert await waiters.until("w", _one()) == 1


async def test_at_most_1024_hints_are_kept_and_the_oldest_go_first():
    """ADM-030: past the bound the oldest hint is dropped; its wait then simply goes on."""
    waiters = Waiters()
    for n in range(limits.CANCELLATION_HINTS_MAX + 1):
        waiters.cancel(f"w{n}")
    assert await waiters.until("w0", _one()) == 1
    with pytest.raises(WaitCancelled):
        await waiters.until("w1", _one())
    with pytest.raises(WaitCancelled):
        await waiters.until(f"w{limits.CANCELLATION_HINTS_MAX}", _one())


async def test_every_wait_of_a_name_ends_and_no_other():
    """Ending a name ends all its present waits, leaves no hint behind, and touches nobody else's."""
    waiters = Waiters()
    mine = [asyncio.create_task(waiters.until("w", _never())) for _ in range(2)]
    other = asyncio.create_task(waiters.until("v", _never()))
    plain = asyncio.create_task(waiters.until(None, _never()))
    await asyncio.sleep(0)
    assert waiters.cancel("w")
    for task in mine:
        with pytest.raises(WaitCancelled):
            await task
    assert not other.done()
    assert not plain.done()
    assert await waiters.until("w", _one()) == 1
    for task in (other, plain):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await waiters.until("v", _one()) == 1


async def test_the_works_own_failure_is_told():
    """A wait that fails by itself tells how."""

    async def broken() -> int:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await Waiters().until("w", broken())
