"""What queries answer: the operator's view of one Thread Object."""

from pydantic import JsonValue

from thread_objects.contract.alarms import AlarmStanding
from thread_objects.contract.lanes import Installed
from thread_objects.contract.states import AlarmOutcome, CheckOutcome, PassPhase, SubmissionState
from thread_objects.contract.views import BindingWait, Fault, ThreadView
from thread_objects.contract.wire import Wire


class MaintenancePassReport(Wire):
    """One pass: what it saw and what it left in the slot."""

    phase: PassPhase
    recovered: int = 0
    settled: int = 0
    nonterminal: int = 0
    alarm: AlarmOutcome
    started_at: int = 0
    ended_at: int = 0
    failure: str | None = None


class RefusedInput(Wire):
    """A signal that was refused: name, size, digest and code, never the payload."""

    name: str
    bytes: int
    digest: str
    code: str
    at: int
    submission_id: str | None = None


class LaneView(Wire):
    """One row of the due queue."""

    id: str
    revision: int
    due_at: int | None
    stalls: int
    progress_key: str | None
    not_before: int
    state: str
    reported: bool


class LaneFailure(Wire):
    """The last failure of a lane whose waves have not succeeded since. Class names and static words only."""

    lane: str
    failure: str
    at: int


class AlarmView(Wire):
    """The alarm slot: the maintenance deadline, the application alarms, and what the timer waits for.

    `alarms`: the next ones first, at most `limits.REPORT_ROWS_MAX` of them; `alarms_total` counts all.
    """

    maintenance: int | None
    timer: int | None = None
    alarms: tuple[AlarmStanding, ...] = ()
    alarms_total: int = 0


class RetryView(Wire):
    """The retry record of maintenance.md §3."""

    generation: int
    not_before: int
    native_only: bool
    stalls: int


class GenerationView(Wire):
    """Dirty and processed generations, with the retry record."""

    dirty: int
    processed: int
    nonterminal: int
    retry: RetryView | None = None
    active_mutations: int = 0
    revision: int = 0


class RunningAttempt(Wire):
    """An Attempt whose activity is open."""

    thread_id: str
    attempt_id: str
    since: int


class ObjectReport(Wire):
    """Everything about one Thread Object at a glance."""

    object_id: str
    generation: GenerationView
    alarm: AlarmView
    lanes: tuple[LaneView, ...]
    threads: tuple[ThreadView, ...]
    attempts: tuple[RunningAttempt, ...]
    inbox: int
    inbox_bytes: int
    saturated: bool
    refusals: tuple[RefusedInput, ...]
    refused_total: int
    passes: tuple[MaintenancePassReport, ...]
    faults: tuple[Fault, ...]
    binding_waits: tuple[BindingWait, ...]
    parked_reports: tuple[str, ...] = ()
    registry_key: str = ""
    run_count: int = 1
    applied_total: int = 0
    settled_total: int = 0
    last_failure: str | None = None
    installed: Installed = Installed()
    """What the workers have installed beside agents, as this object learned it."""
    lane_failures: tuple[LaneFailure, ...] = ()


class RecoveryStatus(Wire):
    """The retained failure of a Thread's recovery. None: none is known, which is no proof of health."""

    fault: Fault | None = None


class StatusView(Wire):
    """The workflow's own knowledge of a Submission; the database knows more."""

    submission_id: str
    known: bool
    state: SubmissionState | None = None
    thread_id: str | None = None
    attempt_id: str | None = None
    detail: JsonValue = None


class Check(Wire):
    """One check of a verification. `findings` counts all that is wrong; `details` tell the first of them."""

    name: str
    outcome: CheckOutcome
    reason: str = ""
    details: tuple[str, ...] = ()
    findings: int = 0


class Verification(Wire):
    """What verifying a Thread found, over one snapshot of its ledger and log. `ok`: no check failed."""

    thread_id: str
    ok: bool
    records: int
    submissions: int
    checks: tuple[Check, ...]


class RestoreReport(Wire):
    """What fencing a restored database did: all its Threads, and the objects that were marked to look again."""

    threads: int
    objects: int
