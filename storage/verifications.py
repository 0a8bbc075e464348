"""Feeds the verification of a Thread with what is stored: all of one snapshot, read in pages, never held whole."""

from collections.abc import Iterator

from thread_objects.contract.reports import Verification
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.core.verification import Bound, CommittedRecord, LedgerRow, LogEnd, verify
from thread_objects.errors import CorruptRecord

from . import checkpoints, lanes
from .engine import Transaction

_ROWS_PAGE = 1_024
_RECORDS_PAGE = 128
"""A record may have 4 MiB; most have a few hundred bytes."""


def verification(tx: Transaction, thread_id: str, *, require_all_settled: bool) -> Verification:
    """Verify a Thread as it is stored. One that does not exist is empty, and whole."""
    lane = lanes.look(tx, thread_id)
    return verify(
        thread_id,
        ledger_rows(tx, thread_id),
        committed_records(tx, thread_id),
        base=_base(tx, thread_id),
        end=None if lane is None else LogEnd(lane.tail_sequence, lane.tail_digest),
        checkpoints=[Bound(sequence, digest) for sequence, digest in checkpoints.bindings(tx, thread_id)],
        require_all_settled=require_all_settled,
    )


def _base(tx: Transaction, thread_id: str) -> LogEnd | None:
    """Where the log begins since retention deleted what was before."""
    row = tx.one(
        "SELECT base_sequence, base_digest FROM threads WHERE thread_id = :thread_id", {"thread_id": thread_id}
    )
    return None if row is None or not row[0] else LogEnd(row[0], row[1] or "")


def ledger_rows(tx: Transaction, thread_id: str) -> Iterator[LedgerRow]:
    """The rows of a Thread's lane, in queue order."""
    after = 0
    while True:
        rows = tx.all(
            "SELECT submission_id, receipt_id, queue_sequence, state, outcome, input_applied, redacted_at"
            " FROM submissions WHERE thread_id = :thread_id AND queue_sequence > :after"
            " ORDER BY queue_sequence LIMIT :limit",
            {"thread_id": thread_id, "after": after, "limit": _ROWS_PAGE},
        )
        for submission_id, receipt_id, sequence, state, outcome, input_applied, redacted_at in rows:
            try:
                yield LedgerRow(
                    submission_id=submission_id,
                    receipt_id=receipt_id,
                    queue_sequence=sequence,
                    state=SubmissionState(state),
                    outcome=None if outcome is None else Outcome(outcome),
                    input_applied=input_applied,
                    redacted=redacted_at is not None,
                )
            except ValueError as error:
                raise CorruptRecord(thread_id=thread_id, decoder="submission-state") from error
            after = sequence
        if len(rows) < _ROWS_PAGE:
            return


def committed_records(tx: Transaction, thread_id: str) -> Iterator[CommittedRecord]:
    """The records of a Thread's log as they are stored, in order."""
    after = 0
    while True:
        rows = tx.all(
            "SELECT thread_id, sequence, record_id, batch_id, kind, created_at, deployment_id, body, digest,"
            " schema_version FROM records WHERE thread_id = :thread_id AND sequence > :after ORDER BY sequence"
            " LIMIT :limit",
            {"thread_id": thread_id, "after": after, "limit": _RECORDS_PAGE},
        )
        for row in rows:
            record = CommittedRecord(*row)
            yield record
            after = record.sequence
        if len(rows) < _RECORDS_PAGE:
            return
