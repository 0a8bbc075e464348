"""One row of the due queue: a lane, when it is due, and how often it was charged without progress.

Each change is a method that answers the changed row; `DueQueue` decides which of them may happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from thread_objects.contract import limits
from thread_objects.core.backoff import charge_floor
from thread_objects.core.refusal import AlarmRefusal

RESERVED_PREFIX = "thread-object:"
NATIVE = RESERVED_PREFIX + "native"
PUBLICATION = RESERVED_PREFIX + "publication"
PROJECTION = RESERVED_PREFIX + "projection"
MESSAGES = RESERVED_PREFIX + "messages"
RECOVERY_EVENTS = RESERVED_PREFIX + "recovery-events"
LIFECYCLE = RESERVED_PREFIX + "lifecycle"

_REPORTED_BY_NAME = frozenset((NATIVE, PUBLICATION, PROJECTION, MESSAGES, RECOVERY_EVENTS, LIFECYCLE))


class RowState(StrEnum):
    """What a row waits for: nothing, its deadline, or its parked retry."""

    IDLE = "idle"
    PENDING = "pending"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Row:
    """One lane. `due_at` is None when nothing is owed; `not_before` is the floor that charges leave behind."""

    id: str
    revision: int = 0
    due_at: int | None = None
    stalls: int = 0
    progress_key: str | None = None
    not_before: int = 0
    state: RowState = RowState.IDLE
    reported: bool = False

    def due(self, now: int) -> bool:
        """Its deadline has come."""
        return self.due_at is not None and self.due_at <= now

    def with_charge(self, now: int) -> Row:
        """One wave charged: it stays away until the floor, and is parked after the eighth charge in a row."""
        not_before = now + charge_floor(self.stalls)
        stalls = min(self.stalls + 1, limits.QUEUE_CHARGES_MAX)
        return Row(
            self.id, self.revision, not_before, stalls, self.progress_key, not_before, _waiting(stalls), self.reported
        )

    def with_progress(self, due_at: int, progress_key: str | None) -> Row:
        """New facts: due again without floor, and a revision that fences every wave in flight."""
        return Row(self.id, self.revision + 1, due_at, 0, progress_key, 0, RowState.PENDING)

    def with_discovery(self, due_at: int) -> Row:
        """Due no later than `due_at`, but never before the floor. A parked row stays parked."""
        earliest = due_at if self.due_at is None else min(self.due_at, due_at)
        state = self.state if self.stalls >= limits.QUEUE_CHARGES_MAX else RowState.PENDING
        due_at = max(self.not_before, earliest)
        return Row(
            self.id, self.revision, due_at, self.stalls, self.progress_key, self.not_before, state, self.reported
        )

    def with_deadline(self, due_at: int | None, revision: int) -> Row:
        """The answer of a wave: idle and without stalls, or due again no earlier than the floor."""
        if due_at is None:
            return Row(self.id, revision, None, 0, self.progress_key, 0, RowState.IDLE)
        due_at = max(due_at, self.not_before)
        return Row(
            self.id,
            revision,
            due_at,
            self.stalls,
            self.progress_key,
            self.not_before,
            _waiting(self.stalls),
            self.reported,
        )


def _waiting(stalls: int) -> RowState:
    return RowState.PARKED if stalls >= limits.QUEUE_CHARGES_MAX else RowState.PENDING


def lane_label(row_id: str) -> str:
    """How a parked row is named in a report: the framework rows by name, every other row as `host`."""
    return row_id.removeprefix(RESERVED_PREFIX) if row_id in _REPORTED_BY_NAME else "host"


def check_lane(row_id: str) -> None:
    """Refuse an id that no row may have."""
    if not 1 <= len(row_id) <= limits.LANE_ID_CHARS_MAX:
        raise AlarmRefusal("lane id", f"{len(row_id)} characters, allowed are 1..{limits.LANE_ID_CHARS_MAX}")
