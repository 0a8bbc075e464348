"""The one durable timer of a Thread Object.

Moving the deadline later, or dropping it, costs nothing: the old timer fires, looks, and sleeps again. Moving it
earlier replaces the timer. Waiting on nothing starts none.
"""

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow


def now_ms() -> int:
    """Epoch milliseconds of the current workflow task."""
    return int(workflow.now().timestamp() * 1_000)


class Timer:
    """Follows a deadline that others compute; `passed` counts how often one was reached."""

    def __init__(self, wanted: Callable[[], int | None]) -> None:
        self._wanted = wanted
        self.armed_for: int | None = None
        self.passed = 0

    async def follow(self) -> None:
        """Run for the life of the workflow run."""
        while True:
            await workflow.wait_condition(lambda: self._wanted() is not None)
            deadline = self._wanted()
            if deadline is None:
                continue
            delay_ms = deadline - now_ms()
            if delay_ms <= 0:
                self.passed += 1
                # Whoever computes the deadline acts on it in this same task; until it moved there is nothing to time.
                await workflow.wait_condition(lambda met=deadline: self._wanted() != met)  # type: ignore[misc]
                continue
            self.armed_for = deadline
            try:
                # Whole milliseconds up: a timer that fires early would find nothing due and be armed again.
                await workflow.wait_condition(self._moved_earlier, timeout=timedelta(milliseconds=delay_ms))
            except TimeoutError:
                pass
            finally:
                self.armed_for = None

    def _moved_earlier(self) -> bool:
        wanted = self._wanted()
        return wanted is not None and self.armed_for is not None and wanted < self.armed_for
