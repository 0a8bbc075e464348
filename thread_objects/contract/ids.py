"""Identities. Derived ids are pure functions of their inputs, so that a replay collides on purpose."""

import hashlib
import json
from typing import NewType

ThreadId = NewType("ThreadId", str)
ObjectId = NewType("ObjectId", str)
SubmissionId = NewType("SubmissionId", str)
ReceiptId = NewType("ReceiptId", str)
RunId = NewType("RunId", str)
AttemptId = NewType("AttemptId", str)
OwnershipToken = NewType("OwnershipToken", str)
AgentId = NewType("AgentId", str)
BatchId = NewType("BatchId", str)
RecordId = NewType("RecordId", str)


def _digest(*parts: str) -> str:
    # A JSON list keeps the parts apart: ("a", "bc") and ("ab", "c") must not collide.
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()


def submission_id(thread_id: str, principal: str, key: str) -> SubmissionId:
    """The Submission of (thread, principal, key): known to the sender before the server has answered."""
    return SubmissionId("sub-" + _digest("submission", thread_id, principal, key)[:40])


def receipt_id(thread_id: str, principal: str, key: str) -> ReceiptId:
    """The Receipt of (thread, principal, key)."""
    return ReceiptId("rcp-" + _digest("receipt", thread_id, principal, key)[:40])


def run_id(sid: str) -> RunId:
    """The Run of a Submission."""
    return RunId(f"run:{sid}")


def turn_id(run: str, turn: int) -> str:
    """A Turn of a Run; turns count from 1 across Attempts."""
    return f"turn:{run}:{turn}"


def input_record(sid: str) -> RecordId:
    """The canonical input record of a Submission."""
    return RecordId(f"input:{sid}")


def input_batch(sid: str) -> BatchId:
    """The batch that carries the input record."""
    return BatchId(f"submission-input:{sid}")


def settlement_id(sid: str) -> RecordId:
    """The settlement's id, which is also its record's."""
    return RecordId(f"settlement:{sid}")


def settlement_batch(sid: str) -> BatchId:
    """The batch that carries the settlement and nothing else."""
    return BatchId(f"submission-settlement:{sid}")


def abort_record(sid: str) -> RecordId:
    """The canonical abort record."""
    return RecordId(f"abort:{sid}")


def abort_batch(sid: str) -> BatchId:
    """The batch that carries the abort record."""
    return BatchId(f"submission-abort:{sid}")


def thread_created_record(thread: str) -> RecordId:
    """The first record of a Thread."""
    return RecordId(f"thread-created:{thread}")


def thread_created_batch(thread: str) -> BatchId:
    """The first batch of a Thread."""
    return BatchId(f"thread-created:{thread}")


def turn_batch(run: str, turn: int) -> BatchId:
    """A whole Turn in one batch."""
    return BatchId(f"turn:{run}:{turn}")


def response_batch(run: str, turn: int) -> BatchId:
    """The model response of a Turn."""
    return BatchId(f"turn-response:{run}:{turn}")


def results_batch(run: str, turn: int, call: str | None = None) -> BatchId:
    """The results of a Turn's tool batch, or of one call of it."""
    return BatchId(f"turn-results:{run}:{turn}" + (f":{call}" if call is not None else ""))


def response_record(run: str, turn: int) -> RecordId:
    """The model response record of a Turn."""
    return RecordId(f"model-response:{run}:{turn}")


def run_completed_record(run: str) -> RecordId:
    """The record that fixes a Run's output."""
    return RecordId(f"run-completed:{run}")


def run_started_record(run: str) -> RecordId:
    """The record that fixes a Run's start time and deadline."""
    return RecordId(f"run-started:{run}")


def tool_settled_record(run: str, turn: int, call: str) -> RecordId:
    """The result of a tool call."""
    return RecordId(f"tool-settled:{run}:{turn}:{call}")


def _numbered(form: str, earlier: int) -> str:
    # A call that was permitted to run again may be lost again. The first identity is the contract's; later rounds
    # are numbered behind a separator of their own, since ids are never used twice.
    return f"{form}#{earlier + 1}" if earlier else form


def tool_unknown_record(run: str, turn: int, call: str, earlier: int = 0) -> RecordId:
    """The statement that a tool call may have happened; `earlier` such statements exist for this call."""
    return RecordId(_numbered(f"tool-unknown:{run}:{turn}:{call}", earlier))


def tool_resolved_record(run: str, turn: int, call: str, earlier: int = 0) -> RecordId:
    """The closure of an Unknown Outcome; `earlier` resolutions of this call exist."""
    return RecordId(_numbered(f"tool-resolved:{run}:{turn}:{call}", earlier))


def unknown_batch(sid: str, turn: int, earlier: int = 0) -> BatchId:
    """The batch of the unknown records of one Turn; `earlier` such batches exist."""
    return BatchId(_numbered(f"mark-unknown:{sid}:{turn}", earlier))


def resolution_batch(sid: str, call: str, earlier: int = 0) -> BatchId:
    """The batch that makes a resolution canonical; `earlier` ones exist for this call id in the Run."""
    return BatchId(_numbered(f"resolve:{sid}:{call}", earlier))


def approval_request_record(run: str, turn: int, call: str) -> RecordId:
    """The request for an approval."""
    return RecordId(f"approval-request:{run}:{turn}:{call}")


def approval_request_batch(run: str, turn: int, call: str) -> BatchId:
    """The batch of one approval request.

    The contract names `turn-approvals:{runId}:{turn}`; approvals are asked one by one, so each needs a batch of
    its own and the call is appended.
    """
    return BatchId(f"turn-approvals:{run}:{turn}:{call}")


def approval_decision_record(run: str, turn: int, call: str) -> RecordId:
    """The canonical decision on an approval."""
    return RecordId(f"approval-decision:{run}:{turn}:{call}")


def approval_decision_batch(sid: str, call: str, earlier: int = 0) -> BatchId:
    """The batch of the canonical decision; `earlier` decisions on this call id exist in the Run."""
    return BatchId(_numbered(f"approval-decision:{sid}:{call}", earlier))


def step_record(run: str, call: str, name: str) -> RecordId:
    """A durable tool's Step: a versioned tuple, so that separators inside names cannot make two Steps collide."""
    return RecordId("step:" + json.dumps([1, run, call, name], separators=(",", ":"), ensure_ascii=True))


def interrupted_record(run: str, epoch: int) -> RecordId:
    """The audit that a Turn's owner died before its response was recorded."""
    return RecordId(f"interrupted:{run}:{epoch}")


def repair_record(sid: str, decision: str) -> RecordId:
    """The audit of a repair."""
    return RecordId(f"repair:{sid}:{decision}")


def run_started_batch(run: str) -> BatchId:
    """The start of a Run whose input is canonical already: it was joined to another Run and came back."""
    return BatchId(f"run-started:{run}")


def subagent_requested_record(run: str, call: str) -> RecordId:
    """The request for a child, in the parent's log; its batch has the same id."""
    return RecordId(f"subagent-requested:{run}:{call}")


def subagent_started_record(run: str, call: str) -> RecordId:
    """The child's start, in the parent's log; its batch has the same id."""
    return RecordId(f"subagent-started:{run}:{call}")


def subagent_join_batch(run: str, call: str) -> BatchId:
    """The batch that joins a child's outcome into its call."""
    return BatchId(f"subagent-join:{run}:{call}")


def subagent_joined_record(run: str, call: str) -> RecordId:
    """The joined outcome, in the parent's log."""
    return RecordId(f"subagent-joined:{run}:{call}")


def subagent_lineage_record(child_thread: str) -> RecordId:
    """Where a child came from, in its own log; its batch has the same id."""
    return RecordId(f"subagent-lineage:{child_thread}")


def child_thread_id(parent_sid: str, call: str) -> ThreadId:
    """The Thread of the child that answers a delegation call."""
    return ThreadId(f"subagent:{parent_sid}:{call}")


def child_key(parent_run: str, call: str) -> str:
    """The idempotency key of a child's admission."""
    return f"subagent:{parent_run}:{call}"


def child_reservation_id(run: str, call: str) -> str:
    """The reservation of a child's budget."""
    return f"child-reservation:{run}:{call}"


def producer_id(prefix: str, object_id: str) -> str:
    """The producer id of a Thread Object."""
    return f"{prefix}:{object_id}"


def alarm_delivery_key(thread_id: str, tag: str, alarm_id: str, run_at: int, payload_digest: str) -> str:
    """What every delivery of one alarm's content carries: a handler that has seen it has nothing left to do."""
    return "alarm-" + _digest("alarm", thread_id, tag, alarm_id, str(run_at), payload_digest)[:40]
