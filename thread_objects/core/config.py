"""What decides a pass: backoff bounds, slots, installed waves and lanes. Bounds are checked when it is built."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from thread_objects.contract import limits
from thread_objects.contract.lanes import Installed
from thread_objects.contract.states import LanePhase as LanePhase  # noqa: PLC0414 - named by the core
from thread_objects.core.backoff import minimum_delay
from thread_objects.core.due_queue import LIFECYCLE, RECOVERY_EVENTS, RESERVED_PREFIX


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """One lane with a handler. `empty`: the built-in handler, charged and completed without an activity.

    The allowance is checked when a wave is due, ids and duplicates by every pass; the reserved prefix is refused here.
    """

    id: str
    allowance_ms: float = limits.LANE_ALLOWANCE_MS_MAX
    phase: LanePhase = LanePhase.CONCURRENT
    framework: bool = False
    empty: bool = False

    def __post_init__(self) -> None:
        if self.id.startswith(RESERVED_PREFIX) and not self.framework:
            raise ValueError(f"lane {self.id!r}: ids of host lanes must not start with {RESERVED_PREFIX!r}")

    def allowance(self) -> int | None:
        """The allowance, None if it is not an integer of 1..300 000 ms."""
        allowance = int(self.allowance_ms)
        valid = allowance == self.allowance_ms and 1 <= allowance <= limits.LANE_ALLOWANCE_MS_MAX
        return allowance if valid else None


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """Raises ValueError for a setting outside its bound.

    `native_slots`: Attempts at a time, by default 2 on a shared host and 1 otherwise, at most 64.
    `publication_required` is False only for the built-in empty publication; `projection` and `message_timeout_ms` say
    whether those waves have a handler.
    """

    alarm_backoff_base_ms: int = limits.ALARM_BACKOFF_BASE_MS
    alarm_backoff_cap_ms: int = limits.ALARM_BACKOFF_CAP_MS
    shared_host: bool = False
    native_slots: int = 0
    publication_required: bool = False
    projection: bool = False
    message_timeout_ms: int | None = None
    lanes: tuple[LaneSpec, ...] = ()
    yield_after_ms: int = limits.PASS_YIELD_AFTER_MS
    deadline_ms: int = limits.PASS_DEADLINE_MS
    floor_ms: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        if self.native_slots == 0:
            slots = limits.NATIVE_SLOTS_SHARED if self.shared_host else limits.NATIVE_SLOTS_SINGLE
            object.__setattr__(self, "native_slots", slots)
        numbers = {
            "alarm_backoff_base_ms": self.alarm_backoff_base_ms,
            "alarm_backoff_cap_ms": self.alarm_backoff_cap_ms,
            "native_slots": self.native_slots,
            "yield_after_ms": self.yield_after_ms,
            "deadline_ms": self.deadline_ms,
        }
        for setting, value in numbers.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{setting} must be a positive integer, not {value!r}")
        if self.native_slots > limits.NATIVE_SLOTS_MAX:
            raise ValueError(f"native_slots must not be above {limits.NATIVE_SLOTS_MAX}")
        if self.alarm_backoff_cap_ms < self.alarm_backoff_base_ms:
            raise ValueError("alarm_backoff_cap_ms must not be below alarm_backoff_base_ms")
        if self.yield_after_ms > self.deadline_ms:
            raise ValueError("yield_after_ms must not be past deadline_ms")
        object.__setattr__(self, "floor_ms", minimum_delay(self.alarm_backoff_base_ms))

    def with_installed(self, installed: Installed) -> MaintenanceConfig:
        """This configuration with what the workers have installed, their lanes behind its own."""
        hosts = tuple(LaneSpec(lane.id, lane.allowance_ms, lane.phase) for lane in installed.lanes)
        return replace(
            self,
            publication_required=installed.publication,
            projection=installed.projection,
            message_timeout_ms=installed.message_timeout_ms,
            lanes=self.lanes + hosts,
        )

    def handlers(self) -> tuple[LaneSpec, ...]:
        """All lanes, the framework's own included: without a handler of its own those are built in and empty."""
        given = {lane.id for lane in self.lanes}
        built_in = tuple(
            LaneSpec(row_id, limits.EVENTS_ALLOWANCE_MS, framework=True, empty=True)
            for row_id in (RECOVERY_EVENTS, LIFECYCLE)
            if row_id not in given
        )
        return self.lanes + built_in
