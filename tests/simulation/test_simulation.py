"""The core under a seeded scheduler: a few fixed seeds, one of its own for every run, and mutants that it must find."""

from random import SystemRandom

import pytest

from tests.simulation.__main__ import run
from tests.simulation.hunt import LIFE_STEPS, hunt
from tests.simulation.life import Failure, Life
from tests.simulation.mutants import MUTANTS


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_law_holds_after_every_step(seed):
    """Owed work is armed, nothing is acknowledged over a producer, and in the end everything is settled once."""
    assert run(5_000, seed) >= 5_000


def test_every_law_holds_under_a_seed_of_this_run():
    """A new seed for every run of the suite; it is printed with the failure."""
    seed = SystemRandom().getrandbits(32)
    print(f"simulation: seed {seed}; repeat with `make simulation STEPS=10000 SEED={seed}`")
    assert run(10_000, seed) >= 10_000


def test_a_failure_tells_seed_step_and_what_was_done_last():
    """Enough to repeat it."""
    life = Life(5)
    with MUTANTS["certify_autonomous_work"].patched(), pytest.raises(Failure) as failure:
        life.run(LIFE_STEPS)
    first, second, *actions = str(failure.value).splitlines()
    assert first.startswith("Broken: ") and second.startswith("life 5, step ")
    assert 1 <= len(actions) <= 30


def test_a_life_is_repeated_by_its_seed():
    """The same seed makes the same history."""
    lives = [Life(7), Life(7)]
    for life in lives:
        life.run(LIFE_STEPS)
    first, second = lives
    assert (first.steps, list(first.log)) == (second.steps, list(second.log))
    assert first.server.shell.state.to_json() == second.server.shell.state.to_json()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_core_is_noticed(name):
    """Some law breaks within a bounded number of lives; the same life passes with the core as it is."""
    kill = hunt(MUTANTS[name])
    assert kill is not None, f"the mutant {name} survives"
    Life(kill.seed).run(LIFE_STEPS)
    print(f"{name}: life {kill.seed}, {kill.steps} steps: {kill.told}")
    assert kill.steps <= 60_000


def test_there_are_at_least_ten_mutants():
    """The tier proves that it finds faults."""
    assert len(MUTANTS) >= 10
