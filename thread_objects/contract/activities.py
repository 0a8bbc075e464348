"""Inputs and answers of the activities."""

from typing import Literal

from pydantic import Field, JsonValue

from thread_objects.contract.lanes import Installed
from thread_objects.contract.messages import (
    AbortAnswer,
    ApprovalAnswer,
    LogRecord,
    Mutation,
    Receipt,
    SubmissionStatus,
    UnknownAnswer,
)
from thread_objects.contract.views import Page, Recovered, Registry, SettledView, Survey, ThreadView
from thread_objects.contract.wire import Wire


def _absent(value: object) -> bool:
    return value is None


def _empty(value: object) -> bool:
    return not value


class Item(Wire):
    """One inbox entry on its way to storage. `n` is its arrival number, unique in the object's life."""

    n: int
    mutation: Mutation


class HeadStartOffer(Wire):
    """How an Attempt would be called that begins as soon as the batch is applied (see `ApplyAnswer.head_start`)."""

    attempt_id: str
    producer_id: str


class ApplyRequest(Wire):
    """One batch of mutations, applied in order in one transaction.

    `mark` numbers the batch (increasing over the object's life); the transaction leaves it on the object's row, so
    that a batch whose workflow task never completed is found by the mark sweep. `applied_through` is the highest
    mark whose answer the workflow has recorded.
    """

    object_id: str
    batch_id: str
    mark: int
    applied_through: int
    items: tuple[Item, ...]
    head_start: HeadStartOffer | None = None
    """Set by an idle object for one new input."""
    installed: str = Field("", exclude_if=_empty)
    """Digest of what the object knows to be installed; a worker that has something else says so."""
    shared_host: bool = Field(False, exclude_if=_empty)
    """The answer's survey is partial: the Threads of this batch and no others."""


class Refusal(Wire):
    """A typed refusal crossing the wire: the stable code of a `ThreadError` and its fields."""

    code: str
    message: str
    fields: dict[str, JsonValue] = {}
    retryable: bool = False


class ItemAnswer(Wire):
    """The answer to one item: exactly one of the answers, or a refusal.

    `progress`: the item made work possible (a first admission, a new decision, ...). A duplicate of an item from
    another batch answers no progress; the same batch met again answers as the first time.
    """

    n: int
    receipt: Receipt | None = None
    abort: AbortAnswer | None = None
    approval: ApprovalAnswer | None = None
    unknown: UnknownAnswer | None = None
    refusal: Refusal | None = None
    progress: bool = False
    cancel_submission: str | None = None
    """Set by an abort of owned work: the running Attempt of this Submission is to be told to look."""


class ApplyAnswer(Wire):
    """Answers in the order of the items, and the object's survey read at the end of the same transaction."""

    answers: tuple[ItemAnswer, ...]
    survey: Survey
    registry: Registry = Registry()
    head_start: str | None = None
    """The Attempt of this id is under way already; the activity of that id adopts it."""
    installed: Installed | None = Field(None, exclude_if=_absent)
    """What the worker that answered has installed, where the object knows of something else."""


class SurveyRequest(Wire):
    """Read the control view of an object."""

    object_id: str
    installed: str = Field("", exclude_if=_empty)
    page: Page | None = Field(None, exclude_if=_absent)
    """Of a shared host: one page of its Threads. Without it all of them."""
    discover_after: str | None = Field(None, exclude_if=_absent)
    """With a page: Threads with duties of their own are listed from behind this one."""


class SurveyAnswer(Wire):
    """The control view, read in one transaction."""

    survey: Survey
    registry: Registry = Registry()
    installed: Installed | None = Field(None, exclude_if=_absent)


class ClearMarkRequest(Wire):
    """Clear the object's mark if it is not newer than `through`."""

    object_id: str
    through: int


class RecoverRequest(Wire):
    """Recover one Thread (classifier and executor, bounded by 30 s), without claiming its head for work."""

    object_id: str
    thread_id: str
    producer_id: str
    ended_attempts: tuple[str, ...] = ()
    cursor: str | None = None
    attempt_id: str
    """The id recovery uses for its own short claims."""


class RecoverAnswer(Wire):
    """What recovery did and the Thread's view after it."""

    recovered: Recovered
    view: ThreadView
    registry: Registry = Registry()


class AttemptRequest(Wire):
    """Recover one Thread, then claim its head and advance it."""

    object_id: str
    thread_id: str
    producer_id: str
    attempt_id: str
    ended_attempts: tuple[str, ...] = ()
    """Attempts of this Thread whose activities the workflow has seen end: a claim may supersede their lease."""
    applied_through: int = 0
    yield_at: int
    deadline_at: int


class AttemptAnswer(Wire):
    """How the Attempt ended.

    `ended`: `settled` (the head settled), `suspended`, `unknown`, `yielded` (handed back at a Turn boundary or by
    shutdown), `idle` (nothing claimable), `unbound` (no current binding for the head), `faulted`.
    `view` was read in the Attempt's last transaction.
    """

    attempt_id: str
    ended: Literal["settled", "suspended", "unknown", "yielded", "idle", "unbound", "faulted"]
    settled: SettledView | None = None
    submission_id: str | None = None
    agent_id: str | None = None
    recovered: Recovered
    view: ThreadView
    mark_cleared: int = 0
    registry: Registry = Registry()


class ReadRequest(Wire):
    """One read on behalf of a client without a database: a status (by id or key), a page of the log, or an owner."""

    owner_of: str | None = None
    submission_id: str | None = None
    thread_id: str | None = None
    principal: str | None = None
    key: str | None = None
    after: int = 0
    limit: int = 0
    operation: str = ""
    """What the read is for, and `caller` who asks: for the worker's authoriser."""
    caller: str = ""


class ReadAnswer(Wire):
    """The answer: at most one status, at most one page (bounded to 1 MiB, so a page may be short)."""

    status: SubmissionStatus | None = None
    records: tuple[LogRecord, ...] = ()
    object_id: str | None = None
