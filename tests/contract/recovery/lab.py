"""A Thread on a real store, whose owners die where a test wants them to."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg

from activities.thread_recovery import recover_thread
from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.activities import ApplyRequest, Item
from thread_objects.contract.messages import Abort, Mutation, ResolveApproval, ResolveUnknown, Submit
from thread_objects.contract.states import CallKind, Decision, Outcome, ResolutionKind, SubmissionState, ToolClass
from thread_objects.contract.views import Recovered, Registry
from thread_objects.core.evidence import evidence_of
from thread_objects.core.recovery import Evidence, Permit, Snapshot
from thread_objects.ports import Claim, ClaimRequest, Store

THREAD = "thread-1"
LEASE_MS = 30_000


class StepClock:
    """Time that only tests move."""

    def __init__(self, at: int = 1_000_000) -> None:
        self.at = at

    def now(self) -> int:
        return self.at


def declared(
    call_id: str,
    tool_class: ToolClass = ToolClass.UNCERTAIN,
    kind: CallKind = CallKind.ORDINARY,
    *,
    approval: bool = False,
) -> r.DeclaredCall:
    """A tool call as a response declares it."""
    return r.DeclaredCall(
        tool_call_id=call_id,
        tool_name=f"tool_{call_id}",
        arguments={"of": call_id},
        arguments_digest="",
        tool_class=tool_class,
        call_kind=kind,
        approval=approval,
    )


@dataclass
class Lab:
    """One Thread of one object; every helper is one step of a life."""

    store: Store
    url: str
    clock: StepClock = field(default_factory=StepClock)
    applied: int = 0

    # --- what clients do ------------------------------------------------------------------------------------

    def apply(self, *mutations: Mutation) -> Any:
        """One batch; the answers in order."""
        self.applied += 1
        request = ApplyRequest(
            object_id=THREAD,
            batch_id=f"batch-{self.applied}",
            mark=self.applied,
            applied_through=self.applied - 1,
            items=tuple(Item(n=self.applied * 100 + n, mutation=m) for n, m in enumerate(mutations)),
        )
        answer = self.store.apply(request, worker="w", registry=Registry(), now=self.clock.now())
        for item in answer.answers:
            assert item.refusal is None, item.refusal
        return answer.answers

    def submit(self, key: str = "k1", thread: str = THREAD) -> str:
        """Admit an input; its submission id."""
        submit = Submit(thread_id=thread, agent_id="agent", principal="p", key=key, input="hi")
        return self.apply(submit)[0].receipt.submission_id

    def abort(self, sid: str) -> None:
        """Ask for an abort."""
        self.apply(Abort(thread_id=THREAD, submission_id=sid, author="operator", reason="stop"))

    def approve(self, sid: str, call_id: str, decision: str = "approved") -> None:
        """Decide an approval."""
        self.apply(
            ResolveApproval(
                thread_id=THREAD,
                submission_id=sid,
                tool_call_id=call_id,
                decision=Decision(decision),
                resolver="bob",
                reason="ok",
            )
        )

    def resolve(self, sid: str, call_id: str, kind: ResolutionKind, **more: Any) -> None:
        """Resolve an unknown outcome."""
        self.apply(
            ResolveUnknown(
                thread_id=THREAD, submission_id=sid, tool_call_id=call_id, resolution=kind, author="ann", **more
            )
        )

    # --- what a worker does ------------------------------------------------------------------------------------

    def request(self, attempt: str, ended: tuple[str, ...] = ()) -> ClaimRequest:
        """A claim request of this object."""
        return ClaimRequest(THREAD, "producer", attempt, ended)

    def claim(self, attempt: str = "attempt-1", ended: tuple[str, ...] = ()) -> Claim:
        """Claim the head and apply its input."""
        claim = self.store.begin(
            self.request(attempt, ended),
            run_duration_ms=lambda _: 3_600_000,
            deployment_id="",
            now=self.clock.now(),
        )
        assert claim is not None
        return claim

    def append(self, claim: Claim, batch_id: str, *found: tuple[str, r.AnyPayload]) -> Claim:
        """Append under a claim."""
        batch = r.Batch(
            batch_id=batch_id,
            records=tuple(
                r.Record(record_id=record_id, created_at=self.clock.now(), payload=payload)
                for record_id, payload in found
            ),
        )
        return claim.at(self.store.append(claim, batch, now=self.clock.now()))

    def respond(self, claim: Claim, *calls: r.DeclaredCall, turn: int = 1) -> Claim:
        """Commit a response that declares calls."""
        run = ids.run_id(claim.submission_id)
        payload = r.ModelResponseRecorded(
            run_id=run, turn_id=ids.turn_id(run, turn), turn=turn, messages=[], messages_digest="", calls=calls
        )
        return self.append(claim, ids.response_batch(run, turn), (ids.response_record(run, turn), payload))

    def result(self, claim: Claim, call_id: str, turn: int = 1) -> Claim:
        """Commit a call's result."""
        run = ids.run_id(claim.submission_id)
        payload = r.ToolCallSettled(run_id=run, turn=turn, tool_call_id=call_id, tool_name="t", result=1)
        return self.append(
            claim, ids.results_batch(run, turn, call_id), (ids.tool_settled_record(run, turn, call_id), payload)
        )

    def ask(self, claim: Claim, call_id: str, turn: int = 1) -> Claim:
        """Commit an approval request without suspending."""
        run = ids.run_id(claim.submission_id)
        payload = r.ToolApprovalRequested(
            run_id=run,
            turn_id=ids.turn_id(run, turn),
            turn=turn,
            tool_call_id=call_id,
            tool_name="t",
            arguments_digest="",
        )
        return self.append(
            claim,
            ids.approval_request_batch(run, turn, call_id),
            (ids.approval_request_record(run, turn, call_id), payload),
        )

    def suspend(self, claim: Claim, *call_ids: str) -> None:
        """Suspend until these are decided."""
        suspended, _, _ = self.store.suspend(claim, None, call_ids, now=self.clock.now())
        assert suspended

    def settle(self, claim: Claim) -> None:
        """Complete the Run."""
        settled = r.SubmissionSettled(
            submission_id=claim.submission_id,
            settlement_id=ids.settlement_id(claim.submission_id),
            receipt_id=claim.receipt_id,
            outcome=Outcome.COMPLETED,
            run_id=ids.run_id(claim.submission_id),
            result="done",
        )
        self.store.finish(claim, [], settled, now=self.clock.now())

    def lost(self, *calls: r.DeclaredCall, attempt: str = "attempt-1") -> str:
        """A Submission whose worker died after declaring these calls. The lease is over."""
        sid = self.submit()
        self.respond(self.claim(attempt), *calls)
        self.pass_lease()
        return sid

    def pass_lease(self) -> None:
        """Let every lease expire."""
        self.clock.at += LEASE_MS + 1

    def tear(self, statement: str, *values: Any) -> None:
        """Leave the database as only a crash of another version, or a damaged disk, could."""
        if self.url.startswith("sqlite:///"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as raw, raw:
                raw.execute(statement, values)
        else:
            with psycopg.connect(self.url) as raw:
                raw.execute(statement.replace("?", "%s"), values)

    # --- recovery -----------------------------------------------------------------------------------------------

    def recover(self, *, attempt: str = "recovery-1", **more: Any) -> Recovered:
        """Recover the Thread."""
        return recover_thread(
            more.pop("store", self.store),
            THREAD,
            producer_id="producer",
            attempt_id=attempt,
            clock=self.clock,
            **more,
        )

    def recover_other(self, thread: str, *, attempt: str = "recovery-1") -> Recovered:
        """Recover another Thread."""
        return recover_thread(self.store, thread, producer_id="producer", attempt_id=attempt, clock=self.clock)

    def reconciled(self, answer: Any, permits: set[Permit] | None = None, **more: Any) -> Recovered:
        """Recover with one reconciler for every tool: a verdict, or something to call."""
        reconciler: Callable[[Any], Any] = answer if callable(answer) else lambda _call: answer
        return self.recover(reconcilers=lambda _agent, _tool: reconciler, permits=permits, **more)

    # --- what is there ------------------------------------------------------------------------------------------

    def snapshot(self, sid: str) -> Snapshot:
        """The row."""
        found = self.store.snapshot(sid)
        assert found is not None
        return found

    def state(self, sid: str) -> SubmissionState:
        """The row's state."""
        return self.snapshot(sid).state

    def evidence(self, sid: str) -> Evidence:
        """The log's side of the row."""
        return evidence_of(self.snapshot(sid), self.store.run_records(sid))

    def kinds(self, sid: str) -> list[str]:
        """The kinds of the records of a Submission and its Run, in order."""
        return [record.kind for record in self.store.run_records(sid)]

    def payloads(self, sid: str, kind: str) -> list[dict[str, Any]]:
        """The payloads of one kind."""
        return [record.payload for record in self.store.run_records(sid) if record.kind == kind]

    def log_length(self) -> int:
        """How long the Thread's log is."""
        return self.store.tail(THREAD).sequence
