"""Start argument and carried state of the workflow. Versioned; unknown fields ignored, new fields defaulted."""

from typing import Annotated, Any

from pydantic import Field

from thread_objects.contract import limits
from thread_objects.contract.messages import Mutation, Schedule
from thread_objects.contract.reports import LaneFailure, MaintenancePassReport, RefusedInput
from thread_objects.contract.views import Fault, Survey
from thread_objects.contract.wire import Wire


class ObjectConfig(Wire):
    """What decides workflow code; fixed by the client that starts the object, carried from then on."""

    alarm_backoff_base_ms: Annotated[int, Field(ge=1, le=60_000)] = limits.ALARM_BACKOFF_BASE_MS
    alarm_backoff_cap_ms: Annotated[int, Field(ge=1, le=3_600_000)] = limits.ALARM_BACKOFF_CAP_MS
    heartbeat_timeout_ms: Annotated[int, Field(ge=1_000, le=60_000)] = 5_000
    apply_timeout_ms: Annotated[int, Field(ge=100, le=10_000)] = 3_000
    """Schedule-to-close of the batch's local activity: after it, waiting updates are told to try again."""
    continue_events: Annotated[int, Field(ge=20, le=20_000)] = limits.CONTINUE_EVENTS_MAX
    continue_updates: Annotated[int, Field(ge=1, le=1_500)] = limits.CONTINUE_UPDATES_MAX
    continue_bytes: Annotated[int, Field(ge=65_536)] = limits.CONTINUE_BYTES_MAX
    shared_host: bool = False
    native_slots: Annotated[int, Field(ge=0, le=limits.NATIVE_SLOTS_MAX)] = 0
    """Attempts of a shared host at a time; 0 for the contract's two. An object with one Thread has one."""


class CarriedEntry(Wire):
    """An accepted mutation that storage has not answered yet, or a schedule whose lane is not known yet."""

    n: int
    mutation: Mutation | Schedule
    bytes: int


class EndedAttempts(Wire):
    """Attempts of one Thread whose activities ended without an answer."""

    thread_id: str
    attempt_ids: tuple[str, ...]


class Carried(Wire):
    """Everything a new run needs. Active-mutation counts are never carried."""

    schema_version: int = 1
    maintenance: dict[str, Any] = {}
    inbox: tuple[CarriedEntry, ...] = ()
    next_n: int = 1
    next_mark: int = 1
    applied_through: int = 0
    unmark_through: int = 0
    ended_attempts: tuple[EndedAttempts, ...] = ()
    refusals: tuple[RefusedInput, ...] = ()
    refused_total: int = 0
    passes: tuple[MaintenancePassReport, ...] = ()
    faults: tuple[Fault, ...] = ()
    parked_reports: tuple[str, ...] = ()
    survey: Survey = Survey()
    runs: int = 0
    applied_total: int = 0
    settled_total: int = 0
    last_failure: str | None = None
    apply_stalls: int = 0
    lane_failures: tuple[LaneFailure, ...] = ()


class ObjectStart(Wire):
    """The workflow's only argument."""

    config: ObjectConfig = ObjectConfig()
    carried: Carried = Carried()
