"""Every shipped workflow version left histories here; today's code must replay them to the same state."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replay.record import SCENARIOS
from tests.replay.states import FOLDER, load, replayed_state

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = sorted(FOLDER.glob("*.json"))


def test_every_scenario_left_a_history() -> None:
    """A history that is missing would pass unnoticed."""
    recorded = {path.stem.split("-")[1] for path in HISTORIES}
    assert recorded == set(SCENARIOS)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays_to_the_same_state(path: Path) -> None:
    """F31: commands and the state they leave; the Replayer alone would not notice changed payloads."""
    history, expected = load(path)
    assert await replayed_state(history) == expected


def test_replay_does_not_depend_on_the_hash_seed() -> None:
    """Sets are never iterated: another PYTHONHASHSEED replays the same."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{Path(__file__)}", "-k", "recorded"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
