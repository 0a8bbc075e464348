"""What a check found wrong: counted without a bound, told within one."""

from thread_objects.contract.reports import Check
from thread_objects.contract.states import CheckOutcome

TOLD_MAX = 16
TOLD_CHARS_MAX = 512


class Complaints:
    """The findings of one check. The first ones are told; all are counted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found = 0
        self._told: list[str] = []

    def add(self, what: str) -> None:
        """One thing that is wrong."""
        self.found += 1
        if len(self._told) < TOLD_MAX:
            self._told.append(what if len(what) <= TOLD_CHARS_MAX else f"{what[:TOLD_CHARS_MAX]}…")

    def check(self) -> Check:
        """Passed where nothing was found."""
        if self.found == 0:
            return Check(name=self.name, outcome=CheckOutcome.PASSED)
        return Check(
            name=self.name,
            outcome=CheckOutcome.FAILED,
            reason=self._told[0],
            details=tuple(self._told),
            findings=self.found,
        )


def skipped(name: str, reason: str) -> Check:
    """A check that could not be made."""
    return Check(name=name, outcome=CheckOutcome.SKIPPED, reason=reason)
