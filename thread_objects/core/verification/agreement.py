"""Ledger and log say the same: one settlement each, and every row's state has its record."""

from collections.abc import Iterable

from thread_objects.contract import records as r
from thread_objects.contract.reports import Check
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.core.verification.complaints import Complaints
from thread_objects.core.verification.inputs import CommittedRecord, LedgerRow

CONSUMED = frozenset(
    {SubmissionState.JOINED, SubmissionState.INPUT_APPLIED, SubmissionState.SUSPENDED, SubmissionState.UNKNOWN}
)
"""States that only a canonical input leads to."""


class AgreementChecks:
    """terminal-uniqueness and ledger-canonical-agreement."""

    def __init__(self, rows: dict[str, LedgerRow], repeated: Iterable[str] = (), *, base: int = 0) -> None:
        self._rows = rows
        self._base = base
        self._terminal = Complaints("terminal-uniqueness")
        self._agreement = Complaints("ledger-canonical-agreement")
        self._settled: dict[str, Outcome] = {}
        self._inputs: dict[str, int] = {}
        for sid in repeated:
            self._agreement.add(f"the ledger has {sid} twice")
        places: dict[int, str] = {}
        for row in rows.values():
            other = places.setdefault(row.queue_sequence, row.submission_id)
            if other != row.submission_id:
                self._agreement.add(f"{other} and {row.submission_id} have the same place in the queue")

    def read(self, record: CommittedRecord, payload: r.AnyPayload) -> None:
        """The next record."""
        match payload:
            case r.UserInputRecorded():
                self._known(payload.submission_id, record)
                self._inputs[payload.submission_id] = record.sequence
            case r.AbortRequested():
                self._known(payload.submission_id, record)
            case r.SubmissionSettled():
                self._settlement(record, payload)
            case _:
                pass

    def _known(self, submission_id: str, record: CommittedRecord) -> LedgerRow | None:
        row = self._rows.get(submission_id)
        if row is None:
            self._agreement.add(f"sequence {record.sequence} is about {submission_id}, which the ledger does not have")
        return row

    def _settlement(self, record: CommittedRecord, payload: r.SubmissionSettled) -> None:
        sid = payload.submission_id
        if sid in self._settled:
            self._terminal.add(f"sequence {record.sequence} settles {sid} again")
            return
        self._settled[sid] = payload.outcome
        row = self._known(sid, record)
        if row is not None and row.receipt_id != payload.receipt_id:
            self._agreement.add(f"the settlement of {sid} names another receipt")

    def checks(self) -> tuple[Check, Check]:
        """The two checks, when all records were read."""
        for sid, row in self._rows.items():
            self._compare(sid, row)
        return self._terminal.check(), self._agreement.check()

    def _compare(self, sid: str, row: LedgerRow) -> None:
        recorded, marked, input_at = self._settled.get(sid), row.input_applied, self._inputs.get(sid)
        if row.state is SubmissionState.SETTLED:
            if recorded is None:
                if not (row.redacted and self._base):
                    self._agreement.add(f"{sid} is settled without a settlement record")
            elif recorded is not row.outcome:
                self._agreement.add(f"{sid} is settled {row.outcome}, its record says {recorded}")
        elif recorded is not None:
            self._agreement.add(f"{sid} is {row.state}, its record says settled {recorded}")
        elif row.state in CONSUMED and input_at is None:
            self._agreement.add(f"{sid} is {row.state} without an input record")
        deleted = row.redacted and marked is not None and marked <= self._base
        if marked is not None and marked != input_at and not deleted:
            self._agreement.add(f"the row of {sid} has its input at {marked}, the log at {input_at}")


def all_settled(rows: dict[str, LedgerRow]) -> Check:
    """Whether nothing is owed. An empty lane has settled nothing."""
    found = Complaints("all-settled")
    if not rows:
        found.add("the lane has no submissions")
    for row in rows.values():
        if row.state is not SubmissionState.SETTLED:
            found.add(f"{row.submission_id} is {row.state}")
    return found.check()
