"""The alarm slot: one maintenance deadline and the named application alarms beside it.

No maintenance operation moves a named alarm. The physical timer follows the earliest of all.
"""

from __future__ import annotations

from thread_objects.contract import limits
from thread_objects.core.refusal import AlarmRefusal


class AlarmSlot:
    """`deadline` is the maintenance deadline in epoch milliseconds, None when the slot is empty."""

    __slots__ = ("deadline", "named")

    def __init__(self, deadline: int | None = None, named: dict[str, int] | None = None) -> None:
        self.deadline = deadline
        self.named = dict(named or {})

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

    def set_named(self, name: str, run_at: int) -> None:
        """Arm or move an application alarm."""
        if not 1 <= len(name) <= limits.NAME_CHARS_MAX:
            raise AlarmRefusal("set alarm", f"a name of {len(name)} characters")
        if name not in self.named and len(self.named) >= limits.NAMED_ALARMS_MAX:
            raise AlarmRefusal("set alarm", f"more than {limits.NAMED_ALARMS_MAX} application alarms")
        self.named[name] = run_at

    def cancel_named(self, name: str) -> bool:
        """Drop an application alarm. False when there was none."""
        return self.named.pop(name, None) is not None

    def due_named(self, now: int) -> tuple[str, ...]:
        """Application alarms whose time has come, earliest first. They stay until cancelled or moved."""
        due = [(run_at, name) for name, run_at in self.named.items() if run_at <= now]
        return tuple(name for _, name in sorted(due))

    def earliest(self) -> int | None:
        """What the physical timer waits for."""
        if not self.named:
            return self.deadline
        named = min(self.named.values())
        return named if self.deadline is None else min(named, self.deadline)
