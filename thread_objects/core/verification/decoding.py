"""Every record by itself: it decodes, loses nothing on the way back, and carries its own identity, once."""

import hashlib
from typing import Any

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.reports import Check
from thread_objects.core import redaction
from thread_objects.core.canonical import RECORD, canonical, parse
from thread_objects.core.verification.complaints import Complaints
from thread_objects.core.verification.inputs import CommittedRecord

RECORD_ID_CHARS_MAX = 1_024


class DecodingChecks:
    """schema-round-trip and record-identity."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._schema = Complaints("schema-round-trip")
        self._identity = Complaints("record-identity")
        self._records: set[bytes] = set()
        self._batches: set[bytes] = set()
        self._batch_id: str | None = None

    def read(self, record: CommittedRecord) -> r.AnyPayload | None:
        """The record's payload, or None where it cannot be decoded."""
        self._identify(record)
        payload, wrong = _decoded(record)
        if wrong is not None:
            self._schema.add(f"sequence {record.sequence} ({record.kind}): {wrong}")
        if payload is not None:
            derived = _derived_id(self._thread_id, payload)
            if derived is not None and derived != record.record_id:
                self._identity.add(f"sequence {record.sequence} is {record.record_id}, its content says {derived}")
        return payload

    def _identify(self, record: CommittedRecord) -> None:
        if record.thread_id != self._thread_id:
            self._identity.add(f"sequence {record.sequence} belongs to thread {record.thread_id}")
        if not 1 <= len(record.record_id) <= RECORD_ID_CHARS_MAX:
            self._identity.add(f"sequence {record.sequence} has no valid record id")
        if not _first(self._records, record.record_id):
            self._identity.add(f"sequence {record.sequence} repeats record id {record.record_id}")
        if record.batch_id != self._batch_id:
            self._batch_id = record.batch_id
            if not _first(self._batches, record.batch_id):
                self._identity.add(f"sequence {record.sequence} repeats batch id {record.batch_id}")
        if record.digest is not None:
            self._batch_id = None  # the batch is over: its id must not come again, not even at once

    def checks(self) -> tuple[Check, Check]:
        """The two checks, when all records were read."""
        return self._schema.check(), self._identity.check()


def _first(seen: set[bytes], identity: str) -> bool:
    # Sixteen bytes stand for an id of any length, so that memory is bounded per record.
    mark = hashlib.blake2b(identity.encode(errors="surrogatepass"), digest_size=16).digest()
    new = mark not in seen
    seen.add(mark)
    return new


def _decoded(record: CommittedRecord) -> tuple[r.AnyPayload | None, str | None]:
    """The payload, as far as there is one, and what is wrong with the record, if anything is."""
    if record.family != "thread" or record.schema_version != 1:
        return None, f"family {record.family}, schema version {record.schema_version}"
    try:
        body, stored = record.body, parse(record.body)
        if canonical(stored, RECORD) != body:
            return None, "the stored text is not canonical"
        if isinstance(stored, dict) and redaction.redacted(stored):
            if not redaction.well_formed(stored):
                return None, "is redacted, and holds more than a redacted record may"
            stored = redaction.without_mark(stored)
            body = canonical(stored, RECORD)
        payload = r.PAYLOADS.validate_python(stored)
    except ValueError as error:
        return None, f"cannot be decoded: {type(error).__name__}"
    if payload.kind != record.kind:
        return None, f"holds a {payload.kind}"
    return payload, None if _comes_back(payload, body, stored) else "does not come back as it was stored"


def _comes_back(payload: r.AnyPayload, body: str, stored: Any) -> bool:
    """Whether encoding the payload again loses and changes nothing.

    A member that a later version of this program added is new in the text, with its default.
    """
    try:
        text = canonical(payload.model_dump(by_alias=True), RECORD)
        return text == body or (_holds(parse(text), stored) and r.PAYLOADS.validate_python(parse(text)) == payload)
    except ValueError:
        return False


def _holds(whole: Any, part: Any) -> bool:
    """Whether every member of `part` is in `whole`. Depth is bounded: canonical text was made of both."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and _holds(whole[name], value) for name, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(_holds(a, b) for a, b in zip(whole, part, strict=True))
    return type(part) is type(whole) and bool(part == whole)


def _derived_id(thread_id: str, payload: r.AnyPayload) -> str | None:
    match payload:
        case r.ThreadCreated():
            return ids.thread_created_record(thread_id)
        case r.UserInputRecorded():
            return ids.input_record(payload.submission_id)
        case r.AbortRequested():
            return ids.abort_record(payload.submission_id)
        case r.SubmissionSettled():
            return ids.settlement_id(payload.submission_id)
        case r.ModelResponseRecorded():
            return ids.response_record(payload.run_id, payload.turn)
        case _:
            return None
