"""One Thread's share of time in recovery, and what it is being spent on.

The bound is looked at between steps: whatever a step began is whole or absent, and what hangs inside a step is fenced
by its epoch, not trusted.
"""

from typing import Literal

from thread_objects.clock import Clock
from thread_objects.contract import limits


class RecoveryTimeout(Exception):
    """The Thread's recovery took longer than its bound. Nothing was settled by that."""


class Watch:
    """Names each step before it is taken and raises `RecoveryTimeout` when the time is over."""

    def __init__(self, clock: Clock, timeout_ms: int = limits.RECOVERY_TIMEOUT_MS) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self.phase: Literal["history", "recovery"] = "history"
        self.operation = "start"
        self.restart()

    def restart(self) -> None:
        """Begin the time of another page."""
        self._ends_at = self._clock.now() + self._timeout_ms

    def now(self) -> int:
        """The clock, without a look at the bound."""
        return self._clock.now()

    def reading(self, operation: str) -> None:
        """About to read the ledger or the log. `operation` is a static name."""
        self._step("history", operation)

    def read(self) -> None:
        """A reading is over: one that took too long is a timeout, whatever it found."""
        self._step("history", self.operation)

    def repairing(self, operation: str) -> int:
        """About to execute part of a decision. Answers the instant to do it at."""
        return self._step("recovery", operation)

    def left_ms(self) -> int:
        """What is left of the bound, at least 0."""
        return max(0, self._ends_at - self._clock.now())

    def _step(self, phase: Literal["history", "recovery"], operation: str) -> int:
        self.phase, self.operation = phase, operation
        now = self._clock.now()
        if now >= self._ends_at:
            raise RecoveryTimeout
        return now
