"""The log as a chain: sequences without a gap, and each batch's digest over everything before it."""

import hashlib
from collections.abc import Iterable

from thread_objects.contract.reports import Check
from thread_objects.contract.states import CheckOutcome
from thread_objects.core import batches, redaction
from thread_objects.core.canonical import Unpersistable, canonical
from thread_objects.core.verification.complaints import Complaints, skipped
from thread_objects.core.verification.inputs import Bound, CommittedRecord, LogEnd

UNCHAINED = "the records carry no batch digests"


class ChainChecks:
    """sequence-contiguity, digest-chain and checkpoint-binding, in one pass over the records."""

    def __init__(self, base: LogEnd, end: LogEnd | None, checkpoints: Iterable[Bound]) -> None:
        self._base = base
        self._end = end
        self._sequences = Complaints("sequence-contiguity")
        self._chain = Complaints("digest-chain")
        self._bindings = Complaints("checkpoint-binding")
        self._sequence = base.sequence
        self._digest = base.digest
        self._digests_seen = 0
        self._redacted = False
        self._unprovable = 0
        self._batch_id: str | None = None
        self._open: hashlib._Hash | None = None
        self._checkpoints = sorted(checkpoints, key=lambda bound: bound.sequence)
        self._due = 0
        self._bind(base.sequence, base.digest)

    def read(self, record: CommittedRecord) -> None:
        """The next record of the log."""
        if record.sequence != self._sequence + 1:
            self._sequences.add(f"sequence {self._sequence} is followed by {record.sequence}")
        self._sequence = record.sequence
        self._link(record)
        self._bind(record.sequence, record.digest)

    def _link(self, record: CommittedRecord) -> None:
        if self._open is not None and record.batch_id != self._batch_id:
            self._chain.add(f"batch {self._batch_id} ends without a digest before sequence {record.sequence}")
            self._open = None
        # What a redacted record said is gone, and with it the text that its batch's digest was taken of.
        self._redacted = self._redacted or redaction.redacted_text(record.body)
        try:
            text = batches.record_text(
                record_id=record.record_id,
                family=record.family,
                schema_version=record.schema_version,
                created_at=record.created_at,
                deployment_id=record.deployment_id,
                body=record.body,
            )
            if self._open is None:
                self._batch_id = record.batch_id
                self._open = hashlib.sha256(f'{{"batch":{{"batchId":{canonical(record.batch_id)},"records":['.encode())
            else:
                self._open.update(b",")
            self._open.update(text.encode())
        except (Unpersistable, UnicodeEncodeError):
            self._chain.add(f"sequence {record.sequence} has no canonical text")
        if record.digest is not None:
            self._close(record.sequence, record.digest)

    def _close(self, sequence: int, stored: str) -> None:
        self._digests_seen += 1
        if self._open is not None:
            self._open.update(f']}},"previousTailDigest":"{self._digest}"}}'.encode())
            if self._redacted:
                self._unprovable += 1
            elif self._open.hexdigest() != stored:
                self._chain.add(f"batch {self._batch_id} up to sequence {sequence} does not have the digest stored")
        # From the stored digest on: one changed batch is one finding, not one for each batch after it.
        self._digest, self._open, self._redacted = stored, None, False

    def _bind(self, sequence: int, digest: str | None) -> None:
        while self._due < len(self._checkpoints) and self._checkpoints[self._due].sequence <= sequence:
            bound = self._checkpoints[self._due]
            self._due += 1
            if bound.sequence != sequence or bound.digest != digest:
                self._bindings.add(f"the checkpoint at sequence {bound.sequence} is not bound to a digest of the log")

    def checks(self) -> tuple[Check, Check, Check]:
        """The three checks, when all records were read."""
        for bound in self._checkpoints[self._due :]:
            self._bindings.add(f"the checkpoint at sequence {bound.sequence} is ahead of the log's end")
        end = self._end
        if end is not None and end.sequence != self._sequence:
            self._sequences.add(f"the log ends at sequence {self._sequence}, its Thread says {end.sequence}")
        if self._digests_seen == 0 and self._sequence > self._base.sequence:
            unchained = skipped("digest-chain", UNCHAINED)
            return self._sequences.check(), unchained, skipped("checkpoint-binding", UNCHAINED)
        if self._open is not None:
            self._chain.add(f"batch {self._batch_id} at the log's end has no digest")
        if end is not None and end.digest != self._digest:
            self._chain.add("the log's last digest is not the one its Thread says")
        chain = self._chain.check()
        if self._unprovable and chain.outcome is CheckOutcome.PASSED:
            told = f"{self._unprovable} of {self._digests_seen} batches hold redacted records; the others have theirs"
            chain = skipped("digest-chain", told)
        return self._sequences.check(), chain, self._bindings.check()
