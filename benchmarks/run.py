"""`make bench`: W1 to W5 for ours and, where the peer's program is at hand, for plain Temporal, interleaved.

Prints a JSON line per measurement, and last the line that the bars are about. Every measurement has a process of
its own as client, and that one starts its server and its worker; whatever happens here, all of them end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # so that `python benchmarks/run.py` works as `python -m benchmarks.run` does

from benchmarks import bars  # noqa: E402
from thread_objects.cli.processes import Tethered  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKLOADS = ("w1", "w1_paced", "w1_signal", "w2", "w3", "w4", "w5")
GROUPS = {"w1": ("w1", "w1_paced", "w1_signal")}
ONLY_OURS = ("w1_signal",)
PEER_FILES = ("peer_temporal.py", "workload.py")
BUILD = ROOT / "build" / "bench"
PEER_DEFAULT = ROOT.parent / "shared" / "bench" / "peers"
CLIENT_GRACE_S = 25.0
"""The client ends its worker and its server within this."""
POLL_S = 0.05


class MeasurementFailed(Exception):
    """The client process ended without a result."""


def peer_program(source: Path) -> Path | None:
    """Copy the peer's program into the build folder; None, said on stderr, where it is not at hand."""
    missing = [name for name in PEER_FILES if not (source / name).is_file()]
    if missing:
        say(f"no plain Temporal peer ({', '.join(missing)} not in {source}): ours runs alone, ratios are left out")
        return None
    program = BUILD / "peer"
    program.mkdir(parents=True, exist_ok=True)
    for name in PEER_FILES:
        shutil.copyfile(source / name, program / name)
    return program


def say(text: str) -> None:
    """To the person, not to the pipe."""
    print(text, file=sys.stderr, flush=True)


def measure(side: str, workload: str, rep: int, program: Path | None, given: argparse.Namespace) -> dict[str, Any]:
    """One measurement in a process of its own, bounded by --limit. Raises `MeasurementFailed`."""
    folder = BUILD / "run" / f"{workload}-{side}-{rep}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    out, log = folder / "result.json", folder / "client.log"
    client = Tethered(
        [
            *(sys.executable, "-m", "benchmarks.client", "--side", side, "--workload", workload),
            *("--folder", str(folder), "--out", str(out)),
            *(("--program", str(program)) if program else ()),
            *(("--short",) if given.short else ()),
            *(("--quick",) if given.quick else ()),
        ],
        log=log,
        env={"PYTHONPATH": str(ROOT)},
        grace_s=CLIENT_GRACE_S,
    )
    deadline = time.monotonic() + given.limit
    try:
        while client.exit_code is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        late = client.exit_code is None
    finally:
        client.stop()
    if not out.exists():
        why = f"took longer than {given.limit:g} s" if late else f"ended with {client.exit_code}"
        raise MeasurementFailed(f"{why}; its files are kept in {folder}: {client.log_tail()[-700:]}")
    result: dict[str, Any] = json.loads(out.read_text())
    if not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return {"side": side, "w": workload, "rep": rep, **result}


def measure_all(
    workloads: Sequence[str], program: Path | None, given: argparse.Namespace
) -> tuple[list[dict[str, Any]], int]:
    """All measurements, interleaved, each printed as it ends; with the number of those that failed."""
    measured, failed = [], 0
    for workload in workloads:
        for rep in range(given.reps):
            for side in (bars.OURS, bars.PEER):
                if side not in given.sides or (side == bars.PEER and (program is None or workload in ONLY_OURS)):
                    continue
                try:
                    record = measure(side, workload, rep, program, given)
                    measured.append(record)
                except MeasurementFailed as failure:
                    failed += 1
                    record = {"side": side, "w": workload, "rep": rep, "error": str(failure)}
                print(json.dumps(record), flush=True)
    return measured, failed


def chosen(only: str | None) -> tuple[str, ...]:
    """Workloads by name, in their order; `w1` stands for its three forms. Raises `ValueError`."""
    if only is None:
        return WORKLOADS
    names = [name.strip().lower() for name in only.split(",") if name.strip()]
    picked = {workload for name in names for workload in GROUPS.get(name, (name,))}
    if strange := picked - set(WORKLOADS):
        raise ValueError(f"no such workload: {', '.join(sorted(strange))} (there are {', '.join(WORKLOADS)})")
    return tuple(workload for workload in WORKLOADS if workload in picked)


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    parser.add_argument("--only", metavar="W1,W2", help="some of " + ", ".join(WORKLOADS) + "; w1 is its three forms")
    parser.add_argument("--reps", type=int, default=3, help="repetitions, interleaved (default 3)")
    parser.add_argument("--sides", default=f"{bars.OURS},{bars.PEER}", help="ours, temporal or both (default)")
    parser.add_argument("--peer", type=Path, default=PEER_DEFAULT, help="folder of the plain Temporal peer")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--short", action="store_true", help="small counts: a look, not a measurement")
    parser.add_argument("--quick", action="store_true", help="the dev server as `threads dev` runs it, for both sides")
    parser.add_argument("--keep", action="store_true", help="keep databases and logs in build/bench/run")
    parser.add_argument(
        "--limit", type=float, default=400.0, metavar="S", help="bound of one measurement (default 400)"
    )
    given = parser.parse_args(argv)
    try:
        given.workloads = chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 when a bar is missed and --check was given; 2 when a measurement failed; 130 or 143 when ended."""
    given = options(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        program = peer_program(given.peer) if bars.PEER in given.sides else None
        measured, failed = measure_all(given.workloads, program, given)
    except KeyboardInterrupt:
        say("ended; server, worker and client are stopped")
        return 130
    relevant = bars.wanted(given.workloads, peer=program is not None)
    if bars.OURS not in given.sides:
        relevant = ()
    found = bars.summary(measured, relevant)
    missed = 0
    for bar, value, cleared in bars.verdicts(found, relevant):
        missed += not cleared
        say(f"{'pass' if cleared else 'FAIL'}  {bar}: {'not measured' if value is None else format(value, 'g')}")
    print(json.dumps(found), flush=True)
    if failed:
        return 2
    return 1 if missed and given.check else 0


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
