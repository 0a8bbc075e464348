"""What recovery writes for a child, and how it accounts for one, from the canonical request alone.

Rule guarded: nothing here needs the tool that asked for the child; whoever finds the request can finish what it began.
"""

from collections.abc import Callable
from dataclasses import replace

from thread_objects.contract import ids
from thread_objects.contract.messages import AdmissionFacts, ParentLink, Receipt, Submit
from thread_objects.contract.records import (
    Batch,
    Record,
    SubagentLineageRecorded,
    SubagentRequested,
    SubagentStarted,
)
from thread_objects.contract.wire import Json
from thread_objects.core.recovery.evidence import DelegationCall, Evidence
from thread_objects.core.recovery.snapshot import Snapshot

ZERO_CONSUMED: Json = {"consumed": {"inputTokens": 0, "outputTokens": 0, "toolCalls": 0, "turns": 0}}
"""The accounting of a child that never existed."""

WHOLE_CHARGED: Json = {"charged": "reservation"}
"""The accounting of a child whose usage nobody will tell any more: all that was reserved for it is spent."""


def child_submit(snapshot: Snapshot, request: SubagentRequested) -> Submit:
    """The child's admission, the same for everybody who finds the request."""
    return Submit(
        thread_id=request.child_thread_id,
        agent_id=request.target_agent_id,
        principal=request.child_principal,
        key=request.child_idempotency_key,
        input=request.child_input,
        facts=AdmissionFacts(parent=_link(snapshot, request)),
    )


def lineage_batch(snapshot: Snapshot, request: SubagentRequested, now: int, *, deployment_id: str = "") -> Batch:
    """Whose child it is, for the child's own log."""
    record_id = ids.subagent_lineage_record(request.child_thread_id)
    lineage = SubagentLineageRecorded(
        parent_link=_link(snapshot, request),
        parent_submission_id=snapshot.submission_id,
        child_definition_digests=request.target_digests,
        child_input_digest=request.child_input_digest,
        grant_digest=request.grant_digest,
    )
    return _batch(record_id, lineage, now, deployment_id)


def started_batch(
    snapshot: Snapshot, request: SubagentRequested, receipt: Receipt, now: int, *, deployment_id: str = ""
) -> Batch:
    """The child's start, for the parent's log."""
    run = ids.run_id(snapshot.submission_id)
    started = SubagentStarted(
        run_id=run,
        tool_call_id=request.tool_call_id,
        child_thread_id=receipt.thread_id,
        child_submission_id=receipt.submission_id,
        child_receipt_id=receipt.receipt_id,
        child_run_id=receipt.run_id,
    )
    return _batch(ids.subagent_started_record(run, request.tool_call_id), started, now, deployment_id)


def _link(snapshot: Snapshot, request: SubagentRequested) -> ParentLink:
    return ParentLink(submission_id=snapshot.submission_id, tool_call_id=request.tool_call_id)


def _batch(record_id: str, payload: SubagentLineageRecorded | SubagentStarted, now: int, deployment_id: str) -> Batch:
    record = Record(record_id=record_id, created_at=now, deployment_id=deployment_id, payload=payload)
    return Batch(batch_id=record_id, records=(record,))


def with_admissions(snapshot: Snapshot, evidence: Evidence, admission: Callable[[SubagentRequested], str]) -> Evidence:
    """The evidence with what is known of requested children that neither log nor row tell of.

    `admission` says of a request `admitted`, `not-admitted` or `indeterminate`; it is asked where that decides.
    """
    if not any(_unseen(call) for call in evidence.open_delegation_calls):
        return evidence
    attached = {row.call_id for row in snapshot.child_attachments}
    calls = (
        replace(call, admission=admission(call.request))
        if _unseen(call) and call.request is not None and call.call_id not in attached
        else call
        for call in evidence.open_delegation_calls
    )
    return replace(evidence, open_delegation_calls=tuple(calls))


def _unseen(call: DelegationCall) -> bool:
    return call.requested and not call.started and not call.joined and call.child_submission_id is None
