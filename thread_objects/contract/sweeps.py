"""What one bounded sweep over Threads and their work owners found and did."""

from enum import StrEnum

from thread_objects.contract.recovery_events import Failure
from thread_objects.contract.states import Disposition
from thread_objects.contract.views import Decided
from thread_objects.contract.wire import Wire


class WorkOwner(StrEnum):
    """Who owes something. Owners outlive their Submission.

    `Admission`: an input that is not canonical yet. `Operation`: a Run, or a call of one whose outcome nobody knows.
    `Child`: a child's slice of its parent's budget. The others have no work before workers report and Threads send.
    """

    ADMISSION = "Admission"
    OPERATION = "Operation"
    CHILD = "Child"
    WORKER_INPUT = "WorkerInput"
    REPORT = "Report"
    WORKER_EFFECTS = "WorkerEffects"
    DELIVERY = "Delivery"
    HANDOFF = "Handoff"


class WorkReport(Wire):
    """One owner, as the sweep left it. `retry_at_millis`: when to look again; None while it waits for somebody."""

    thread_id: str
    work_id: str
    owner: WorkOwner
    disposition: Disposition
    submission: str | None = None
    retry_at_millis: int | None = None


class BlockedThread(Wire):
    """A Thread whose recovery failed: one entry, however many owners it has. It may not be claimed."""

    thread_id: str
    failure: Failure
    retry_at: int
    attempts: int


class SweepReport(Wire):
    """One call. With a `cursor` the sweep is not finished: call again with the same selection."""

    reports: tuple[Decided, ...] = ()
    blocked: tuple[BlockedThread, ...] = ()
    work_reports: tuple[WorkReport, ...] = ()
    cursor: str | None = None


class WorkRebuilt(Wire):
    """A Thread's inventory is whole again, after so many bounded passes."""

    thread_id: str
    passes: int


class WorkThreads(Wire):
    """Threads that owe something, by id. `after_thread_id`: there may be more behind it."""

    thread_ids: tuple[str, ...] = ()
    after_thread_id: str | None = None
