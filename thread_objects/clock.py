"""Time as a seam: everything outside workflow code asks a `Clock`."""

import time
from datetime import datetime
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


def instant_ms(instant: int | datetime) -> int:
    """Epoch milliseconds of an instant as people give one. Raises ValueError for a naive datetime."""
    if not isinstance(instant, datetime):
        return instant
    if instant.tzinfo is None:
        raise ValueError("a naive datetime says no instant")
    return int(instant.timestamp() * 1_000)
