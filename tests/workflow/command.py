"""The `threads` command as a process of its own, for the tests of demo, dev and README."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.architecture.tree import ROOT

THREADS = (sys.executable, "-m", "thread_objects.cli")
BOUND_S = 90.0


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with this checkout importable from anywhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **changes}


@contextmanager
def running(arguments: Sequence[str], *, cwd: Path, **env: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that runs while the block does; killed at its end if it is still there."""
    with (cwd / "stdout").open("w") as out, (cwd / "stderr").open("w") as err:
        process = subprocess.Popen(
            [*THREADS, *arguments], cwd=cwd, env=environment(**env), stdout=out, stderr=err, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(10)


def threads(*arguments: str, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [*THREADS, *arguments],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def eventually(path: Path, text: str, process: "subprocess.Popen[str]") -> str:
    """Wait until a file holds a text; fails with all it holds when the bound is over or the process has ended."""
    deadline = time.monotonic() + BOUND_S
    while True:
        ended = process.poll() is not None
        held = path.read_text() if path.exists() else ""
        if text in held:
            return held
        errors = (path.parent / "stderr").read_text()
        assert not ended, f"ended with {process.returncode} before {text!r}: {held}{errors}"
        assert time.monotonic() < deadline, f"no {text!r} in: {held}{errors}"
        time.sleep(0.05)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Living processes that have this folder on their command line, in their environment or as their own."""
    needle, found = str(folder), []
    for process in psutil.process_iter():
        try:
            told = [*process.cmdline(), process.cwd(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(needle in text for text in told):
            found.append(process)
    return found


def all_gone(folder: Path, within_s: float = 30.0) -> bool:
    """Whether everything that works in this folder ends within the bound."""
    _gone, alive = psutil.wait_procs(processes_of(folder), timeout=within_s)
    return not alive and not processes_of(folder)
