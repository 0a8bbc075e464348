"""The whole precedence, against a table written a second time from plain facts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.core.recovery import ChildAttachment, ChildReservation, Suspension, classify, tag
from thread_objects.core.recovery.decisions import DECISIONS
from thread_objects.core.recovery.evidence import WorkerCall

from .builders import ABORT, batch, decided, delegation, fact, log, open_call, pending, row

CALLS = ("none", "open", "answered")
APPROVALS = ("none", "asked", "approved", "denied", "canonical", "second asked", "denied before second")
DELEGATIONS = (
    "none",
    "open",
    "open reserved",
    "requested",
    "requested not-admitted",
    "requested not-admitted reserved",
    "requested admitted",
    "child unstarted",
    "started unknown child",
    "started at work",
    "started settled",
    "joined reserved",
    "joined released",
    "release pending",
    "orphan",
)
WAITS = ("none", "approval", "child at work", "child settled")


@dataclass(frozen=True)
class Facts:
    """One point of the product."""

    state: SubmissionState
    settlement: bool = False
    abort: bool = False
    input: bool = True
    marker: bool = True
    calls: str = "none"
    approvals: str = "none"
    has_batch: bool = False
    delegation: str = "none"
    worker: bool = False
    waits: str = "none"
    host_settled: bool = False
    linked: bool = False
    lineage: bool = False
    materialized: bool = True


LIVE = {
    "open": "ResumePendingToolBatch",
    "open reserved": "ResumePendingToolBatch",
    "requested": "AwaitChildAdmissionResolution",
    "requested not-admitted": "CompleteChildAdmission",
    "requested not-admitted reserved": "CompleteChildAdmission",
    "requested admitted": "RepairSubagentStartLink",
    "child unstarted": "RepairSubagentStartLink",
    "started unknown child": "RepairSubagentStartLink",
    "started at work": "EnsureWaitingForChild",
    "started settled": "ResumeWaitingParent",
    "joined reserved": "ApplyJoinAccounting",
    "release pending": "ApplyJoinAccounting",
    "orphan": "ReleaseOrphanChildReservation",
}
ABORTED = {
    "open reserved": "ReleaseOrphanChildReservation",
    "requested": "AwaitChildAdmissionResolution",
    "requested not-admitted reserved": "ReleaseOrphanChildReservation",
    "requested admitted": "RepairSubagentStartLink",
    "child unstarted": "RepairSubagentStartLink",
    "started unknown child": "RepairSubagentStartLink",
    "started at work": "PropagateChildAbort",
    "started settled": "ResumeWaitingParent",
    "joined reserved": "ApplyJoinAccounting",
    "release pending": "ApplyJoinAccounting",
    "orphan": "ReleaseOrphanChildReservation",
}
UNDECIDED = {"asked", "second asked"}

# (row, holds, decision): the first that holds decides.
TABLE = [
    ("1", lambda f: f.state == "settled", lambda f: "NoAction"),
    ("2", lambda f: f.settlement, lambda f: "FinalizeLedgerFromHistory"),
    ("4a", lambda f: f.state == "joining" and f.input, lambda f: "RepairJoinMarker"),
    ("4b", lambda f: f.state == "joining", lambda f: "RevertJoining"),
    ("4c", lambda f: f.state == "joined" and f.host_settled, lambda f: "SettleJoinedWithHost"),
    ("4d", lambda f: f.state == "joined", lambda f: "AwaitHostSettlement"),
    ("5", lambda f: f.abort, lambda f: ABORTED.get(f.delegation, "SettleAborted")),
    ("6", lambda f: f.state != "unknown" and f.calls != "none", lambda f: "MarkUnknown"),
    ("7a", lambda f: f.state == "unknown" and f.calls != "open", lambda f: "ApplyUnknownResolutions"),
    ("7b", lambda f: f.state == "unknown", lambda f: "AwaitUnknownResolution"),
    ("8a", lambda f: f.state == "suspended" and f.waits == "child settled", lambda f: "ResumeWaitingParent"),
    ("8b", lambda f: f.state == "suspended" and f.waits == "child at work", lambda f: "AwaitChildSettlement"),
    ("8c", lambda f: f.state == "suspended" and f.approvals not in UNDECIDED, lambda f: "ResumeSuspended"),
    ("8d", lambda f: f.state == "suspended", lambda f: "AwaitApprovalDecision"),
    ("9", lambda f: f.approvals in UNDECIDED, lambda f: "AwaitApprovalDecision"),
    ("10", lambda f: f.delegation in LIVE, lambda f: LIVE[f.delegation]),
    ("11", lambda f: f.has_batch, lambda f: "ResumePendingToolBatch"),
    ("12", lambda f: f.worker, lambda f: "ResumePendingToolBatch"),
    ("13a", lambda f: f.state == "admitted" and f.linked and not f.lineage, lambda f: "AwaitParentEstablishment"),
    ("13b", lambda f: f.state == "admitted" and f.materialized, lambda f: "RepairReadiness"),
    ("13c", lambda f: f.state == "admitted", lambda f: "CompleteMaterialization"),
    ("14a", lambda f: not f.input, lambda f: "ApplyInput"),
    ("14b", lambda f: not f.marker, lambda f: "RepairInputMarker"),
    ("14c", lambda f: True, lambda f: "ResumeFromTurnBoundary"),
]


def points() -> Iterator[Facts]:
    """Every combination that a row of that state can tell apart."""
    both = (False, True)
    for state in SubmissionState:
        variants = {
            "suspended": [{"waits": waits} for waits in WAITS],
            "joined": [{"host_settled": settled} for settled in both],
            "admitted": [
                {"linked": linked, "lineage": lineage, "materialized": materialized}
                for linked, lineage, materialized in product(both, both, both)
            ],
        }.get(state.value, [{}])
        for variant in variants:
            for settlement, abort, recorded, marker, worker in product(both, both, both, both, both):
                for calls, approvals, has_batch, child in product(CALLS, APPROVALS, both, DELEGATIONS):
                    if settlement and (calls, child) != ("open", "none"):
                        continue  # a settlement beats everything; one witness of each is enough
                    if child != "none" and variant.get("waits", "none").startswith("child"):
                        continue  # the child waited for is the delegation
                    yield Facts(
                        state,
                        settlement,
                        abort,
                        recorded,
                        marker,
                        calls,
                        approvals,
                        has_batch,
                        child,
                        worker,
                        **variant,
                    )


# (open delegation call, reservation, child attached) of each delegation fact.
_CHILD = {
    "open": (delegation(), None, None),
    "open reserved": (delegation(), "reserved", None),
    "requested": (delegation(requested=True), None, None),
    "requested not-admitted": (delegation(requested=True, admission="not-admitted"), None, None),
    "requested not-admitted reserved": (delegation(requested=True, admission="not-admitted"), "reserved", None),
    "requested admitted": (delegation(requested=True, admission="admitted"), "reserved", None),
    "child unstarted": (delegation(requested=True), "reserved", "ready"),
    "started unknown child": (delegation(requested=True, started=True), "reserved", None),
    "started at work": (delegation(requested=True, started=True), "reserved", "ready"),
    "started settled": (delegation(requested=True, started=True), "reserved", "settled"),
    "joined reserved": (delegation(requested=True, started=True, joined=True), "reserved", "settled"),
    "joined released": (delegation(requested=True, started=True, joined=True), "released", "settled"),
    "release pending": (None, "releasePending", "settled"),
    "orphan": (None, "reserved", None),
    "none": (None, None, None),
}
# (stored decisions, canonical decisions of c1 and c2, pending requests)
_ASKED = {
    "none": ((), {}, ()),
    "asked": ((), {"c1": None}, ("c1",)),
    "approved": ((decided("c1", "approved"),), {"c1": None}, ("c1",)),
    "denied": ((decided("c1", "denied"),), {"c1": None}, ("c1",)),
    "canonical": ((), {"c1": "approved"}, ()),
    "second asked": ((decided("c1", "approved"),), {"c1": None, "c2": None}, ("c1", "c2")),
    "denied before second": (
        (decided("c1", "denied"), decided("c2", "approved")),
        {"c1": None, "c2": None},
        ("c1", "c2"),
    ),
}
_OPEN = {"none": ((), ()), "open": ((open_call("o1"),), ()), "answered": ((open_call("o1"),), (fact("o1"),))}
_WAITS = {
    "none": (None, ()),
    "approval": (Suspension("ApprovalPending", ("c1",)), ()),
    "child at work": (Suspension("WaitingForChild", children=("K",)), ()),
    "child settled": (
        Suspension("WaitingForChild", children=("K",)),
        (ChildAttachment("waited", "K", "settled"),),
    ),
}


def built(f: Facts):
    """The snapshot and evidence of a point."""
    call, status, child = _CHILD[f.delegation]
    intents, canonical, requests = _ASKED[f.approvals]
    open_calls, resolutions = _OPEN[f.calls]
    waits, waited = _WAITS[f.waits]
    attachments = () if child is None else (ChildAttachment("d1", "A", child),)
    snapshot = row(
        f.state,
        abort_intent=ABORT if f.abort else None,
        input_applied=2 if f.marker else None,
        suspension=waits,
        approval_decisions=intents,
        unknown_resolutions=resolutions,
        child_reservations=() if status is None else (ChildReservation("res-1", "d1", status),),
        child_attachments=(*attachments, *waited),
        parent_linkage=("P", "c") if f.linked else None,
    )
    evidence = log(
        thread_materialized=f.materialized,
        input_recorded=f.input,
        settlement_outcome=Outcome.COMPLETED if f.settlement else None,
        open_tool_calls=open_calls,
        open_delegation_calls=() if call is None else (call,),
        open_worker_calls=(WorkerCall("w1", 1),) if f.worker else (),
        pending_batch=batch(1, 2, **canonical) if f.has_batch else None,
        approvals_pending=tuple(pending(c) for c in requests),
        host_settlement_outcome=Outcome.COMPLETED if f.host_settled else None,
        lineage_recorded=f.lineage,
    )
    return snapshot, evidence


def expected(f: Facts) -> tuple[str, str]:
    """Row and decision by the table above."""
    if f.waits == "child settled":
        # An attached child without its start record is a delegation duty of its own.
        f = replace(f, delegation="child unstarted")
    if f.approvals == "denied before second" and not f.has_batch:
        f = replace(f, approvals="approved")
    return next((name, decision(f)) for name, holds, decision in TABLE if holds(f))


def test_every_input_gets_exactly_the_decision_of_the_table():
    """Each point of the product has one decision, the one the independently written table gives; each row is used."""
    used, decisions = set(), set()
    for facts in points():
        snapshot, evidence = built(facts)
        name, decision = expected(facts)
        assert tag(classify(snapshot, evidence)) == decision, (name, facts)
        used.add(name)
        decisions.add(decision)
    assert used == {name for name, _, _ in TABLE}
    assert decisions == {kind.__name__ for kind in DECISIONS}


def test_two_delegations_are_answered_in_the_order_of_their_buckets():
    """The first bucket that is not empty decides, whichever call comes first."""
    live = [
        "ApplyJoinAccounting",
        "CompleteChildAdmission",
        "RepairSubagentStartLink",
        "AwaitChildAdmissionResolution",
        "ResumePendingToolBatch",
        "EnsureWaitingForChild",
        "ResumeWaitingParent",
        "ReleaseOrphanChildReservation",
        "ResumeFromTurnBoundary",
    ]
    aborted = [
        "AwaitChildAdmissionResolution",
        "RepairSubagentStartLink",
        "PropagateChildAbort",
        "ResumeWaitingParent",
        "ApplyJoinAccounting",
        "ReleaseOrphanChildReservation",
        "SettleAborted",
    ]
    for first, second, abort in product(DELEGATIONS, DELEGATIONS, (False, True)):
        calls, reservations, attachments = [], [], []
        for call_id, kind in (("d1", first), ("d2", second)):
            found, status, child = _CHILD[kind]
            calls += [] if found is None else [replace(found, call_id=call_id)]
            reservations += [] if status is None else [ChildReservation(f"res-{call_id}", call_id, status)]
            attachments += [] if child is None else [ChildAttachment(call_id, f"child-{call_id}", child)]
        snapshot = row(
            abort_intent=ABORT if abort else None,
            child_reservations=tuple(reservations),
            child_attachments=tuple(attachments),
        )
        order, table, otherwise = (
            (aborted, ABORTED, "SettleAborted") if abort else (live, LIVE, "ResumeFromTurnBoundary")
        )
        owed = [table.get(kind, otherwise) for kind in (first, second)]
        found = tag(classify(snapshot, log(open_delegation_calls=tuple(calls))))
        assert found == min(owed, key=order.index), (first, second, abort)
