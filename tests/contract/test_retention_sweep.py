"""Retention by the worker's sweep: only where it is configured, in bounded looks, again after an hour."""

import pytest

from activities import retention
from activities.retention import Retention
from tests.contract.recovery.lab import StepClock
from tests.contract.world import World
from thread_objects import Settings
from thread_objects.errors import ConfigError
from thread_objects.settings import load_settings

DAY_MS = retention.DAY_MS
on_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


@on_sqlite
async def test_everything_is_kept_by_default(world: World):
    """Without a setting the sweep takes nothing, however old it is."""
    world.run_through("k1")
    assert await Retention(world.store, Settings(), StepClock(10_000 * DAY_MS)).look() == 0
    with pytest.raises(ConfigError):
        load_settings(retention_days=0)


@on_sqlite
async def test_a_look_is_bounded_and_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch):
    """A round ends when nothing is left; the next one begins an hour later and takes what has come of age."""
    monkeypatch.setattr(retention, "PIECES_MAX", 2)
    clock = StepClock(world.now)
    sweep = Retention(world.store, Settings(retention_days=1, retention_mode="delete"), clock)
    for number in range(3):
        world.run_through("k", thread=f"thread-{number}x")
    assert await sweep.look() == 0
    clock.at += 2 * DAY_MS
    taken = [await sweep.look() for _ in range(6)]
    assert (sum(taken), max(taken), taken[-1]) == (3, 1, 0)
    assert world.store.records("thread-0x", after=0, limit=9) == []
    world.now = clock.at - DAY_MS - 1
    world.run_through("late")
    assert await sweep.look() == 0
    clock.at += retention.ROUND_MS
    assert sum([await sweep.look() for _ in range(6)]) == 1
