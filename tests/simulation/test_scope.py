"""The small scope, searched whole to a depth that fits the suite; `make simulation DEPTH=14` goes further."""

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.scope import search

DEPTH = 9


def test_every_law_holds_in_every_state_of_the_scope():
    """Two Threads, two inputs, one lane, one crash, one lost answer: all orders of up to nine actions."""
    found = search(DEPTH)
    print(f"scope: {found.states} states, {found.transitions} transitions, a calm from {found.calms}")
    assert found.states > 800 and found.transitions > found.states and found.calms > 40


def test_the_search_visits_the_same_states_every_time():
    """Nothing in it is left to chance."""
    assert search(6) == search(6)


@pytest.mark.parametrize(
    "name", ["prearm_without_a_generation", "release_before_the_answer", "finish_without_the_newer_generation"]
)
def test_the_search_finds_a_mutant(name):
    """With the path that leads to it."""
    with MUTANTS[name].patched(), pytest.raises(AssertionError, match="\nafter "):
        search(DEPTH)
