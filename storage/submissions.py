"""Submission rows: read, advance, settle. Every change of state goes through the ledger's table."""

from typing import Any, NamedTuple

from thread_objects.contract import ids
from thread_objects.contract.messages import ParentLink
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.core import ledger
from thread_objects.core.canonical import canonical, parse
from thread_objects.errors import CorruptRecord, LedgerError, NotFound
from thread_objects.ports import AbortIntent

from .engine import Transaction


class Submission(NamedTuple):
    """A row's control data."""

    submission_id: str
    thread_id: str
    object_id: str
    queue_sequence: int
    receipt_id: str
    principal: str
    idempotency_key: str
    agent_id: str
    state: SubmissionState
    epoch: int
    claims: int
    admitted_at: int
    admitted_by: str
    input_applied: int | None
    abort_at: int | None
    abort_author: str | None
    abort_reason: str | None
    abort_by: str | None
    host_submission_id: str | None
    suspension_reason: str | None
    suspension_calls: str | None
    suspension_children: str | None
    parent_submission_id: str | None
    parent_call_id: str | None
    outcome: str | None
    settled_at: int | None
    admission_group: str | None
    admission_facts: str | None
    input_digest: str
    redacted_at: int | None

    @property
    def abort(self) -> AbortIntent | None:
        """The abort intent."""
        if self.abort_at is None:
            return None
        return AbortIntent(
            self.abort_author or "", self.abort_reason or "", self.abort_at, ids.abort_record(self.submission_id)
        )

    @property
    def abort_requested(self) -> bool:
        """Whether somebody asked for an abort."""
        return self.abort_at is not None

    @property
    def parent(self) -> ParentLink | None:
        """The delegation call that a child answers."""
        if self.parent_submission_id is None or self.parent_call_id is None:
            return None
        return ParentLink(submission_id=self.parent_submission_id, tool_call_id=self.parent_call_id)

    @property
    def listed_calls(self) -> tuple[str, ...]:
        """The calls an approval suspension waits for."""
        return _names(self.thread_id, self.suspension_calls)

    @property
    def listed_children(self) -> tuple[str, ...]:
        """The children a suspension waits for."""
        return _names(self.thread_id, self.suspension_children)


COLUMNS = ", ".join(Submission._fields)
OPEN = "state <> 'settled'"
NOT_SKIPPED = "NOT (state = 'unknown' AND abort_at IS NULL)"


def read(row: tuple[Any, ...]) -> Submission:
    """A selected row; a state nobody knows is a corrupt row."""
    found = Submission(*row)
    try:
        return found._replace(state=SubmissionState(found.state))
    except ValueError as error:
        raise CorruptRecord(thread_id=found.thread_id, decoder="submission-state") from error


def find(tx: Transaction, submission_id: str) -> Submission | None:
    """By id."""
    row = tx.one(
        f"SELECT {COLUMNS} FROM submissions WHERE submission_id = :submission_id",
        {"submission_id": submission_id},
    )
    return None if row is None else read(row)


def get(tx: Transaction, submission_id: str) -> Submission:
    """By id, of a Submission that exists."""
    found = find(tx, submission_id)
    if found is None:
        raise NotFound(what="submission", id=submission_id)
    return found


def find_key(tx: Transaction, thread_id: str, principal: str, key: str) -> Submission | None:
    """By idempotency key."""
    row = tx.one(
        f"SELECT {COLUMNS} FROM submissions"
        " WHERE thread_id = :thread_id AND principal = :principal AND idempotency_key = :key",
        {"thread_id": thread_id, "principal": principal, "key": key},
    )
    return None if row is None else read(row)


def head(tx: Transaction, object_id: str, thread_id: str) -> Submission | None:
    """The row a claim looks at: the lowest unsettled one, stepping over parked unknown rows."""
    row = tx.one(
        f"SELECT {COLUMNS} FROM submissions WHERE object_id = :object_id AND thread_id = :thread_id AND {OPEN}"
        f" AND {NOT_SKIPPED} ORDER BY queue_sequence LIMIT 1",
        {"object_id": object_id, "thread_id": thread_id},
    )
    return None if row is None else read(row)


def stored_input(tx: Transaction, submission_id: str) -> Any:
    """The input as it was admitted, while the log does not hold it yet."""
    row = tx.one(
        "SELECT thread_id, input FROM submissions WHERE submission_id = :submission_id",
        {"submission_id": submission_id},
    )
    if row is None or row[1] is None:
        raise LedgerError(f"{submission_id}: its input is not in the ledger", operation="readInput")
    try:
        return parse(row[1])
    except ValueError as error:
        raise CorruptRecord(thread_id=row[0], decoder="input") from error


def move(tx: Transaction, row: Submission, operation: ledger.Operation, **columns: Any) -> Submission:
    """Advance the state by the table and set columns with it. Raises `LedgerError` for an illegal move."""
    target = target_of(operation, row)
    values: dict[str, Any] = {"state": target.value, **columns}
    assignments = ", ".join(f"{name} = :{name}" for name in values)
    done = tx.run(
        f"UPDATE submissions SET {assignments} WHERE submission_id = :submission_id AND state = :from_state",
        {**values, "submission_id": row.submission_id, "from_state": row.state.value},
    )
    if done != 1:
        raise LedgerError(f"{row.submission_id}: the row moved during {operation}", operation=operation.value)
    return row._replace(**{name: value for name, value in columns.items() if name in Submission._fields}, state=target)


def target_of(operation: ledger.Operation, row: Submission) -> SubmissionState:
    """The state after an operation."""
    try:
        return ledger.advance(operation, row.state)
    except ledger.IllegalTransition as error:
        raise LedgerError(f"{row.submission_id}: {error}", operation=operation.value) from error


def wake(tx: Transaction, row: Submission) -> Submission:
    """End a suspension."""
    return move(
        tx,
        row,
        ledger.Operation.WAKE_SUSPENDED,
        suspension_reason=None,
        suspension_calls=None,
        suspension_children=None,
        suspended_at=None,
    )


def settle(tx: Transaction, row: Submission, outcome: Outcome, *, now: int) -> Submission:
    """Finalize. The first time and outcome stay."""
    aborted = outcome is Outcome.ABORTED
    operation = ledger.Operation.FINALIZE_ABORTED if aborted else ledger.Operation.FINALIZE
    if row.state is SubmissionState.SETTLED:
        return row
    return move(tx, row, operation, outcome=outcome.value, settled_at=now, input=None)


def names_text(values: tuple[str, ...]) -> str:
    """A list of ids as it is stored."""
    return canonical(list(values))


def _names(thread_id: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    try:
        return tuple(str(name) for name in parse(text))
    except (ValueError, TypeError) as error:
        raise CorruptRecord(thread_id=thread_id, decoder="suspension") from error
