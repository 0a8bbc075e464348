"""What a measurement reads of the machine: CPU time and peak memory of processes, percentiles."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil


def percentile(values: Sequence[float], share: float) -> float:
    """The value at this share of the ordered values; no interpolation."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))]


def cpu_s(pid: int) -> float:
    """User and system seconds of a process so far, 0 when it is gone."""
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def peak_mb(pid: int) -> float:
    """The most memory a process ever held (where the system does not tell: what it holds now)."""
    with contextlib.suppress(OSError, StopIteration):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) / 1_024
    with contextlib.suppress(psutil.Error):
        return float(psutil.Process(pid).memory_info().rss) / 1_048_576
    return 0.0


class Meter:
    """CPU time of named processes since this was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = {**pids, "client": os.getpid()}
        self._began = {name: cpu_s(pid) for name, pid in self._pids.items()}

    def cpu_ms_per(self, count: int) -> dict[str, float]:
        """Milliseconds per piece of work, by process."""
        return {name: round((cpu_s(pid) - self._began[name]) * 1_000 / count, 2) for name, pid in self._pids.items()}

    def rss_mb(self) -> dict[str, float]:
        """Peak memory by process."""
        return {name: round(peak_mb(pid), 1) for name, pid in self._pids.items()}
