"""The classifier: (snapshot, evidence) -> exactly one decision. No clock, no lease, no network.

Precedence; the first row that matches decides:

 1   settled                                          NoAction
 2   a settlement is canonical                        FinalizeLedgerFromHistory
 3   (rows of the older settlement reservation: never produced)
 4a  joining, input canonical                         RepairJoinMarker
 4b  joining, input absent                            RevertJoining
 4c  joined, host settled                             SettleJoinedWithHost
 4d  joined, host not settled                         AwaitHostSettlement
 5   abort intent                                     children first (delegation.py), else SettleAborted
 6   not unknown, ordinary calls open                 MarkUnknown
 7a  unknown, every open call answered                ApplyUnknownResolutions
 7b  unknown otherwise                                AwaitUnknownResolution
 8a  suspended on children, all of them terminal      ResumeWaitingParent
 8b  suspended on children, one of them not           AwaitChildSettlement
 8c  suspended, nothing to decide                     ResumeSuspended
 8d  suspended, something to decide                   AwaitApprovalDecision
 9   not suspended, something to decide               AwaitApprovalDecision
10   delegation duties                                delegation.py
11   a declared batch without all its results         ResumePendingToolBatch
12   orchestration calls open                         ResumePendingToolBatch
13a  admitted, linked, lineage missing                AwaitParentEstablishment
13b  admitted, log exists                             RepairReadiness
13c  admitted, no log                                 CompleteMaterialization
14a  input not canonical                              ApplyInput
14b  input canonical, row not marked                  RepairInputMarker
14c  otherwise                                        ResumeFromTurnBoundary

A canonical settlement beats open calls, aborts and every marker. The joined side beats an abort: consumed
input belongs to its host. An abort beats uncertainty: nothing is replayed, the evidence stays.
"""

from thread_objects.contract import ids
from thread_objects.contract.states import SubmissionState
from thread_objects.core.recovery.decisions import (
    ApplyInput,
    ApplyUnknownResolutions,
    AwaitApprovalDecision,
    AwaitChildSettlement,
    AwaitHostSettlement,
    AwaitParentEstablishment,
    AwaitUnknownResolution,
    CompleteMaterialization,
    Decision,
    FinalizeLedgerFromHistory,
    MarkUnknown,
    NoAction,
    RepairInputMarker,
    RepairJoinMarker,
    RepairReadiness,
    ResumeFromTurnBoundary,
    ResumePendingToolBatch,
    ResumeSuspended,
    ResumeWaitingParent,
    RevertJoining,
    SettleAborted,
    SettleJoinedWithHost,
)
from thread_objects.core.recovery.delegation import abort_duty, is_terminal, live_duty
from thread_objects.core.recovery.evidence import Evidence
from thread_objects.core.recovery.intents import covered, undecided
from thread_objects.core.recovery.snapshot import Snapshot

WAITING_FOR_CHILD = "WaitingForChild"
APPROVAL_PENDING = "ApprovalPending"


def classify(snapshot: Snapshot, evidence: Evidence) -> Decision:
    """The one decision for this row. The same pair always yields the same decision, whoever owns the row."""
    for row in _ROWS:
        decision = row(snapshot, evidence)
        if decision is not None:
            return decision
    return _input_rows(snapshot, evidence)


def _terminal_rows(snapshot: Snapshot, evidence: Evidence) -> Decision | None:
    if snapshot.state is SubmissionState.SETTLED:
        return NoAction()
    if evidence.settlement_outcome is not None:
        return FinalizeLedgerFromHistory(ids.settlement_id(snapshot.submission_id), evidence.settlement_outcome)
    return None


def _joined_rows(snapshot: Snapshot, evidence: Evidence) -> Decision | None:
    if snapshot.state is SubmissionState.JOINING:
        return RepairJoinMarker() if evidence.input_recorded else RevertJoining()
    if snapshot.state is SubmissionState.JOINED:
        outcome = evidence.host_settlement_outcome
        return AwaitHostSettlement() if outcome is None else SettleJoinedWithHost(outcome)
    return None


def _abort_rows(snapshot: Snapshot, evidence: Evidence) -> Decision | None:
    if snapshot.abort_intent is None:
        return None
    return abort_duty(snapshot, evidence) or SettleAborted()


def _uncertainty_rows(snapshot: Snapshot, evidence: Evidence) -> Decision | None:
    if snapshot.state is SubmissionState.UNKNOWN:
        return ApplyUnknownResolutions() if covered(snapshot, evidence) else AwaitUnknownResolution()
    calls = evidence.ordinary_open_calls()
    return MarkUnknown(calls) if calls else None


def _suspension_rows(snapshot: Snapshot, evidence: Evidence) -> Decision | None:
    suspended = snapshot.state is SubmissionState.SUSPENDED
    waits = snapshot.suspension
    if suspended and waits is not None and waits.reason == WAITING_FOR_CHILD:
        terminal = {row.child_submission_id for row in snapshot.child_attachments if is_terminal(row)}
        all_terminal = terminal.issuperset(waits.children)
        return ResumeWaitingParent(waits.children) if all_terminal else AwaitChildSettlement()
    call_id = undecided(snapshot, evidence)
    if call_id is not None:
        return AwaitApprovalDecision(call_id, suspended)
    return ResumeSuspended() if suspended else None


def _batch_rows(_: Snapshot, evidence: Evidence) -> Decision | None:
    if evidence.pending_batch is not None:
        return ResumePendingToolBatch(evidence.pending_batch.turn)
    if evidence.open_worker_calls:
        return ResumePendingToolBatch(evidence.open_worker_calls[0].turn)
    return None


def _admitted_rows(snapshot: Snapshot, evidence: Evidence) -> Decision | None:
    if snapshot.state is not SubmissionState.ADMITTED:
        return None
    if snapshot.parent_linkage is not None and not evidence.lineage_recorded:
        return AwaitParentEstablishment(*snapshot.parent_linkage)
    return RepairReadiness() if evidence.thread_materialized else CompleteMaterialization()


def _input_rows(snapshot: Snapshot, evidence: Evidence) -> Decision:
    if not evidence.input_recorded:
        return ApplyInput()
    return RepairInputMarker() if snapshot.input_applied is None else ResumeFromTurnBoundary()


_ROWS = (
    _terminal_rows,
    _joined_rows,
    _abort_rows,
    _uncertainty_rows,
    _suspension_rows,
    live_duty,
    _batch_rows,
    _admitted_rows,
)
