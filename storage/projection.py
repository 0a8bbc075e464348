"""What the ledger learns from an append: approval requests and decisions, unknown calls and their closure.

Rule guarded: the rows follow the log in the same transaction, so they can always be rebuilt from it.
"""

from collections.abc import Sequence

from thread_objects.contract.records import (
    ToolApprovalDecided,
    ToolApprovalRequested,
    ToolCallResolved,
    ToolCallSettled,
    ToolCallUnknown,
)
from thread_objects.contract.states import Resolution
from thread_objects.contract.sweeps import WorkOwner
from thread_objects.core.batches import EncodedBatch, EncodedRecord

from . import work
from .engine import Params, Transaction

_CLOSING = {Resolution.COMPLETED_WITH_RESULT, Resolution.FAILED_WITH_ERROR}


def follow(tx: Transaction, submission_id: str, encoded: Sequence[EncodedBatch], first_sequence: int) -> None:
    """Project the batches that were appended from this sequence on."""
    closed: list[Params] = []
    sequence = first_sequence
    for batch in encoded:
        for entry in batch.records:
            payload = entry.record.payload
            if isinstance(payload, (ToolCallSettled, ToolCallResolved)):
                if isinstance(payload, ToolCallSettled) or payload.resolution in _CLOSING:
                    closed.append(
                        {
                            "submission_id": submission_id,
                            "tool_call_id": payload.tool_call_id,
                            "sequence": sequence,
                        }
                    )
            elif isinstance(payload, ToolApprovalRequested):
                _requested(tx, submission_id, entry, payload)
            elif isinstance(payload, ToolApprovalDecided):
                _decided(tx, submission_id, entry, payload)
            elif isinstance(payload, ToolCallUnknown):
                _lost(tx, submission_id, payload, entry.record.created_at)
            sequence += 1
    if closed and _any_unknown(tx, submission_id):
        work.done(tx, submission_id, [str(call["tool_call_id"]) for call in closed])
        tx.many(
            "UPDATE unknown_calls SET closed_at = :sequence WHERE submission_id = :submission_id"
            " AND tool_call_id = :tool_call_id AND closed_at IS NULL",
            closed,
        )


def mark(tx: Transaction, submission_id: str, tool_call_id: str, tool_name: str, turn: int, now: int) -> None:
    """An unknown call; marking it again changes nothing."""
    marked = tx.run(
        "INSERT INTO unknown_calls (submission_id, tool_call_id, turn, tool_name, marked_at)"
        " VALUES (:submission_id, :tool_call_id, :turn, :tool_name, :now) ON CONFLICT DO NOTHING",
        {
            "submission_id": submission_id,
            "tool_call_id": tool_call_id,
            "turn": turn,
            "tool_name": tool_name,
            "now": now,
        },
    )
    if marked:
        work.owe(tx, WorkOwner.OPERATION, submission_id, tool_call_id)


def _lost(tx: Transaction, submission_id: str, payload: ToolCallUnknown, now: int) -> None:
    """A call that may have happened. Stated anew, it asks anew: what was said of an earlier loss is used up."""
    work.owe(tx, WorkOwner.OPERATION, submission_id, payload.tool_call_id)
    tx.run(
        "DELETE FROM unknown_resolutions WHERE submission_id = :submission_id AND tool_call_id = :tool_call_id",
        {"submission_id": submission_id, "tool_call_id": payload.tool_call_id},
    )
    tx.run(
        "INSERT INTO unknown_calls (submission_id, tool_call_id, turn, tool_name, marked_at)"
        " VALUES (:submission_id, :tool_call_id, :turn, :tool_name, :now) ON CONFLICT (submission_id, tool_call_id)"
        " DO UPDATE SET turn = :turn, tool_name = :tool_name, marked_at = :now, closed_at = NULL",
        {
            "submission_id": submission_id,
            "tool_call_id": payload.tool_call_id,
            "turn": payload.turn,
            "tool_name": payload.tool_name,
            "now": now,
        },
    )


def _any_unknown(tx: Transaction, submission_id: str) -> bool:
    row = tx.one(
        "SELECT 1 FROM unknown_calls WHERE submission_id = :submission_id LIMIT 1",
        {"submission_id": submission_id},
    )
    return row is not None


def _requested(tx: Transaction, submission_id: str, entry: EncodedRecord, payload: ToolApprovalRequested) -> None:
    # The same call id in a later Turn is another question: the earlier answer is canonical and does not count.
    tx.run(
        "INSERT INTO approvals (submission_id, tool_call_id, turn, tool_name, arguments_digest, requested_at)"
        " VALUES (:submission_id, :tool_call_id, :turn, :tool_name, :digest, :now)"
        " ON CONFLICT (submission_id, tool_call_id) DO UPDATE SET turn = :turn, tool_name = :tool_name,"
        " arguments_digest = :digest, requested_at = :now, decision = NULL, resolver = NULL, reason = NULL,"
        " decided_at = NULL, decided_by = NULL WHERE approvals.turn < :turn",
        {
            "submission_id": submission_id,
            "tool_call_id": payload.tool_call_id,
            "turn": payload.turn,
            "tool_name": payload.tool_name,
            "digest": payload.arguments_digest,
            "now": entry.record.created_at,
        },
    )


def _decided(tx: Transaction, submission_id: str, entry: EncodedRecord, payload: ToolApprovalDecided) -> None:
    # A stored intent keeps its resolver and time; the canonical decision only repeats it.
    tx.run(
        "UPDATE approvals SET decision = :decision, resolver = :resolver, reason = :reason, decided_at = :now"
        " WHERE submission_id = :submission_id AND tool_call_id = :tool_call_id AND decision IS NULL",
        {
            "submission_id": submission_id,
            "tool_call_id": payload.tool_call_id,
            "decision": payload.decision.value,
            "resolver": payload.resolver,
            "reason": payload.reason,
            "now": entry.record.created_at,
        },
    )
