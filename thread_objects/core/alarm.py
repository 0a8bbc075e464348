"""The alarm slot: one maintenance deadline, and the application alarms beside it.

No maintenance operation moves an application alarm. The physical timer follows the earliest of all.
"""

from __future__ import annotations

from thread_objects.core.application_alarms import ApplicationAlarms


class AlarmSlot:
    """`deadline` is the maintenance deadline in epoch milliseconds, None when the slot is empty."""

    __slots__ = ("applications", "deadline")

    def __init__(self, deadline: int | None = None, applications: ApplicationAlarms | None = None) -> None:
        self.deadline = deadline
        self.applications = ApplicationAlarms() if applications is None else applications

    def schedule_at(self, instant: int) -> None:
        """Replace the deadline."""
        self.deadline = instant

    def ensure_by(self, instant: int) -> None:
        """Keep the earlier of the deadline and `instant`."""
        if self.deadline is None or instant < self.deadline:
            self.deadline = instant

    def cancel(self) -> None:
        """Empty the slot."""
        self.deadline = None

    def earliest(self) -> int | None:
        """What the physical timer waits for between passes."""
        named = self.applications.next_at()
        if self.deadline is None or named is None:
            return named if self.deadline is None else self.deadline
        return min(named, self.deadline)
