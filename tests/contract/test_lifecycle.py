"""Any order of everything: random histories against a model of a lane that is a few lines long."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage import StoreLimits, open_store
from tests.contract.world import THREAD, World, call, submit
from tests.postgres_server import PostgresServer
from thread_objects.contract.states import Decision, Outcome, ResolutionKind
from thread_objects.core.digests import EMPTY_TAIL
from thread_objects.errors import FenceRejected, OwnershipLost
from thread_objects.ports import Claim


class Row:
    """What the model knows of a Submission."""

    def __init__(self, sid: str, sequence: int) -> None:
        self.sid = sid
        self.sequence = sequence
        self.state = "ready"
        self.claims = 0
        self.aborted = False
        self.turn = 0
        self.waiting: list[str] = []
        self.outcome: str | None = None


class Lane(RuleBasedStateMachine):
    """One Thread, one model of it, and every operation an object, a worker, an operator or recovery may try."""

    url = ""

    @initialize()
    def begin_empty(self) -> None:
        self.store = open_store(self.url, limits=StoreLimits(queue_depth=6), synchronous="OFF")
        self.world = World(self.store, self.url)
        self.rows: list[Row] = []
        self.owner: Row | None = None
        self.claim: Claim | None = None
        self.stale: list[Claim] = []
        self.epoch = 0

    def teardown(self) -> None:
        self.store.close()

    # --- the model ----------------------------------------------------------------------------------------

    def open_rows(self) -> list[Row]:
        return [row for row in self.rows if row.state != "settled"]

    def head(self) -> Row | None:
        rows = [row for row in self.open_rows() if row.state != "unknown" or row.aborted]
        return rows[0] if rows else None

    def ended(self) -> None:
        assert self.claim is not None
        self.stale.append(self.claim)
        self.owner = self.claim = None

    def settle(self, row: Row, outcome: str) -> None:
        row.state, row.outcome = "settled", outcome

    # --- what may happen ------------------------------------------------------------------------------------

    @rule(number=st.integers(0, 9), value=st.sampled_from(["a", "b"]))
    def admit(self, number: int, value: str) -> None:
        key = f"k{number}"
        answer = self.world.one(submit(key, value))
        known = next((row for row in self.rows if row.sid == getattr(answer.receipt, "submission_id", None)), None)
        if answer.refusal is not None:
            expected = {"AdmissionConflict", "AdmissionLimitExceeded"}
            assert answer.refusal.code in expected
            if answer.refusal.code == "AdmissionLimitExceeded":
                assert len(self.open_rows()) == 6
        elif answer.receipt.replayed:
            assert known is not None
            assert known.sequence == answer.receipt.queue_sequence
        else:
            assert known is None
            assert len(self.open_rows()) < 6
            assert answer.receipt.queue_sequence == len(self.rows) + 1
            self.rows.append(Row(answer.receipt.submission_id, answer.receipt.queue_sequence))

    @rule(plain=st.booleans(), late=st.booleans(), seen_end=st.booleans())
    def take(self, plain: bool, late: bool, seen_end: bool) -> None:
        if late:
            self.world.now += 30_001
        ended = [self.claim.attempt_id] if seen_end and self.claim is not None else []
        attempt = f"attempt-{self.epoch + 1}"
        taken = (
            self.world.claim(attempt=attempt, ended=ended)
            if plain
            else self.world.try_begin(attempt=attempt, ended=ended)
        )
        head = self.head()
        free = self.claim is None or late or bool(ended)
        if head is None or not free or head.state == "suspended":
            assert taken is None
            return
        assert taken is not None
        assert (taken.submission_id, taken.epoch) == (head.sid, self.epoch + 1)
        assert taken.superseded_epoch == (self.epoch if self.claim is not None else None)
        if self.claim is not None:
            self.ended()
        self.epoch += 1
        head.claims += 1
        if head.state == "ready" and not plain:
            head.state = "input-applied"
        assert taken.state == head.state
        self.owner, self.claim = head, taken

    @precondition(lambda self: self.claim is not None)
    @rule()
    def hand_back(self) -> None:
        self.store.release(self.claim, now=self.world.now)
        self.ended()

    @precondition(lambda self: self.claim is not None and self.owner.state == "input-applied")
    @rule(calls=st.integers(0, 2))
    def respond(self, calls: int) -> None:
        self.owner.turn += 1
        names = [f"c{self.owner.turn}-{n}" for n in range(calls)]
        self.claim = self.world.respond(self.claim, self.owner.turn, [call(name) for name in names])

    @precondition(lambda self: self.claim is not None and self.owner.state == "input-applied" and self.owner.turn)
    @rule(calls=st.integers(1, 2))
    def suspend(self, calls: int) -> None:
        row = self.owner
        row.turn += 1
        row.waiting = [f"c{row.turn}-{n}" for n in range(calls)]
        self.claim = self.world.respond(self.claim, row.turn, [call(name) for name in row.waiting])
        for name in row.waiting:
            request = self.world.approval_request(self.claim, name, row.turn)
            self.claim = self.claim.at(self.store.append(self.claim, request, now=self.world.now))
        suspended, _, _ = self.store.suspend(self.claim, None, row.waiting, now=self.world.now)
        assert suspended
        row.state = "suspended"
        self.ended()

    @precondition(lambda self: self.claim is not None and self.owner.state == "input-applied")
    @rule(calls=st.integers(1, 2))
    def lose(self, calls: int) -> None:
        row = self.owner
        row.turn += 1
        row.waiting = [f"c{row.turn}-{n}" for n in range(calls)]
        self.claim = self.world.respond(self.claim, row.turn, [call(name) for name in row.waiting])
        self.world.lose(self.claim, *row.waiting, turn=row.turn)
        row.state = "unknown"
        self.ended()

    @precondition(lambda self: self.claim is not None)
    @rule(outcome=st.sampled_from(list(Outcome)))
    def finish(self, outcome: Outcome) -> None:
        claim, row = self.claim, self.owner
        assert self.world.finish(claim, outcome).outcome is outcome
        self.settle(row, outcome.value)
        self.ended()
        assert self.world.finish(claim, outcome).outcome is outcome

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def abort(self, data: Any) -> None:
        row = data.draw(st.sampled_from(self.rows))
        answer = self.world.abort(row.sid)
        if row.state == "settled":
            assert answer.refusal.fields["existing_outcome"] == row.outcome
            return
        assert answer.progress is not row.aborted
        assert answer.cancel_submission == (row.sid if row is self.owner and not row.aborted else None)
        if row.state == "ready" and row.claims == 0:
            assert answer.abort.settled
            self.settle(row, "aborted")
        row.aborted = True

    @precondition(lambda self: any(row.state == "suspended" for row in self.rows))
    @rule(decision=st.sampled_from(list(Decision)))
    def decide(self, decision: Decision) -> None:
        row = next(row for row in self.rows if row.state == "suspended")
        answer = self.world.answer_approval(row.sid, row.waiting.pop(), decision)
        if decision is Decision.DENIED or not row.waiting:
            row.state = "input-applied"
        assert answer.approval.state == row.state

    @precondition(lambda self: any(row.state == "suspended" and row.aborted for row in self.rows))
    @rule()
    def close_under_abort(self) -> None:
        row = next(row for row in self.rows if row.state == "suspended" and row.aborted)
        self.store.deny_pending_approvals(row.sid, resolver="recovery", reason="", now=self.world.now)
        row.state = "input-applied"

    @precondition(lambda self: any(row.state == "unknown" and row is not self.owner for row in self.rows))
    @rule(kind=st.sampled_from([ResolutionKind.NEVER_HAPPENED, ResolutionKind.SAFE_TO_RETRY]), data=st.data())
    def resolve(self, kind: ResolutionKind, data: Any) -> None:
        row = data.draw(st.sampled_from([r for r in self.rows if r.state == "unknown" and r is not self.owner]))
        answer = self.world.resolve(row.sid, row.waiting.pop(), kind)
        if not row.waiting:
            row.state = "input-applied"
        assert answer.unknown.state == row.state

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def meddle(self, data: Any) -> None:
        """A worker that was superseded tries everything it could."""
        claim = data.draw(st.sampled_from(self.stale))
        row = next(row for row in self.rows if row.sid == claim.submission_id)
        before = self.store.tail(THREAD)
        for attempt in (
            lambda: self.store.renew(claim, now=self.world.now),
            lambda: self.store.release(claim, now=self.world.now),
            lambda: self.world.respond(claim, 99),
            lambda: self.store.suspend(claim, None, ["c"], now=self.world.now),
        ):
            try:
                attempt()
            except (OwnershipLost, FenceRejected):
                continue
            raise AssertionError("a stale claim changed something")
        if row.outcome is None:
            try:
                self.world.finish(claim, Outcome.FAILED)
            except OwnershipLost:
                pass
            else:
                raise AssertionError("a stale claim settled")
        assert self.store.tail(THREAD) == before

    # --- what always holds -------------------------------------------------------------------------------------

    @invariant()
    def rows_agree(self) -> None:
        view = self.store.view(THREAD)
        head = self.head()
        assert view.nonterminal == len(self.open_rows())
        assert (view.head.submission_id if view.head else None) == (head.sid if head else None)
        assert view.unknown == sum(row.state == "unknown" and not row.aborted for row in self.rows)
        for row in self.rows:
            found = self.store.snapshot(row.sid)
            assert (found.state, found.abort_intent is not None) == (row.state, row.aborted)
            assert (found.ownership is not None) == (row is self.owner)

    @invariant()
    def log_agrees(self) -> None:
        if not self.rows:
            return
        records = self.store.records(THREAD, after=0, limit=1_024)
        assert [record.sequence for record in records] == list(range(1, len(records) + 1))
        settled = [r.payload["submissionId"] for r in records if r.kind == "SubmissionSettled"]
        assert sorted(settled) == sorted(row.sid for row in self.rows if row.state == "settled")
        inputs = [r.payload["submissionId"] for r in records if r.kind == "UserInputRecorded"]
        order = [row.sid for row in self.rows]
        assert inputs == sorted(inputs, key=order.index)
        tail = self.store.tail(THREAD)
        assert tail.sequence == len(records)
        assert tail.digest != EMPTY_TAIL
        assert self.store.digest_at(THREAD, tail.sequence) == tail.digest


def check_lane(fresh: Callable[[], str], done: Callable[[str], None], *, examples: int) -> None:
    """Run random histories, each on a fresh database."""

    class OnThis(Lane):
        @initialize()
        def begin_empty(self) -> None:
            self.url = fresh()
            super().begin_empty()

        def teardown(self) -> None:
            super().teardown()
            done(self.url)

    run_state_machine_as_test(
        OnThis,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_histories_keep_the_rules_on_sqlite(tmp_path: Path):
    """Head rule, fences, states, one settlement each, an unbroken log: after every step of any history."""
    numbers = itertools.count()
    check_lane(lambda: f"sqlite:///{tmp_path}/lane-{next(numbers)}.db", lambda _url: None, examples=40)
    assert next(numbers) >= 40


def test_random_histories_keep_the_rules_on_postgresql(postgres: PostgresServer):
    """The same histories on the other database."""
    dropped: list[str] = []

    def done(url: str) -> None:
        postgres.drop(url)
        dropped.append(url)

    check_lane(postgres.url, done, examples=10)
    assert len(dropped) >= 10
