"""What queries answer, built from the object's state. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from thread_objects.contract import limits
from thread_objects.contract.alarms import AlarmStanding, NamedAlarm
from thread_objects.contract.reports import (
    AlarmView,
    GenerationView,
    LaneView,
    ObjectReport,
    StatusView,
)
from thread_objects.core.canonical import parse

if TYPE_CHECKING:
    from thread_objects.core.application_alarms import ApplicationAlarm
    from thread_objects.core.maintenance import Maintenance

    from .thread_object import ThreadObject
    from .timer import Timer

T = TypeVar("T")


def alarm_view(maintenance: Maintenance, timer: Timer, thread_id: str | None = None) -> AlarmView:
    """The slot, the application alarms, and what the physical timer waits for."""
    standing = maintenance.applications.listed(thread_id)
    return AlarmView(
        maintenance=maintenance.alarm.deadline,
        timer=timer.armed_for,
        alarms=tuple(AlarmStanding(**_standing(maintenance, alarm)) for alarm in standing[: limits.REPORT_ROWS_MAX]),
        alarms_total=len(standing),
    )


def named_alarms(maintenance: Maintenance, thread_id: str | None) -> list[NamedAlarm]:
    """The application alarms, of one Thread or of all, the next one first."""
    return [
        NamedAlarm(**_standing(maintenance, alarm), payload=parse(alarm.payload))
        for alarm in maintenance.applications.listed(thread_id)
    ]


def _standing(maintenance: Maintenance, alarm: ApplicationAlarm) -> dict[str, Any]:
    return {
        **alarm.name._asdict(),
        "run_at": alarm.run_at,
        "next_at": alarm.next_at,
        "attempts": alarm.attempts,
        "failure": alarm.failure,
        "delivering": maintenance.applications.is_delivering(alarm.name),
    }


def generation_view(maintenance: Maintenance) -> GenerationView:
    """Dirty and processed."""
    return maintenance.generation_view()


def lane_views(maintenance: Maintenance) -> tuple[LaneView, ...]:
    """Rows of the due queue by id."""
    return maintenance.lane_views()


def object_report(owner: ThreadObject, thread_id: str | None = None) -> ObjectReport:
    """Everything at a glance. With a Thread the lists by Thread hold that one; all else is the object's."""
    maintenance = owner.maintenance

    def of(threads: Iterable[T], named: Callable[[T], str]) -> tuple[T, ...]:
        return tuple(item for item in threads if thread_id in (None, named(item)))

    passes = owner.passes
    return ObjectReport(
        object_id=owner.object_id,
        generation=generation_view(maintenance),
        alarm=alarm_view(maintenance, owner.timer, thread_id),
        lanes=lane_views(maintenance),
        threads=of(owner.pump.survey.threads, lambda view: view.thread_id)[: limits.REPORT_ROWS_MAX],
        attempts=of((passes.running[key] for key in sorted(passes.running)), lambda running: running.thread_id),
        inbox=len(owner.inbox.entries),
        inbox_bytes=owner.inbox.bytes,
        saturated=owner.inbox.saturated,
        refusals=tuple(owner.refusals),
        refused_total=owner.refused_total,
        passes=tuple(owner.reports),
        faults=of((passes.faults[key] for key in sorted(passes.faults)), lambda fault: fault.thread_id),
        binding_waits=of(maintenance.binding_waits(), lambda wait: wait.thread_id),
        parked_reports=tuple(owner.parked_reports),
        registry_key=maintenance.state.registry_key or "",
        run_count=owner.runs,
        applied_total=owner.pump.applied_total,
        settled_total=owner.settled_total,
        last_failure=owner.last_failure,
        installed=maintenance.state.installed,
        lane_failures=tuple(owner.waves.failures.values()),
    )


def status_view(owner: ThreadObject, submission_id: str) -> StatusView:
    """What the workflow itself knows: a refusal, a place in the inbox, or the head of a Thread."""
    for refusal in owner.refusals:
        if refusal.submission_id == submission_id:
            return StatusView(submission_id=submission_id, known=True, detail=refusal.model_dump(mode="json"))
    for thread in owner.pump.survey.threads:
        if thread.head is not None and thread.head.submission_id == submission_id:
            running = owner.passes.running.get(thread.thread_id)
            return StatusView(
                submission_id=submission_id,
                known=True,
                state=thread.head.state,
                thread_id=thread.thread_id,
                attempt_id=running.attempt_id if running else None,
            )
    return StatusView(submission_id=submission_id, known=owner.inbox.holds(submission_id))
