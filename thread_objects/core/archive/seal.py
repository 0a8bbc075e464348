"""Writing an archive: canonical lines, counted and digested on their way out."""

import hashlib

from thread_objects.contract.archive import (
    ApprovalLine,
    Counts,
    HeaderLine,
    LedgerLine,
    Line,
    ReservationLine,
    ResolutionLine,
    SubmissionLine,
    TrailerLine,
    UnknownCallLine,
)
from thread_objects.core import batches
from thread_objects.core.archive.lines import LINE
from thread_objects.core.canonical import canonical
from thread_objects.core.verification import CommittedRecord

COUNTED = {
    SubmissionLine: "submissions",
    ApprovalLine: "approvals",
    UnknownCallLine: "unknown_calls",
    ResolutionLine: "resolutions",
    ReservationLine: "reservations",
}


class Seal:
    """Prints lines (each ends with a line feed) and closes them with the trailer that says what they were."""

    def __init__(self, header: HeaderLine) -> None:
        self._digest = hashlib.sha256()
        self._counts = dict.fromkeys((*COUNTED.values(), "records"), 0)
        self._tail_digest = header.tail.digest
        self.header = self._sealed(_text(header))

    def ledger(self, line: LedgerLine) -> str:
        """A line of the ledger."""
        self._counts[COUNTED[type(line)]] += 1
        return self._sealed(_text(line))

    def record(self, record: CommittedRecord, submission_id: str | None) -> str:
        """A record, printed around its body as it is stored. The keys stand in their sorted order."""
        self._counts["records"] += 1
        text = batches.record_text(
            record_id=record.record_id,
            family=record.family,
            schema_version=record.schema_version,
            created_at=record.created_at,
            deployment_id=record.deployment_id,
            body=record.body,
        )
        return self._sealed(
            f'{{"batchId":{canonical(record.batch_id)},"digest":{canonical(record.digest)},"record":{text},'
            f'"sequence":{record.sequence},"submissionId":{canonical(submission_id)},"type":"record"}}'
        )

    def trailer(self) -> str:
        """The last line."""
        counts = Counts(**self._counts)
        digest = self._digest.hexdigest()
        return _text(TrailerLine(counts=counts, tail_digest=self._tail_digest, archive_digest=digest)) + "\n"

    def _sealed(self, text: str) -> str:
        line = text + "\n"
        self._digest.update(line.encode())
        return line


def _text(line: Line) -> str:
    return canonical(line.model_dump(mode="json", by_alias=True), LINE)
