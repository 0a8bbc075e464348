"""The classifier's cases, one by one."""

from dataclasses import replace

import pytest

from thread_objects.contract.states import Outcome, ResolutionKind
from thread_objects.core.recovery import (
    ChildAttachment,
    ChildReservation,
    Ownership,
    Suspension,
    classify,
)
from thread_objects.core.recovery import decisions as d

from .builders import ABORT, SID, batch, decided, delegation, fact, intent, log, open_call, pending, row

C1, C2 = open_call("c1"), open_call("c2")
SETTLEMENT = f"settlement:{SID}"
CHILDREN = Suspension("WaitingForChild", children=("A", "B"))


def reserved(status="reserved", child=None):
    return ChildReservation("res-1", "d1", status, child)


def attached(child="A", state="ready", outcome=None, call_id="d1"):
    return ChildAttachment(call_id, child, state, outcome)


CASES = {
    "REC-001": (row("settled"), log(open_tool_calls=(C1,)), d.NoAction()),
    "REC-002": (
        row("input-applied", abort_intent=ABORT),
        log(settlement_outcome=Outcome.COMPLETED, open_tool_calls=(C1,)),
        d.FinalizeLedgerFromHistory(SETTLEMENT, Outcome.COMPLETED),
    ),
    "REC-004": (
        row("joining"),
        log(settlement_outcome=Outcome.FAILED),
        d.FinalizeLedgerFromHistory(SETTLEMENT, Outcome.FAILED),
    ),
    "REC-005": (row("joining"), log(input_recorded=False), d.RevertJoining()),
    "joining with its input": (row("joining"), log(), d.RepairJoinMarker()),
    "REC-007": (row("joining", abort_intent=ABORT), log(input_recorded=False), d.RevertJoining()),
    "REC-008": (
        row("joined"),
        log(host_settlement_outcome=Outcome.COMPLETED),
        d.SettleJoinedWithHost(Outcome.COMPLETED),
    ),
    "joined, host at work": (row("joined", abort_intent=ABORT), log(), d.AwaitHostSettlement()),
    "REC-010": (row("ready", abort_intent=ABORT, queue_sequence=3), log(input_recorded=False), d.SettleAborted()),
    "REC-011": (row(abort_intent=ABORT), log(open_tool_calls=(C1, C2)), d.SettleAborted()),
    "REC-012": (row("unknown", abort_intent=ABORT), log(open_tool_calls=(C1,)), d.SettleAborted()),
    "REC-014": (row(), log(open_tool_calls=(C1, C2)), d.MarkUnknown((C1, C2))),
    "REC-015": (
        row("ready"),
        log(open_tool_calls=(replace(C1, name="delegate_x"),)),
        d.MarkUnknown((replace(C1, name="delegate_x"),)),
    ),
    "REC-017": (
        row("unknown", unknown_resolutions=(fact("c1"),)),
        log(open_tool_calls=(C1, C2)),
        d.AwaitUnknownResolution(),
    ),
    "REC-018": (
        row("unknown", unknown_resolutions=(fact("c1"), intent("c2", ResolutionKind.SAFE_TO_RETRY))),
        log(open_tool_calls=(C1, C2)),
        d.ApplyUnknownResolutions(),
    ),
    "unknown with nothing open": (row("unknown"), log(), d.ApplyUnknownResolutions()),
    "an abort resolution covers nothing": (
        row("unknown", unknown_resolutions=(intent("c1", ResolutionKind.ABORT_SUBMISSION),)),
        log(open_tool_calls=(C1,)),
        d.AwaitUnknownResolution(),
    ),
    "REC-020": (
        row(
            "suspended", suspension=CHILDREN, child_attachments=(attached(state="settled"), attached("B", call_id="d2"))
        ),
        log(),
        d.AwaitChildSettlement(),
    ),
    "REC-021": (
        row(
            "suspended",
            suspension=CHILDREN,
            child_attachments=(attached(state="settled"), attached("B", outcome="completed", call_id="d2")),
        ),
        log(),
        d.ResumeWaitingParent(("A", "B")),
    ),
    "REC-022": (
        row("suspended", suspension=Suspension("ApprovalPending", ("c1",))),
        log(pending_batch=batch(c1=None), approvals_pending=(pending("c1"),)),
        d.AwaitApprovalDecision("c1", suspended=True),
    ),
    "suspended, decided by intent": (
        row(
            "suspended",
            suspension=Suspension("ApprovalPending", ("c1",)),
            approval_decisions=(decided("c1", "approved"),),
        ),
        log(pending_batch=batch(c1=None), approvals_pending=(pending("c1"),)),
        d.ResumeSuspended(),
    ),
    "REC-024": (row("suspended"), log(), d.ResumeSuspended()),
    "REC-025": (row(), log(approvals_pending=(pending("c1"),)), d.AwaitApprovalDecision("c1", suspended=False)),
    "REC-027": (
        row(child_reservations=(reserved(),)),
        log(open_delegation_calls=(delegation(joined=True),)),
        d.ApplyJoinAccounting("res-1", "d1"),
    ),
    "REC-028": (
        row(child_reservations=(reserved("released"),)),
        log(open_delegation_calls=(delegation(joined=True),)),
        d.ResumeFromTurnBoundary(),
    ),
    "REC-030": (row(), log(open_delegation_calls=(delegation(requested=True),)), d.AwaitChildAdmissionResolution("d1")),
    "REC-031": (
        row(),
        log(open_delegation_calls=(delegation(requested=True, admission="indeterminate"),)),
        d.AwaitChildAdmissionResolution("d1"),
    ),
    "REC-032": (
        row(),
        log(open_delegation_calls=(delegation(requested=True, admission="admitted"),)),
        d.RepairSubagentStartLink("d1"),
    ),
    "not admitted": (
        row(),
        log(open_delegation_calls=(delegation(requested=True, admission="not-admitted"),)),
        d.CompleteChildAdmission("d1"),
    ),
    "REC-034": (
        row(child_attachments=(attached(),)),
        log(open_delegation_calls=(delegation(requested=True, started=True),)),
        d.EnsureWaitingForChild(("A",)),
    ),
    "REC-035": (
        row(child_attachments=(attached(), attached("B", "settled", call_id="d2"))),
        log(open_delegation_calls=(delegation(started=True), delegation("d2", started=True))),
        d.EnsureWaitingForChild(("A", "B")),
    ),
    "terminal and not joined": (
        row(child_attachments=(attached(state="settled"),)),
        log(open_delegation_calls=(delegation(started=True),)),
        d.ResumeWaitingParent(("A",)),
    ),
    "REC-037": (row(child_reservations=(reserved(),)), log(), d.ReleaseOrphanChildReservation(("res-1",))),
    "REC-038": (
        row(child_reservations=(reserved(),)),
        log(open_delegation_calls=(delegation(turn=4),)),
        d.ResumePendingToolBatch(4),
    ),
    "REC-040": (
        row(),
        log(open_delegation_calls=(delegation(turn=2), delegation("d2", requested=True))),
        d.AwaitChildAdmissionResolution("d2"),
    ),
    "REC-041": (
        row(abort_intent=ABORT, child_reservations=(reserved(),)),
        log(open_delegation_calls=(delegation(requested=True, admission="not-admitted"),)),
        d.ReleaseOrphanChildReservation(("res-1",)),
    ),
    "REC-042": (
        row(abort_intent=ABORT),
        log(open_delegation_calls=(delegation(requested=True),)),
        d.AwaitChildAdmissionResolution("d1"),
    ),
    "REC-044": (
        row(
            abort_intent=ABORT,
            child_attachments=(attached(),),
            child_reservations=(ChildReservation("res-2", "d2", "releasePending"),),
        ),
        log(open_delegation_calls=(delegation(started=True),)),
        d.PropagateChildAbort(("A",)),
    ),
    "REC-045": (
        row(abort_intent=ABORT, child_attachments=(attached(state="settled"),)),
        log(open_delegation_calls=(delegation(started=True),)),
        d.ResumeWaitingParent(("A",)),
    ),
    "REC-047": (row(abort_intent=ABORT), log(open_delegation_calls=(delegation(),)), d.SettleAborted()),
    "REC-048": (row(), log(pending_batch=batch(3, 2)), d.ResumePendingToolBatch(3)),
    "REC-050": (
        row("admitted", parent_linkage=("P", "c")),
        log(input_recorded=False),
        d.AwaitParentEstablishment("P", "c"),
    ),
    "REC-051": (
        row("admitted", parent_linkage=("P", "c")),
        log(input_recorded=False, lineage_recorded=True),
        d.RepairReadiness(),
    ),
    "REC-052": (row("admitted"), log(thread_materialized=False, input_recorded=False), d.CompleteMaterialization()),
    "REC-054": (row("ready"), log(input_recorded=False), d.ApplyInput()),
    "REC-055": (row("ready"), log(), d.RepairInputMarker()),
    "a complete turn": (row(), log(), d.ResumeFromTurnBoundary()),
}


@pytest.mark.parametrize(("snapshot", "evidence", "decision"), CASES.values(), ids=CASES)
def test_case_has_its_one_decision(snapshot, evidence, decision):
    """REC-001, REC-002, REC-004, REC-005, REC-007, REC-008, REC-010, REC-011, REC-012, REC-014, REC-015, REC-017,
    REC-018, REC-020, REC-021, REC-022, REC-024, REC-025, REC-027, REC-028, REC-030, REC-031, REC-032, REC-034,
    REC-035, REC-037, REC-038, REC-040, REC-041, REC-042, REC-044, REC-045, REC-047, REC-048, REC-050, REC-051,
    REC-052, REC-054, REC-055.
    """
    assert classify(snapshot, evidence) == decision


@pytest.mark.parametrize(("snapshot", "evidence", "decision"), CASES.values(), ids=CASES)
def test_a_live_lease_changes_no_decision(snapshot, evidence, decision):
    """REC-057: liveness is the claim's business."""
    owned = replace(snapshot, ownership=Ownership("attempt-1", "producer", 7, 10**13))
    assert classify(owned, evidence) == decision
