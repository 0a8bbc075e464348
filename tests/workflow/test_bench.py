"""The benchmark still measures: its adapter reads reports and histories as they are today."""

import asyncio
import json
import sys

from benchmarks.sides import ROOT


async def test_a_short_look_at_w2_ends_within_its_bar_of_events() -> None:
    """Twenty turns leave no more than twenty events, read once the object is quiet and certified."""
    looked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.run", "--only", "w2", "--reps", "1", "--sides", "ours", "--short"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(looked.communicate(), 120)
    assert looked.returncode == 0, out.decode()[-2_000:]
    measured = json.loads(out.decode().strip().splitlines()[-1])
    assert measured["w2_events"] <= 20
