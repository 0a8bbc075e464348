"""Time as a seam: everything outside workflow code asks a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Epoch milliseconds, UTC."""

    def now(self) -> int:
        """The current instant."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Epoch milliseconds of the machine."""
        return time.time_ns() // 1_000_000
