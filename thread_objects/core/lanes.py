"""The installed lanes of an object, and the check that every row with a deadline has a handler."""

from __future__ import annotations

from thread_objects.core.config import LanePhase, LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import MESSAGES, NATIVE, PROJECTION, PUBLICATION, DueQueue, check_lane
from thread_objects.core.refusal import AlarmRefusal

_NOT_LANES = frozenset((NATIVE, PUBLICATION, PROJECTION, MESSAGES))


class Lanes:
    """Lanes by id, split by phase. What is wrong with the list is told by every pass, not where it is built."""

    __slots__ = ("_handled", "_refusal", "after_native", "concurrent")

    def __init__(self, config: MaintenanceConfig) -> None:
        specs = sorted(config.handlers(), key=_by_id)
        self.concurrent = tuple(spec for spec in specs if spec.phase is LanePhase.CONCURRENT)
        self.after_native = tuple(spec for spec in specs if spec.phase is LanePhase.AFTER_NATIVE)
        self._handled = _NOT_LANES.union(spec.id for spec in specs)
        self._refusal = _refusal(specs)

    def known(self, lane: str) -> bool:
        """Whether a row of this id has somebody to run its waves: a handler, or the pass itself."""
        return lane in self._handled

    def check(self, queue: DueQueue) -> None:
        """Raises for an invalid or doubled id, and for a row with a deadline, due or not, that nobody handles."""
        if self._refusal is not None:
            raise self._refusal
        for row in queue:
            if row.due_at is not None and row.id not in self._handled:
                raise AlarmRefusal("host lanes", f"no handler for lane {row.id}")


def _by_id(spec: LaneSpec) -> str:
    return spec.id


def _refusal(specs: list[LaneSpec]) -> AlarmRefusal | None:
    seen = set(_NOT_LANES)
    for spec in specs:
        try:
            check_lane(spec.id)
        except AlarmRefusal as refusal:
            return refusal
        if spec.id in seen:
            return AlarmRefusal("host lanes", f"duplicate lane {spec.id}")
        seen.add(spec.id)
    return None
