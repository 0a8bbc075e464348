"""The tables. SQLModel classes live here only: they describe the schema, and rows never leave this package.

Ids collate by code point on both databases. Bodies are text, canonical, and come last in their row, so that reading
control columns never touches them. Times are epoch milliseconds. Flags are 0 or 1.
"""

from typing import Any, ClassVar

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT
from sqlmodel import Field, SQLModel

from thread_objects.contract.recovery_events import Transition
from thread_objects.contract.states import Decision, Outcome, ReservationStatus, ResolutionKind, SubmissionState

_IDENTIFIER = Text().with_variant(PG_TEXT(collation="C"), "postgresql")
_OPEN = "state <> 'settled'"


def _one_of(column: str, values: Any) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IS NULL OR {column} IN ({listed})"


def _id(*constraints: Any, primary_key: bool = False, nullable: bool = False) -> Any:
    return Field(sa_column=Column(_IDENTIFIER, *constraints, primary_key=primary_key, nullable=nullable))


def _text(*, nullable: bool = False) -> Any:
    return Field(sa_column=Column(Text(), nullable=nullable))


def _number(*, primary_key: bool = False, nullable: bool = False, default: str | None = None) -> Any:
    return Field(
        sa_column=Column(
            BigInteger(),
            primary_key=primary_key,
            nullable=nullable,
            autoincrement=False,
            server_default=None if default is None else text(default),
        ),
    )


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


class ObjectRow(SQLModel, table=True):
    """A Thread Object as the mark sweep knows it."""

    __tablename__ = "objects"
    __table_args__: ClassVar[Any] = (
        _partial("objects_marked", "marked_at", where="mark IS NOT NULL"),
        Index("objects_worker", "worker"),
    )

    object_id: str = _id(primary_key=True)
    worker: str = _text()
    mark: int | None = _number(nullable=True)
    marked_at: int | None = _number(nullable=True)


class ThreadRow(SQLModel, table=True):
    """A Thread: its lane's counter, its log's fence and tail, and the one ownership it can have.

    `base_*`: where the log begins now; records up to there were deleted by retention, which was here `retained_at`.
    """

    __tablename__ = "threads"
    __table_args__: ClassVar[Any] = (
        CheckConstraint("queue_last >= 0 AND epoch >= 0 AND tail_sequence >= 0", name="threads_counters"),
        CheckConstraint("materialized IN (0, 1)", name="threads_materialized"),
        CheckConstraint(
            "(owner_token IS NULL) = (owner_submission_id IS NULL)"
            " AND (owner_token IS NULL) = (owner_attempt_id IS NULL)"
            " AND (owner_token IS NULL) = (owner_producer_id IS NULL)"
            " AND (owner_token IS NULL) = (lease_until IS NULL)",
            name="threads_owner_whole",
        ),
    )

    thread_id: str = _id(primary_key=True)
    object_id: str = _id()
    created_at: int = _number()
    materialized: int = _number()
    queue_last: int = _number()
    epoch: int = _number()
    tail_sequence: int = _number()
    tail_digest: str = _text()
    owner_submission_id: str | None = _id(nullable=True)
    owner_attempt_id: str | None = _id(nullable=True)
    owner_producer_id: str | None = _id(nullable=True)
    owner_token: str | None = _text(nullable=True)
    lease_until: int | None = _number(nullable=True)
    work_through: int | None = Field(sa_column=Column(BigInteger(), nullable=True, server_default=text("-1")))
    base_sequence: int = _number(default="0")
    base_digest: str | None = _text(nullable=True)
    retained_at: int = _number(default="0")


class SubmissionRow(SQLModel, table=True):
    """A Submission. `input` is kept until the log holds it; `*_by` name the batch item that caused a change.

    `redacted_at`: retention took what it said; identities, outcome and digests stay.
    """

    __tablename__ = "submissions"
    __table_args__: ClassVar[Any] = (
        UniqueConstraint("thread_id", "principal", "idempotency_key", name="submissions_key"),
        UniqueConstraint("thread_id", "queue_sequence", name="submissions_queue"),
        CheckConstraint(_one_of("state", SubmissionState), name="submissions_state"),
        CheckConstraint(_one_of("outcome", Outcome), name="submissions_outcome"),
        CheckConstraint(
            "(state = 'settled') = (outcome IS NOT NULL) AND (state = 'settled') = (settled_at IS NOT NULL)",
            name="submissions_settled",
        ),
        CheckConstraint("(state = 'suspended') = (suspension_reason IS NOT NULL)", name="submissions_suspended"),
        CheckConstraint(
            "state NOT IN ('joining', 'joined') OR host_submission_id IS NOT NULL", name="submissions_host"
        ),
        # Finds the head and the recovery page, and counts a lane, without touching the rows.
        _partial(
            "submissions_open",
            "object_id",
            "thread_id",
            "queue_sequence",
            "state",
            "abort_at",
            where=_OPEN,
        ),
        _partial("submissions_joins", "host_submission_id", where="host_submission_id IS NOT NULL"),
        _partial(
            "submissions_group",
            "thread_id",
            "admission_group",
            where=f"admission_group IS NOT NULL AND {_OPEN}",
            unique=True,
        ),
    )

    submission_id: str = _id(primary_key=True)
    thread_id: str = _id(ForeignKey("threads.thread_id"))
    object_id: str = _id()
    queue_sequence: int = _number()
    receipt_id: str = _id()
    principal: str = _id()
    idempotency_key: str = _id()
    agent_id: str = _id()
    state: str = _text()
    epoch: int = _number()
    claims: int = _number()
    admitted_at: int = _number()
    admitted_by: str = _text()
    ready_at: int | None = _number(nullable=True)
    input_applied: int | None = _number(nullable=True)
    abort_at: int | None = _number(nullable=True)
    abort_author: str | None = _text(nullable=True)
    abort_reason: str | None = _text(nullable=True)
    abort_by: str | None = _text(nullable=True)
    host_submission_id: str | None = _id(nullable=True)
    suspension_reason: str | None = _text(nullable=True)
    suspension_calls: str | None = _text(nullable=True)
    suspension_children: str | None = _text(nullable=True)
    suspended_at: int | None = _number(nullable=True)
    parent_submission_id: str | None = _id(nullable=True)
    parent_call_id: str | None = _id(nullable=True)
    outcome: str | None = _text(nullable=True)
    settled_at: int | None = _number(nullable=True)
    admission_group: str | None = _id(nullable=True)
    admission_facts: str | None = _text(nullable=True)
    input_digest: str = _text()
    input: str | None = _text(nullable=True)
    redacted_at: int | None = _number(nullable=True)


class RecordRow(SQLModel, table=True):
    """A committed record. `digest` is the tail digest after its batch and stands on the batch's last record."""

    __tablename__ = "records"
    __table_args__: ClassVar[Any] = (
        UniqueConstraint("thread_id", "record_id", name="records_identity"),
        CheckConstraint("sequence >= 1", name="records_sequence"),
        _partial("records_batch", "thread_id", "batch_id", where="digest IS NOT NULL", unique=True),
        _partial("records_run", "submission_id", "sequence", where="submission_id IS NOT NULL"),
    )

    thread_id: str = _id(ForeignKey("threads.thread_id"), primary_key=True)
    sequence: int = _number(primary_key=True)
    record_id: str = _id()
    batch_id: str = _id()
    kind: str = _text()
    schema_version: int = _number()
    created_at: int = _number()
    deployment_id: str = _text()
    submission_id: str | None = _id(nullable=True)
    digest: str | None = _text(nullable=True)
    body: str = _text()


class ApprovalRow(SQLModel, table=True):
    """A call with a canonical approval request, and its answer once there is one."""

    __tablename__ = "approvals"
    __table_args__: ClassVar[Any] = (
        CheckConstraint(_one_of("decision", Decision), name="approvals_decision"),
        CheckConstraint("(decision IS NULL) = (decided_at IS NULL)", name="approvals_decided"),
    )

    submission_id: str = _id(ForeignKey("submissions.submission_id"), primary_key=True)
    tool_call_id: str = _id(primary_key=True)
    turn: int = _number()
    tool_name: str = _text()
    arguments_digest: str = _text()
    requested_at: int = _number()
    decision: str | None = _text(nullable=True)
    resolver: str | None = _text(nullable=True)
    reason: str | None = _text(nullable=True)
    decided_at: int | None = _number(nullable=True)
    decided_by: str | None = _text(nullable=True)


class UnknownCallRow(SQLModel, table=True):
    """A call that may have happened. `closed_at` is the log sequence that closed it."""

    __tablename__ = "unknown_calls"

    submission_id: str = _id(ForeignKey("submissions.submission_id"), primary_key=True)
    tool_call_id: str = _id(primary_key=True)
    turn: int = _number()
    tool_name: str = _text()
    marked_at: int = _number()
    closed_at: int | None = _number(nullable=True)


class ResolutionRow(SQLModel, table=True):
    """What somebody said of an unknown call: at most one fact and one permission each."""

    __tablename__ = "unknown_resolutions"
    __table_args__: ClassVar[Any] = (
        CheckConstraint("category IN ('fact', 'permission')", name="unknown_resolutions_category"),
        CheckConstraint(_one_of("kind", ResolutionKind), name="unknown_resolutions_kind"),
        CheckConstraint("is_failure IN (0, 1)", name="unknown_resolutions_failure"),
    )

    submission_id: str = _id(ForeignKey("submissions.submission_id"), primary_key=True)
    tool_call_id: str = _id(primary_key=True)
    category: str = Field(sa_column=Column(Text(), primary_key=True, nullable=False))
    kind: str = _text()
    is_failure: int = _number()
    author: str = _text()
    reason: str = _text()
    resolved_at: int = _number()
    resolved_by: str = _text()
    result: str = _text()


class ChildReservationRow(SQLModel, table=True):
    """A slice of a parent's budget, held for one child until it is released."""

    __tablename__ = "child_reservations"
    __table_args__: ClassVar[Any] = (
        UniqueConstraint("reservation_id", name="child_reservations_identity"),
        CheckConstraint(_one_of("status", ReservationStatus), name="child_reservations_status"),
        CheckConstraint("(status = 'reserved') = (accounting IS NULL)", name="child_reservations_accounted"),
        _partial(
            "child_reservations_child",
            "child_submission_id",
            where="child_submission_id IS NOT NULL",
            unique=True,
        ),
    )

    parent_submission_id: str = _id(ForeignKey("submissions.submission_id"), primary_key=True)
    parent_call_id: str = _id(primary_key=True)
    reservation_id: str = _id()
    status: str = _text()
    child_submission_id: str | None = _id(ForeignKey("submissions.submission_id"), nullable=True)
    reserved_at: int = _number()
    released_at: int | None = _number(nullable=True)
    allocation: str = _text()
    accounting: str | None = _text(nullable=True)


class WorkItemRow(SQLModel, table=True):
    """A duty that may outlive its Submission. `threads.work_through` says whether a Thread's items are complete."""

    __tablename__ = "work_items"
    __table_args__: ClassVar[Any] = (Index("work_items_object", "object_id", "thread_id"),)

    thread_id: str = _id(primary_key=True)
    queue_sequence: int = _number(primary_key=True)
    call_id: str = _id(primary_key=True)
    object_id: str = _id()
    submission_id: str = _id()
    owner: str = _text()


class FaultRow(SQLModel, table=True):
    """A retained recovery failure of one Thread."""

    __tablename__ = "faults"
    __table_args__: ClassVar[Any] = (
        CheckConstraint("attempts >= 1", name="faults_attempts"),
        CheckConstraint("causes_truncated IN (0, 1)", name="faults_causes_truncated"),
        Index("faults_object", "object_id"),
    )

    thread_id: str = _id(ForeignKey("threads.thread_id"), primary_key=True)
    object_id: str = _id()
    phase: str = _text()
    reason: str = _text()
    error_tag: str = _text()
    operation: str = _text()
    causes: str = _text()
    causes_truncated: int = _number()
    decoder: str = _text()
    sequence: int | None = _number(nullable=True)
    first_failed_at: int = _number()
    last_failed_at: int = _number()
    retry_at: int = _number()
    attempts: int = _number()
    recipients: int = Field(sa_column=Column(BigInteger(), nullable=False, server_default=text("0")))


class FaultRecipientRow(SQLModel, table=True):
    """A Submission that was told of its Thread's fault. It stays until the fault is cleared."""

    __tablename__ = "fault_recipients"

    thread_id: str = _id(primary_key=True)
    queue_sequence: int = _number(primary_key=True)
    submission_id: str = _id()


class RecoveryEventRow(SQLModel, table=True):
    """A recovery event that its consumer does not have yet."""

    __tablename__ = "recovery_events"
    __table_args__: ClassVar[Any] = (
        CheckConstraint(_one_of("transition", Transition), name="recovery_events_transition"),
    )

    object_id: str = _id(primary_key=True)
    sequence: int = _number(primary_key=True)
    transition: str = _text()
    thread_id: str = _id()
    submission_id: str = _id()
    occurred_at: int = _number()
    first_failed_at: int = _number()
    failure: str = _text()


class RecoveryEventCounterRow(SQLModel, table=True):
    """The last event number of an object, and the last one acknowledged."""

    __tablename__ = "recovery_event_counters"
    __table_args__: ClassVar[Any] = (
        CheckConstraint("acknowledged >= 0 AND acknowledged <= sequence", name="recovery_event_counters_order"),
    )

    object_id: str = _id(primary_key=True)
    sequence: int = _number()
    acknowledged: int = _number()


class CheckpointRow(SQLModel, table=True):
    """A derived view of a Thread, bound to a place in its log. Disposable.

    `follows`: where the checkpoint ends that it goes on from; 0 for one that covers the log from its beginning.
    """

    __tablename__ = "checkpoints"

    thread_id: str = _id(ForeignKey("threads.thread_id"), primary_key=True)
    sequence: int = _number(primary_key=True)
    digest: str = _text()
    version: int = _number()
    follows: int = _number()
    saved_at: int = _number()
    body: str = _text()


class DeploymentRow(SQLModel, table=True):
    """A registry key and its place in the order of deployments."""

    __tablename__ = "deployments"
    __table_args__: ClassVar[Any] = (UniqueConstraint("number", name="deployments_number"),)

    registry_key: str = _id(primary_key=True)
    number: int = _number()
    first_seen_at: int = _number()


class WorkerRow(SQLModel, table=True):
    """A worker process that said it lives."""

    __tablename__ = "workers"
    __table_args__: ClassVar[Any] = (Index("workers_seen", "seen_at"),)

    worker: str = _id(primary_key=True)
    host: str = _text()
    pid: int = _number()
    seen_at: int = _number()
