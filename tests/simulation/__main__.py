"""`python -m tests.simulation --steps 100000 --seed 1`: lives one after the other, and how fast."""

from __future__ import annotations

import argparse
import sys
import time
from random import Random, SystemRandom

from tests.simulation.life import Failure, Life
from tests.simulation.scope import search

LIFE_STEPS = 1_500


def run(steps: int, seed: int) -> int:
    """Lives until at least so many steps were made; answers how many. Raises `Failure`."""
    random = Random(seed)
    made = 0
    while made < steps:
        life = Life(random.getrandbits(32))
        life.run(min(LIFE_STEPS, steps - made))
        made += life.steps
    return made


def explore(depth: int) -> int:
    """The small scope, whole to a depth."""
    started = time.process_time()
    try:
        found = search(depth)
    except AssertionError as broken:
        print(broken, file=sys.stderr)
        return 1
    end = "no state was left" if found.whole else "states were left at the depth"
    print(
        f"scope: depth {depth}, {found.states} states by {found.transitions} transitions, a calm from {found.calms}"
        f" of them; {end}; {time.process_time() - started:.1f} s"
    )
    return 0


def main() -> int:
    """Prints the seed first: whatever happens can be repeated."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--depth", type=int, default=None, help="search a small scope to this depth instead")
    options = parser.parse_args()
    if options.depth is not None:
        return explore(options.depth)
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"simulation: seed {seed}", flush=True)
    started = time.process_time()
    try:
        made = run(options.steps, seed)
    except Failure as failure:
        print(f"seed {seed}\n{failure}", file=sys.stderr)
        return 1
    took = time.process_time() - started
    print(f"simulation: {made} steps, seed {seed}, {made / took * 60:,.0f} steps a minute")
    return 0


if __name__ == "__main__":
    sys.exit(main())
