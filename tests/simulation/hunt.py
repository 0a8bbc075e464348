"""Hunting a mutant: lives with fixed seeds until one of them fails."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.life import Failure, Life
from tests.simulation.mutants import Mutant

LIFE_STEPS = 400
LIVES_MAX = 40


@dataclass(frozen=True, slots=True)
class Kill:
    """Which life noticed, after how many steps of all lives, and what it said."""

    seed: int
    steps: int
    told: str


def hunt(mutant: Mutant) -> Kill | None:
    """None: the mutant survived all lives."""
    steps = 0
    for seed in range(mutant.seed, mutant.seed + LIVES_MAX):
        life = Life(seed)
        try:
            with mutant.patched():
                life.run(LIFE_STEPS)
        except Failure as failure:
            return Kill(seed, steps + life.steps, str(failure).splitlines()[0])
        steps += life.steps
    return None
