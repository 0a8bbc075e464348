"""Whether an archive holds together: identities, references, the ledger's facts, and the log as verification sees it.

Rule guarded: everything is checked before anything is written. Memory grows by some hundred bytes per record and
Submission, never by a body.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thread_objects.contract.archive import (
    AnyLine,
    ApprovalLine,
    HeaderLine,
    RecordLine,
    ReservationLine,
    ResolutionLine,
    SubmissionLine,
    TrailerLine,
    UnknownCallLine,
)
from thread_objects.contract.reports import Verification
from thread_objects.contract.states import CheckOutcome
from thread_objects.core.archive.defect import ArchiveDefect
from thread_objects.core.archive.facts import LedgerFacts
from thread_objects.core.archive.lines import read
from thread_objects.core.canonical import RECORD, Unpersistable, canonical
from thread_objects.core.verification import CommittedRecord, LedgerRow, LogEnd, verify

ORDER_CHECKS = frozenset({"fifo-input-order", "fifo-settlement-order"})
"""What they find is told, and no reason to refuse: an archive keeps what was, in whatever order it was."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An archive that holds together."""

    header: HeaderLine
    trailer: TrailerLine
    verification: Verification


@dataclass(slots=True)
class _Reading:
    """One way through the lines, in the pieces that verification asks for."""

    lines: Iterator[AnyLine]
    facts: LedgerFacts | None
    header: HeaderLine
    number: int = 1
    ahead: AnyLine | None = None
    trailer: TrailerLine | None = None

    def _next(self) -> AnyLine | None:
        line = next(self.lines, None)
        self.number += 1
        return line

    def rows(self) -> Iterator[LedgerRow]:
        """The Submissions; the ledger's other lines are taken in with them."""
        while (line := self._next()) is not None:
            match line:
                case SubmissionLine():
                    if self.facts is not None:
                        self.facts.submission(line, self.number)
                    yield _row(line)
                case ApprovalLine() | UnknownCallLine() | ResolutionLine():
                    if self.facts is not None:
                        self.facts.command(line, self.number)
                case ReservationLine():
                    if self.facts is not None:
                        self.facts.reservation(line, self.number)
                case _:
                    break
        self.ahead = line
        if self.facts is not None:
            self.facts.ledger_read()

    def records(self) -> Iterator[CommittedRecord]:
        """The log, up to the trailer."""
        line = self.ahead
        while isinstance(line, RecordLine):
            record = _committed(self.header.thread_id, line, self.number)
            if self.facts is not None:
                self.facts.record(line, self.number)
            yield record
            line = self._next()
        if isinstance(line, TrailerLine):
            self.trailer = line
            self._next()  # lets the reader see that nothing follows


def check(lines: Iterable[str]) -> Checked:
    """Read an archive to its end. Raises `ArchiveDefect` for the first thing that makes it unfit to be imported."""
    entries = read(lines)
    header = _header(entries)
    facts = LedgerFacts(header)
    reading = _Reading(entries, facts, header)
    verification = _verified(reading)
    if reading.trailer is None:
        raise ArchiveDefect("truncated", "the archive ends without its trailer", reading.number)
    for found in verification.checks:
        if found.outcome is CheckOutcome.FAILED and found.name not in ORDER_CHECKS:
            raise ArchiveDefect(found.name, found.reason)
    facts.log_read()
    return Checked(header, reading.trailer, verification)


def verify_lines(lines: Iterable[str], *, require_all_settled: bool = False) -> Verification:
    """Every check of a verification, made on an archive, whatever it finds. Raises `ArchiveDefect` for what is none."""
    entries = read(lines)
    reading = _Reading(entries, None, _header(entries))
    verification = _verified(reading, require_all_settled=require_all_settled)
    if reading.trailer is None:
        raise ArchiveDefect("truncated", "the archive ends without its trailer", reading.number)
    return verification


def _header(entries: Iterator[AnyLine]) -> HeaderLine:
    header = next(entries, None)
    if not isinstance(header, HeaderLine):
        raise ArchiveDefect("truncated", "the archive is empty")
    if header.tail.sequence < header.base.sequence:
        raise ArchiveDefect("contradiction", "the log ends before it begins", 1)
    return header


def _verified(reading: _Reading, *, require_all_settled: bool = False) -> Verification:
    header = reading.header
    return verify(
        header.thread_id,
        reading.rows(),
        reading.records(),
        base=LogEnd(header.base.sequence, header.base.digest),
        end=LogEnd(header.tail.sequence, header.tail.digest),
        require_all_settled=require_all_settled,
    )


def _row(line: SubmissionLine) -> LedgerRow:
    return LedgerRow(
        submission_id=line.submission_id,
        receipt_id=line.receipt_id,
        queue_sequence=line.queue_sequence,
        state=line.state,
        outcome=line.outcome,
        input_applied=line.input_applied,
        redacted=line.redacted_at is not None,
    )


def _committed(thread_id: str, line: RecordLine, number: int) -> CommittedRecord:
    record = line.record
    try:
        body = canonical(record.payload, RECORD)
    except Unpersistable as error:
        raise ArchiveDefect("bounds", f"record {line.sequence}: {error}", number) from error
    return CommittedRecord(
        thread_id=thread_id,
        sequence=line.sequence,
        record_id=record.record_id,
        batch_id=line.batch_id,
        kind=str(record.payload.get("kind")),
        created_at=record.created_at,
        deployment_id=record.deployment_id,
        body=body,
        digest=line.digest,
        schema_version=record.schema_version,
        family=record.family,
    )
