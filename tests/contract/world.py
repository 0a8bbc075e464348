"""A store under test, with short ways to say who does what when. Nothing here decides anything."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.store import SqlStore
from thread_objects.contract import ids
from thread_objects.contract.activities import ApplyAnswer, ApplyRequest, Item, ItemAnswer
from thread_objects.contract.messages import (
    Abort,
    AdmissionFacts,
    Diagnostic,
    Mutation,
    Receipt,
    ResolveApproval,
    ResolveUnknown,
    Settlement,
    Submit,
)
from thread_objects.contract.records import (
    AnyPayload,
    Batch,
    DeclaredCall,
    ModelResponseRecorded,
    Record,
    RunCompleted,
    SubmissionSettled,
    ToolApprovalDecided,
    ToolApprovalRequested,
    ToolCallSettled,
    ToolCallUnknown,
)
from thread_objects.contract.states import Decision, Outcome, ResolutionKind, ToolClass
from thread_objects.contract.views import Registry
from thread_objects.core import batches
from thread_objects.ports import Claim, ClaimRequest

RUN_MS = 3_600_000
THREAD = "thread-1"
REGISTRY = Registry(key="registry-1", deployment=1)


@dataclass
class World:
    """A store and a clock that moves only when told."""

    store: SqlStore
    url: str
    now: int = 1_000_000
    arrivals: int = 0
    marks: dict[str, int] = field(default_factory=dict)
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    # --- mutations --------------------------------------------------------------------------------------

    def request(
        self, *mutations: Mutation, object_id: str = THREAD, batch_id: str | None = None, applied_through: int = 0
    ) -> ApplyRequest:
        """A batch as the pump would send it."""
        items = []
        for mutation in mutations:
            self.arrivals += 1
            items.append(Item(n=self.arrivals, mutation=mutation))
        self.marks[object_id] = self.marks.get(object_id, 0) + 1
        return ApplyRequest(
            object_id=object_id,
            batch_id=batch_id or f"batch-{self.name}-{self.arrivals}",
            mark=self.marks[object_id],
            applied_through=applied_through,
            items=tuple(items),
        )

    def send(self, request: ApplyRequest, *, worker: str = "worker-1") -> ApplyAnswer:
        """Apply a batch."""
        return self.store.apply(request, worker=worker, registry=REGISTRY, now=self.now)

    def apply(self, *mutations: Mutation, object_id: str = THREAD) -> ApplyAnswer:
        """Apply mutations as a batch of their own."""
        return self.send(self.request(*mutations, object_id=object_id))

    def one(self, mutation: Mutation, *, object_id: str | None = None) -> ItemAnswer:
        """Apply one mutation and return its answer."""
        return self.apply(mutation, object_id=object_id or mutation.thread_id).answers[0]

    def submit(self, key: str, value: Any = "hello", *, thread: str = THREAD, **said: Any) -> Receipt:
        """Admit, and expect it to succeed."""
        answer = self.one(submit(key, value, thread=thread, **said))
        assert answer.receipt is not None, answer.refusal
        return answer.receipt

    def abort(self, sid: str, *, thread: str = THREAD, author: str = "ann", reason: str = "enough") -> ItemAnswer:
        """Ask for an abort."""
        return self.one(Abort(thread_id=thread, submission_id=sid, author=author, reason=reason))

    def answer_approval(self, sid: str, call: str, decision: Decision, *, resolver: str = "ann") -> ItemAnswer:
        """Decide an approval."""
        return self.one(
            ResolveApproval(
                thread_id=THREAD, submission_id=sid, tool_call_id=call, decision=decision, resolver=resolver
            )
        )

    def resolve(self, sid: str, call: str, kind: ResolutionKind, **said: Any) -> ItemAnswer:
        """Resolve an unknown call."""
        said = {"author": "ann", "reason": "looked", **said}
        return self.one(ResolveUnknown(thread_id=THREAD, submission_id=sid, tool_call_id=call, resolution=kind, **said))

    # --- ownership ----------------------------------------------------------------------------------------

    def try_begin(
        self,
        *,
        thread: str = THREAD,
        attempt: str = "attempt-1",
        producer: str = "producer-1",
        ended: Sequence[str] = (),
    ) -> Claim | None:
        """Begin, whatever comes of it."""
        return self.store.begin(
            ClaimRequest(thread, producer, attempt, tuple(ended)),
            run_duration_ms=lambda _agent: RUN_MS,
            deployment_id="deployment-1",
            now=self.now,
        )

    def begin(self, **who: Any) -> Claim:
        """Begin, and expect a claim."""
        claim = self.try_begin(**who)
        assert claim is not None
        return claim

    def claim(
        self,
        *,
        thread: str = THREAD,
        attempt: str = "attempt-1",
        producer: str = "producer-1",
        ended: Sequence[str] = (),
    ) -> Claim | None:
        """Claim the head and nothing else."""
        return self.store.claim(ClaimRequest(thread, producer, attempt, tuple(ended)), now=self.now)

    def append(self, claim: Claim, *payloads: tuple[str, AnyPayload], batch_id: str) -> Claim:
        """Append under the claim; the claim at the new tail."""
        return claim.at(self.store.append(claim, self.batch(batch_id, *payloads), now=self.now))

    def batch(self, batch_id: str, *payloads: tuple[str, AnyPayload]) -> Batch:
        """A batch of these records."""
        return Batch(
            batch_id=batch_id,
            records=tuple(
                Record(record_id=rid, created_at=self.now, deployment_id="deployment-1", payload=payload)
                for rid, payload in payloads
            ),
        )

    # --- joining ---------------------------------------------------------------------------------------------

    def join(self, host: Claim, count: int = 1, *, mark: bool = True) -> Claim:
        """Take queued input and make it canonical; without `mark` the markers are lost."""
        for taken in self.store.claim_joining(host, count, now=self.now):
            batch = self.joined_input(host, taken.submission_id, taken.input)
            if mark:
                host = self.store.apply_joined(host, taken.submission_id, batch, now=self.now)
            else:
                host = host.at(self.store.append(host, batch, now=self.now))
        return host

    def joined_input(self, host: Claim, sid: str, value: Any = "hello") -> Batch:
        """The batch that makes a joining row's input canonical."""
        return batches.joined_input(
            sid, host.submission_id, value, "steering", deployment_id="deployment-1", now=self.now
        )

    # --- a run's records ------------------------------------------------------------------------------------

    def respond(self, claim: Claim, turn: int = 1, calls: Sequence[DeclaredCall] = ()) -> Claim:
        """Commit a model response that declares these calls."""
        run = ids.run_id(claim.submission_id)
        return self.append(
            claim,
            (ids.response_record(run, turn), response(run, turn, calls)),
            batch_id=ids.response_batch(run, turn),
        )

    def result(self, claim: Claim, call_id: str, turn: int = 1, value: Any = "done") -> Claim:
        """Commit a call's result."""
        run = ids.run_id(claim.submission_id)
        settled = ToolCallSettled(run_id=run, turn=turn, tool_call_id=call_id, tool_name="tool", result=value)
        return self.append(
            claim,
            (ids.tool_settled_record(run, turn, call_id), settled),
            batch_id=ids.results_batch(run, turn, call_id),
        )

    def approval_request(self, claim: Claim, call_id: str, turn: int = 1) -> Batch:
        """The batch that asks for one approval."""
        run = ids.run_id(claim.submission_id)
        asked = ToolApprovalRequested(
            run_id=run,
            turn_id=ids.turn_id(run, turn),
            turn=turn,
            tool_call_id=call_id,
            tool_name="tool",
            arguments_digest="0" * 64,
        )
        return self.batch(
            ids.approval_request_batch(run, turn, call_id), (ids.approval_request_record(run, turn, call_id), asked)
        )

    def decision(self, claim: Claim, call_id: str, decision: Decision, turn: int = 1) -> tuple[str, AnyPayload]:
        """A canonical decision."""
        run = ids.run_id(claim.submission_id)
        decided = ToolApprovalDecided(
            run_id=run, turn=turn, tool_call_id=call_id, decision=decision, resolver="policy", reason=""
        )
        return ids.approval_decision_record(run, turn, call_id), decided

    def suspend(self, claim: Claim, *calls: str, asking: Sequence[str] | None = None) -> bool:
        """Ask for each call's approval and suspend on all of them."""
        for call in calls if asking is None else asking:
            claim = claim.at(self.store.append(claim, self.approval_request(claim, call), now=self.now))
        return self.store.suspend(claim, None, calls, now=self.now)[0]

    def lose(self, claim: Claim, *calls: str, turn: int = 1) -> None:
        """Mark calls unknown."""
        run = ids.run_id(claim.submission_id)
        records = [
            (
                ids.tool_unknown_record(run, turn, call),
                ToolCallUnknown(run_id=run, turn=turn, tool_call_id=call, tool_name="tool", reason="lost"),
            )
            for call in calls
        ]
        batch = self.batch(ids.unknown_batch(claim.submission_id, turn), *records)
        self.store.mark_unknown(claim, [batch], dict.fromkeys(calls, "tool"), now=self.now)

    def finish(
        self, claim: Claim, outcome: Outcome = Outcome.COMPLETED, *, result: Any = "done", joins: bool = False
    ) -> Settlement:
        """Settle with a last response and the run's output, or with what the outcome needs."""
        run = ids.run_id(claim.submission_id)
        before = []
        if outcome is Outcome.COMPLETED:
            before.append(
                self.batch(f"final:{run}", (ids.run_completed_record(run), RunCompleted(run_id=run, output=result)))
            )
        ending = settled(claim, outcome, result=result)
        return self.store.finish(claim, before, ending, joins=joins, now=self.now)[0]

    def submit_and_begin(self, key: str) -> Claim:
        """Submit and claim."""
        self.submit(key)
        return self.begin(attempt=f"attempt-{key}")

    def run_through(self, key: str, *, thread: str = THREAD) -> Receipt:
        """Submit, run and settle in three transactions."""
        receipt = self.submit(key, thread=thread)
        self.finish(self.begin(thread=thread, attempt=f"attempt-{key}"))
        return receipt


def submit(
    key: str,
    value: Any = "hello",
    *,
    thread: str = THREAD,
    principal: str = "pat",
    agent: str = "agent-1",
    **facts: Any,
) -> Submit:
    """A submit mutation; further names are admission facts."""
    said = AdmissionFacts(**facts) if facts else None
    return Submit(thread_id=thread, agent_id=agent, principal=principal, key=key, input=value, facts=said)


def settled(claim: Claim, outcome: Outcome = Outcome.COMPLETED, *, result: Any = "done") -> SubmissionSettled:
    """A settlement payload of a claim's Submission."""
    return batches.settled(
        claim.submission_id,
        claim.receipt_id,
        outcome,
        run_id=ids.run_id(claim.submission_id),
        result=result if outcome is Outcome.COMPLETED else None,
        diagnostic=Diagnostic(error_tag="Broken", message="it broke") if outcome is Outcome.FAILED else None,
    )


def call(call_id: str, *, arguments: Any = None, tool_class: ToolClass = ToolClass.UNCERTAIN) -> DeclaredCall:
    """A declared call."""
    return DeclaredCall(
        tool_call_id=call_id,
        tool_name="tool",
        arguments=arguments if arguments is not None else {"of": call_id},
        arguments_digest="0" * 64,
        tool_class=tool_class,
    )


def response(run: str, turn: int, calls: Sequence[DeclaredCall] = ()) -> ModelResponseRecorded:
    """A model response."""
    return ModelResponseRecorded(
        run_id=run,
        turn_id=ids.turn_id(run, turn),
        turn=turn,
        messages=[{"kind": "response", "parts": []}],
        messages_digest="0" * 64,
        calls=tuple(calls),
    )


def state(world: World, sid: str) -> str:
    """The state of a row."""
    found = world.store.snapshot(sid)
    assert found is not None
    return found.state.value


def kinds(world: World, thread: str = THREAD) -> list[str]:
    """The kinds of a log, in order."""
    return [record.kind for record in world.store.records(thread, after=0, limit=1_024)]
