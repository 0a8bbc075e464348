"""The client process of one measurement: starts server and worker, measures, writes one JSON line, ends them.

`python -m benchmarks.client --side ours --workload w1 --folder DIR --out FILE [--program DIR] [--short] [--quick]`
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import bars
from benchmarks.measures import SHORT, Counts, measure
from benchmarks.sides import Ours, PlainTemporal, Side
from benchmarks.stage import Stage
from thread_objects.cli.dev_server import QUICK


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """One measurement on fresh files."""
    async with Stage(given.folder, dynamic_config=QUICK if given.quick else {}) as stage:
        side: Side = (
            Ours(stage, given.folder) if given.side == bars.OURS else PlainTemporal(stage, given.program.resolve())
        )
        await side.open()
        try:
            return await measure(given.workload, side, SHORT if given.short else Counts(), given.folder)
        finally:
            await side.close()


async def run(given: argparse.Namespace) -> dict[str, Any]:
    """As `measured`; SIGTERM ends it in good order."""
    work = asyncio.ensure_future(measured(given))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    return await work


def defaults() -> None:
    """Neither the caller's environment nor a threads.toml of theirs counts, on either side."""
    for name in [name for name in os.environ if name.startswith(("THREADS_", "TEMPORAL_"))]:
        del os.environ[name]
    # Without compiled files each new workflow compiles its modules again, which no deployment does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def main() -> int:
    """0 with a line in --out; 1 when the measurement failed, 143 when it was ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=(bars.OURS, bars.PEER), required=True)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    given.folder = given.folder.resolve()
    given.out = given.out.resolve()
    defaults()
    os.chdir(given.folder)
    try:
        result = asyncio.run(run(given))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    result["load1"] = round(os.getloadavg()[0], 2)
    result["at"] = time.strftime("%H:%M:%S")
    given.out.write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
