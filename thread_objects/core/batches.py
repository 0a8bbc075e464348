"""Batches: how a batch becomes canonical text, and the batches that are the same whoever appends them.

Rule guarded: batch and record ids are derived, so a repeated append collides with itself instead of happening twice.
"""

from dataclasses import dataclass
from typing import Literal

from thread_objects.contract import ids
from thread_objects.contract.messages import Diagnostic
from thread_objects.contract.records import (
    AbortRequested,
    AnyPayload,
    Batch,
    Record,
    RunStarted,
    SubmissionSettled,
    ThreadCreated,
    UserInputRecorded,
)
from thread_objects.contract.states import Outcome
from thread_objects.contract.wire import Json
from thread_objects.core.canonical import RECORD, canonical


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A record with the canonical text of its payload."""

    record: Record
    body: str


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch with its canonical text, which is what the chain digest covers."""

    batch_id: str
    records: tuple[EncodedRecord, ...]
    text: str


def record_text(
    *, record_id: str, family: str, schema_version: int, created_at: int, deployment_id: str, body: str
) -> str:
    """A record's canonical text, around the canonical text of its payload. The keys stand in their sorted order."""
    return (
        f'{{"createdAt":{created_at},"deploymentId":{canonical(deployment_id)},"family":"{family}","payload":{body},'
        f'"recordId":{canonical(record_id)},"schemaVersion":{schema_version}}}'
    )


def encode(batch: Batch) -> EncodedBatch:
    """Canonical texts of a batch and of its payloads; each payload is printed once. Raises `Unpersistable`."""
    records = tuple(
        EncodedRecord(record, canonical(record.payload.model_dump(by_alias=True), RECORD)) for record in batch.records
    )
    inner = ",".join(
        record_text(
            record_id=r.record.record_id,
            family=r.record.family,
            schema_version=r.record.schema_version,
            created_at=r.record.created_at,
            deployment_id=r.record.deployment_id,
            body=r.body,
        )
        for r in records
    )
    return EncodedBatch(batch.batch_id, records, f'{{"batchId":{canonical(batch.batch_id)},"records":[{inner}]}}')


def _batch(batch_id: str, now: int, deployment_id: str, *records: tuple[str, AnyPayload]) -> Batch:
    return Batch(
        batch_id=batch_id,
        records=tuple(
            Record(record_id=record_id, created_at=now, deployment_id=deployment_id, payload=payload)
            for record_id, payload in records
        ),
    )


def thread_created(thread_id: str, agent_id: str, *, deployment_id: str, now: int) -> Batch:
    """The first batch of a Thread."""
    return _batch(
        ids.thread_created_batch(thread_id),
        now,
        deployment_id,
        (ids.thread_created_record(thread_id), ThreadCreated(agent_id=agent_id)),
    )


def run_input(submission_id: str, value: Json, *, duration_ms: int, deployment_id: str, now: int) -> Batch:
    """An input and the start of its Run: the deadline counts from the first claim, whatever Attempts follow."""
    run = ids.run_id(submission_id)
    return _batch(
        ids.input_batch(submission_id),
        now,
        deployment_id,
        (
            ids.input_record(submission_id),
            UserInputRecorded(submission_id=submission_id, run_id=run, input=value),
        ),
        (ids.run_started_record(run), RunStarted(run_id=run, started_at=now, deadline_at=now + duration_ms)),
    )


def run_start(submission_id: str, *, duration_ms: int, deployment_id: str, now: int) -> Batch:
    """The start of a Run whose input is canonical already."""
    run = ids.run_id(submission_id)
    return _batch(
        ids.run_started_batch(run),
        now,
        deployment_id,
        (ids.run_started_record(run), RunStarted(run_id=run, started_at=now, deadline_at=now + duration_ms)),
    )


def joined_input(
    submission_id: str,
    host_submission_id: str,
    value: Json,
    kind: Literal["steering", "follow-up"],
    *,
    deployment_id: str,
    now: int,
) -> Batch:
    """A queued input that became part of another Run's conversation."""
    return _batch(
        ids.input_batch(submission_id),
        now,
        deployment_id,
        (
            ids.input_record(submission_id),
            UserInputRecorded(
                submission_id=submission_id, input_kind=kind, run_id=ids.run_id(host_submission_id), input=value
            ),
        ),
    )


def abort_requested(submission_id: str, author: str, reason: str, *, deployment_id: str, now: int) -> Batch:
    """The canonical abort."""
    return _batch(
        ids.abort_batch(submission_id),
        now,
        deployment_id,
        (
            ids.abort_record(submission_id),
            AbortRequested(submission_id=submission_id, author=author, reason=reason),
        ),
    )


def settled(
    submission_id: str,
    receipt_id: str,
    outcome: Outcome,
    *,
    run_id: str | None = None,
    result: Json = None,
    diagnostic: Diagnostic | None = None,
) -> SubmissionSettled:
    """A settlement payload with its derived identity."""
    return SubmissionSettled(
        submission_id=submission_id,
        settlement_id=ids.settlement_id(submission_id),
        receipt_id=receipt_id,
        outcome=outcome,
        run_id=run_id,
        result=result,
        diagnostic=diagnostic,
    )


def settlement(payload: SubmissionSettled, *, deployment_id: str, now: int) -> Batch:
    """The batch of a settlement: its own record and nothing else."""
    sid = payload.submission_id
    return _batch(ids.settlement_batch(sid), now, deployment_id, (ids.settlement_id(sid), payload))
