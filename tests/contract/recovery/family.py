"""A parent and the child that answers its delegation call, step by step; the parent's owner dies after any of them."""

from dataclasses import dataclass, field

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.states import CallKind, Outcome
from thread_objects.core.recovery import child_submit, lineage_batch, started_batch
from thread_objects.ports import Claim, ClaimRequest

from .lab import THREAD, Lab, declared

CALL = "d1"
COST = {"consumed": {"turns": 2}}
STEPS = ("declare", "reserve", "request", "admit", "ready", "start", "attach", "suspend", "child", "join", "freeze")


@dataclass
class Family:
    """One parent, one call, one child."""

    lab: Lab
    call: str = CALL
    key: str = "k1"
    sid: str = ""
    child: str = ""
    claim: Claim | None = None
    done: list[str] = field(default_factory=list)

    @property
    def run(self) -> str:
        return ids.run_id(self.sid)

    @property
    def reservation(self) -> str:
        return ids.child_reservation_id(self.run, self.call)

    @property
    def child_thread(self) -> str:
        return ids.child_thread_id(self.sid, self.call)

    @property
    def request_payload(self) -> r.SubagentRequested:
        return r.SubagentRequested(
            run_id=self.run,
            turn_id=ids.turn_id(self.run, 1),
            turn=1,
            tool_call_id=self.call,
            delegation_id=self.call,
            target_agent_id="child-agent",
            child_input={"do": "it"},
            child_input_digest="0" * 64,
            grant_digest="1" * 64,
            reservation_id=self.reservation,
            reservation_digest="2" * 64,
            child_thread_id=self.child_thread,
            child_principal="p",
            child_idempotency_key=ids.child_key(self.run, self.call),
        )

    def upto(self, last: str, *, lose: bool = True) -> "Family":
        """Every step through this one; then the owner is gone and its lease over."""
        for step in STEPS[: STEPS.index(last) + 1]:
            if step not in self.done:
                getattr(self, f"_{step}")()
                self.done.append(step)
        if lose:
            self.lab.pass_lease()
        return self

    def _declare(self) -> None:
        self.sid = self.lab.submit(self.key)
        self.claim = self.lab.respond(self.lab.claim(), declared(self.call, kind=CallKind.DELEGATION))

    def _reserve(self) -> None:
        self.lab.store.reserve_child(self.claim, self.reservation, self.call, {"turns": 5}, now=self.lab.clock.now())

    def _request(self) -> None:
        record_id = ids.subagent_requested_record(self.run, self.call)
        self.claim = self.lab.append(self.claim, record_id, (record_id, self.request_payload))

    def _admit(self) -> None:
        submit = child_submit(self.snapshot(), self.request_payload)
        receipt = self.lab.store.admit(submit, self.child_thread, deployment_id="", now=self.lab.clock.now())
        self.child = receipt.submission_id
        self.receipt = receipt

    def _ready(self) -> None:
        batch = lineage_batch(self.snapshot(), self.request_payload, self.lab.clock.now())
        self.lab.store.record_lineage(self.child, batch, now=self.lab.clock.now())

    def _start(self) -> None:
        batch = started_batch(self.snapshot(), self.request_payload, self.receipt, self.lab.clock.now())
        self.claim = self.claim.at(self.lab.store.append(self.claim, batch, now=self.lab.clock.now()))

    def _attach(self) -> None:
        self.lab.store.attach_child(self.claim, self.reservation, self.child, now=self.lab.clock.now())

    def _suspend(self) -> None:
        suspended, _, _ = self.lab.store.suspend_for_children(self.claim, None, [self.child], now=self.lab.clock.now())
        assert suspended

    def _child(self) -> None:
        self.settle_child()

    def _join(self) -> None:
        claim = self.lab.claim("joining")
        joined = r.SubagentJoined(
            run_id=self.run,
            tool_call_id=self.call,
            child_submission_id=self.child,
            child_settlement_id=ids.settlement_id(self.child),
            child_outcome=Outcome.COMPLETED,
            child_result_digest="3" * 64,
            projected_result_digest="4" * 64,
            reservation_id=self.reservation,
            final_accounting=COST,
        )
        result = r.ToolCallSettled(run_id=self.run, turn=1, tool_call_id=self.call, tool_name="t", result="done")
        self.claim = self.lab.append(
            claim,
            ids.subagent_join_batch(self.run, self.call),
            (ids.subagent_joined_record(self.run, self.call), joined),
            (ids.tool_settled_record(self.run, 1, self.call), result),
        )

    def _freeze(self) -> None:
        self.lab.store.begin_release(self.reservation, COST, now=self.lab.clock.now())

    def settle_child(self) -> None:
        """The child completes."""
        claim = self.lab.store.begin(
            ClaimRequest(self.child_thread, "producer", "child"),
            run_duration_ms=lambda _: 3_600_000,
            deployment_id="",
            now=self.lab.clock.now(),
        )
        assert claim is not None
        self.lab.settle(claim)

    # --- what is there -----------------------------------------------------------------------------------------

    def snapshot(self):
        """The parent's row."""
        return self.lab.snapshot(self.sid)

    def status(self) -> str | None:
        """The reservation's status."""
        found = self.snapshot().child_reservations
        return found[0].status if found else None

    def children(self) -> list[str]:
        """All Submissions of the child's Thread."""
        found = self.lab.store.resolve_admission(self.child_thread, "p", ids.child_key(self.run, self.call))
        return [found.receipt.submission_id] if hasattr(found, "receipt") else []

    def recover(self, times: int = 1, **more):
        """Recover the parent's Thread."""
        answer = None
        for n in range(times):
            answer = self.lab.recover(attempt=f"recovery-{len(self.done)}-{n}", **more)
        return answer

    def decisions(self, answer) -> list[tuple[str, str]]:
        """Decision and disposition of the parent's row."""
        return [(d.decision, d.disposition.value) for d in answer.decisions if d.submission_id == self.sid]


def abort(lab: Lab, family: Family) -> None:
    """Ask for the parent's abort."""
    lab.store.request_abort(family.sid, author="operator", reason="stop", deployment_id="", now=lab.clock.now())


__all__ = ["CALL", "COST", "STEPS", "THREAD", "Family", "abort"]
