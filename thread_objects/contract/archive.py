"""Lines of an archive: one Thread's ledger and log as JSON lines. docs/archive.md describes the format.

Archives are kept for years and read by whatever version is there then: a line holds exactly the fields of its format
version. An unknown field is refused rather than dropped, since what it says would be lost without a word.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from thread_objects.contract.messages import Id, Name, Reason
from thread_objects.contract.states import Decision, Outcome, ReservationStatus, ResolutionKind, SubmissionState
from thread_objects.contract.wire import Wire

FORMAT: Final = "thread-objects-archive"
VERSION: Final = 1

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
CallId = Annotated[str, Field(min_length=1)]


class Line(Wire):
    """Base of all lines."""

    model_config = ConfigDict(extra="forbid")


class Place(Line):
    """A batch's end in a log: its sequence and the tail digest there."""

    sequence: Count
    digest: Digest


class HeaderLine(Line):
    """The first line. `base`: where the log begins (0 unless retention deleted what was before); `tail`: its end."""

    type: Literal["header"] = "header"
    format: Literal["thread-objects-archive"] = FORMAT
    version: Literal[1] = VERSION
    thread_id: Id
    object_id: Id
    created_at: Count
    epoch: Count
    queue_last: Count
    base: Place
    tail: Place


class SubmissionLine(Line):
    """A Submission with everything that was said about it, but nobody's ownership.

    `input` (while the log does not hold it yet), `suspension_*` and `admission_facts` are canonical JSON text, as they
    are compared and digested.
    """

    type: Literal["submission"] = "submission"
    submission_id: Id
    queue_sequence: Annotated[int, Field(ge=1)]
    receipt_id: Id
    principal: Id
    idempotency_key: Id
    agent_id: Name
    state: SubmissionState
    epoch: Count
    claims: Count
    admitted_at: Count
    ready_at: Count | None = None
    input_applied: Count | None = None
    abort_at: Count | None = None
    abort_author: Name | None = None
    abort_reason: Reason | None = None
    host_submission_id: Id | None = None
    suspension_reason: Name | None = None
    suspension_calls: str | None = None
    suspension_children: str | None = None
    suspended_at: Count | None = None
    parent_submission_id: Id | None = None
    parent_call_id: CallId | None = None
    outcome: Outcome | None = None
    settled_at: Count | None = None
    admission_group: Id | None = None
    admission_facts: str | None = None
    input_digest: Digest
    input: str | None = None
    redacted_at: Count | None = None


class ApprovalLine(Line):
    """A call that asked for approval, and the answer once there is one."""

    type: Literal["approval"] = "approval"
    submission_id: Id
    tool_call_id: CallId
    turn: Count
    tool_name: str
    arguments_digest: str
    requested_at: Count
    decision: Decision | None = None
    resolver: Name | None = None
    reason: Reason | None = None
    decided_at: Count | None = None


class UnknownCallLine(Line):
    """A call that may have happened. `closed_at`: the sequence of the record that closed it."""

    type: Literal["unknown-call"] = "unknown-call"
    submission_id: Id
    tool_call_id: CallId
    turn: Count
    tool_name: str
    marked_at: Count
    closed_at: Count | None = None


class ResolutionLine(Line):
    """What somebody said of an unknown call. `result` is canonical JSON text."""

    type: Literal["resolution"] = "resolution"
    submission_id: Id
    tool_call_id: CallId
    category: Literal["fact", "permission"]
    kind: ResolutionKind
    is_failure: Annotated[int, Field(ge=0, le=1)]
    author: Name
    reason: Reason
    resolved_at: Count
    result: str


class ReservationLine(Line):
    """A slice of a parent's budget, held for one child. `allocation` and `accounting` are canonical JSON text."""

    type: Literal["reservation"] = "reservation"
    parent_submission_id: Id
    parent_call_id: CallId
    reservation_id: Name
    status: ReservationStatus
    child_submission_id: Id | None = None
    reserved_at: Count
    released_at: Count | None = None
    allocation: str
    accounting: str | None = None


class RecordBody(Line):
    """A record as its batch's digest covers it."""

    created_at: int
    deployment_id: str
    family: Literal["thread"]
    payload: dict[str, Any]
    record_id: Annotated[str, Field(min_length=1, max_length=1_024)]
    schema_version: Literal[1]


class RecordLine(Line):
    """A committed record. `digest` is the tail digest after its batch, on the batch's last record."""

    type: Literal["record"] = "record"
    sequence: Annotated[int, Field(ge=1)]
    batch_id: Annotated[str, Field(min_length=1, max_length=1_024)]
    submission_id: Id | None = None
    digest: Digest | None = None
    record: RecordBody


class Counts(Line):
    """How many lines of each kind there are."""

    submissions: Count = 0
    approvals: Count = 0
    unknown_calls: Count = 0
    resolutions: Count = 0
    reservations: Count = 0
    records: Count = 0


class TrailerLine(Line):
    """The last line: counts, and the digest of every byte before it."""

    type: Literal["trailer"] = "trailer"
    counts: Counts
    tail_digest: Digest
    archive_digest: Digest


class ArchiveReport(Wire):
    """What an export wrote, a check found sound, or an import brought in.

    `chain` is empty where every batch's digest was proven; otherwise it says which could not be.
    """

    thread_id: str
    object_id: str
    submissions: int
    records: int
    base_sequence: int
    tail_sequence: int
    tail_digest: str
    archive_digest: str
    chain: str = ""


LedgerLine = SubmissionLine | ApprovalLine | UnknownCallLine | ResolutionLine | ReservationLine
AnyLine = HeaderLine | LedgerLine | RecordLine | TrailerLine

ORDER: tuple[type[Line], ...] = (
    HeaderLine,
    SubmissionLine,
    ApprovalLine,
    UnknownCallLine,
    ResolutionLine,
    ReservationLine,
    RecordLine,
    TrailerLine,
)
"""The lines of an archive stand in this order: a reader knows the ledger before it meets the log."""
