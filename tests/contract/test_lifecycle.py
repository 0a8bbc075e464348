"""Any order of everything: random histories against models of a lane and of a log that are a few lines long.

`make histories` runs some hundred times as many of them.
"""

import os
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage import StoreLimits, lanes, open_store
from tests.contract.databases import MigratedDatabases, MigratedFile
from tests.contract.world import THREAD, World, call, submit
from thread_objects.contract.limits import LEASE_MS
from thread_objects.contract.records import Batch, Record, RepairAnnotated
from thread_objects.contract.states import Decision, Outcome, ResolutionKind
from thread_objects.core import batches
from thread_objects.core.digests import EMPTY_TAIL
from thread_objects.errors import AppendConflict, FenceRejected, LedgerError, OwnershipLost, ThreadNotMaterialized
from thread_objects.ports import Claim, Tail

TIMES = int(os.environ.get("HISTORIES", "1"))
"""How many times the few examples of `make test`."""
BLOCKING = ("suspended", "joining", "joined")


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
        self.host: Row | None = None
        self.value: object = None
        self.canonical = False
        self.answered = False

    def leave_host(self) -> None:
        """Back in the queue; what the log holds stays there."""
        self.state, self.host = "ready", None


class Lane(RuleBasedStateMachine):
    """One Thread, one model of it, and every operation an object, a worker, an operator or recovery may try."""

    databases: Any = None

    @initialize(queued=st.integers(0, 4), begun=st.booleans(), guests=st.integers(0, 2), consumed=st.booleans())
    def begin_somewhere(self, queued: int, begun: bool, guests: int, consumed: bool) -> None:
        """An empty lane, or one that has come to where few random steps would lead."""
        self.stack = ExitStack()
        url = self.stack.enter_context(self.databases())
        self.store = open_store(url, limits=StoreLimits(queue_depth=6), synchronous="OFF", pool_size=2)
        self.stack.callback(self.store.close)
        self.world = World(self.store, url)
        self.rows: list[Row] = []
        self.owner: Row | None = None
        self.claim: Claim | None = None
        self.stale: list[Claim] = []
        self.epoch = 0
        self.ever_joined = False
        for number in range(queued):
            self.admit(number, "a")
        if queued and begun:
            self.take(plain=False, late=False, seen_end=False)
            if guests:
                self.take_guests(guests)
            if consumed and self.guests(self.owner):
                self.consume(marker_lost=False)

    def teardown(self) -> None:
        self.stack.close()

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

    def guests(self, host: Row) -> list[Row]:
        return [row for row in self.rows if row.host is host and row.state in ("joining", "joined")]

    def responded(self) -> None:
        for row in self.guests(self.owner):
            row.answered = row.answered or row.canonical

    def part(self, row: Row) -> None:
        """A guest after its host is settled."""
        if row.canonical and row.answered:
            self.settle(row, row.host.outcome)
        else:
            row.leave_host()

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
        if head is None or not free or head.state in BLOCKING:
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
            head.state, head.canonical = "input-applied", True
        assert taken.state == head.state
        self.owner, self.claim = head, taken

    @precondition(lambda self: self.claim is not None)
    @rule(later_ms=st.integers(-5_000, 20_000))
    def renew(self, later_ms: int) -> None:
        """A lease is extended, never shortened; the clock of another worker may be behind."""
        renewed = self.store.renew(self.claim, now=self.world.now + later_ms)
        assert renewed.lease_until == max(self.claim.lease_until, self.world.now + later_ms + LEASE_MS)
        self.world.now += max(0, later_ms)
        self.claim = renewed

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
        self.responded()

    @precondition(lambda self: self.claim is not None and self.owner.state == "input-applied" and self.owner.turn)
    @rule(calls=st.integers(1, 2))
    def suspend(self, calls: int) -> None:
        row = self.owner
        row.turn += 1
        row.waiting = [f"c{row.turn}-{n}" for n in range(calls)]
        self.claim = self.world.respond(self.claim, row.turn, [call(name) for name in row.waiting])
        self.responded()
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
        self.responded()
        self.world.lose(self.claim, *row.waiting, turn=row.turn)
        row.state = "unknown"
        self.ended()

    @precondition(lambda self: self.claim is not None)
    @rule(outcome=st.sampled_from(list(Outcome)), joins=st.booleans())
    def finish(self, outcome: Outcome, joins: bool) -> None:
        claim, row = self.claim, self.owner
        assert self.world.finish(claim, outcome, joins=joins).outcome is outcome
        self.settle(row, outcome.value)
        if joins:
            for guest in self.guests(row):
                self.part(guest)
        self.ended()
        assert self.world.finish(claim, outcome, joins=joins).outcome is outcome

    # --- joined input ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.claim is not None and self.owner.state == "input-applied")
    @rule(count=st.integers(1, 3))
    def take_guests(self, count: int) -> None:
        """The prefix behind the host, as long as it never ran; what it has already and aborted work is passed over."""
        behind = [
            row
            for row in self.open_rows()
            if row.sequence > self.owner.sequence
            and not (row.state == "ready" and row.aborted)
            and row not in self.guests(self.owner)
        ]
        expected: list[Row] = []
        for row in behind[:count]:
            if row.state != "ready" or row.claims or row.canonical:
                break
            expected.append(row)
        taken = self.store.claim_joining(self.claim, count, now=self.world.now)
        assert [joining.submission_id for joining in taken] == [row.sid for row in expected]
        for row, joining in zip(expected, taken, strict=True):
            row.state, row.host, row.value, self.ever_joined = "joining", self.owner, joining.input, True

    @precondition(lambda self: self.claim is not None and any(r.state == "joining" for r in self.guests(self.owner)))
    @rule(marker_lost=st.booleans())
    def consume(self, marker_lost: bool) -> None:
        row = next(row for row in self.guests(self.owner) if row.state == "joining")
        if row.canonical:  # its marker was lost, or another host had it
            self.store.mark_joined(self.claim, row.sid, now=self.world.now)
            row.state = "joined"
            return
        batch = batches.joined_input(
            row.sid, self.owner.sid, row.value, "steering", deployment_id="", now=self.world.now
        )
        if marker_lost:
            self.claim = self.claim.at(self.store.append(self.claim, batch, now=self.world.now))
            row.canonical = True
            return
        self.claim = self.store.apply_joined(self.claim, row.sid, batch, now=self.world.now)
        self.store.mark_joined(self.claim, row.sid, now=self.world.now)
        row.state, row.canonical = "joined", True

    @precondition(lambda self: any(row.state in ("joining", "joined") for row in self.rows))
    @rule(data=st.data(), wrong_host=st.booleans())
    def give_back(self, data: Any, wrong_host: bool) -> None:
        row = data.draw(st.sampled_from([row for row in self.rows if row.state in ("joining", "joined")]))
        token = self.claim.token if row.host is self.owner else None
        if wrong_host:
            assert not self.store.revert_joining(row.sid, "somebody", token=token, now=self.world.now)
            return
        over = row.host.outcome is not None
        if not over and (token is None or (row.canonical and row.state == "joining")):
            with pytest.raises(LedgerError):
                self.store.revert_joining(row.sid, row.host.sid, token=token, now=self.world.now)
            return
        changed = not row.canonical or (over and not row.answered)
        assert self.store.revert_joining(row.sid, row.host.sid, token=token, now=self.world.now) is changed
        if changed:
            row.leave_host()

    @precondition(lambda self: any(row.state == "joined" and row.host.outcome for row in self.rows))
    @rule()
    def recover_joined(self) -> None:
        row = next(row for row in self.rows if row.state == "joined" and row.host.outcome)
        settlement = self.store.settle_joined(row.sid, row.host.sid, deployment_id="", now=self.world.now)
        self.part(row)
        assert (settlement.outcome if settlement else None) == row.outcome

    # --- intents and answers ----------------------------------------------------------------------------------

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def abort(self, data: Any) -> None:
        row = data.draw(st.sampled_from(self.rows))
        answer = self.world.abort(row.sid)
        if row.state == "settled":
            assert answer.refusal.fields["existing_outcome"] == row.outcome
            return
        if row.state == "joined":
            assert answer.refusal.code == "JoinedToHost"
            return
        assert answer.progress is not row.aborted
        assert answer.cancel_submission == (row.sid if row is self.owner and not row.aborted else None)
        if row.state == "ready" and row.claims == 0 and not row.aborted:
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
            lambda: self.store.claim_joining(claim, 1, now=self.world.now),
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
        assert len(inputs) == len(set(inputs))
        assert set(inputs) == {row.sid for row in self.rows if row.canonical}
        if not self.ever_joined:
            assert inputs == sorted(inputs, key=order.index)
        tail = self.store.tail(THREAD)
        assert tail.sequence == len(records)
        assert tail.digest != EMPTY_TAIL
        assert self.store.digest_at(THREAD, tail.sequence) == tail.digest


class Log(RuleBasedStateMachine):
    """One log, a list of what it should hold, and appends of every kind."""

    databases: Any = None

    @initialize()
    def begin_unmaterialized(self) -> None:
        self.stack = ExitStack()
        url = self.stack.enter_context(self.databases())
        self.store = open_store(url, limits=StoreLimits(), synchronous="OFF", pool_size=2)
        self.stack.callback(self.store.close)
        self.store._database.write(lambda tx: lanes.create(tx, THREAD, THREAD, now=1))
        self.epoch: int | None = None
        self.batches: dict[str, tuple[tuple[str, ...], str, Tail]] = {}
        self.ids: list[str] = []
        self.tail = Tail(0, EMPTY_TAIL)

    def teardown(self) -> None:
        self.stack.close()

    @rule(epoch=st.integers(0, 3))
    def materialize(self, epoch: int) -> None:
        if self.epoch is not None and epoch < self.epoch:
            with pytest.raises(FenceRejected) as refused:
                self.store.materialize(THREAD, epoch)
            assert (refused.value.actual, refused.value.attempted) == (self.epoch, epoch)
            return
        self.store.materialize(THREAD, epoch)
        self.epoch = epoch

    @rule(
        batch=st.integers(0, 12),
        records=st.lists(st.integers(0, 40), min_size=1, max_size=4),
        said=st.sampled_from(["a", "b"]),
        epoch_off=st.sampled_from([0, 0, 0, 0, -1, 1]),
        tail_off=st.sampled_from(["no", "no", "no", "sequence", "digest"]),
    )
    def append(self, batch: int, records: list[int], said: str, epoch_off: int, tail_off: str) -> None:
        """The checks in their order: materialised, epoch, batch id, record ids, tail; a refusal leaves nothing."""
        self._append(f"b{batch}", tuple(f"r{n}" for n in records), said, epoch_off, tail_off)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), said=st.sampled_from(["a", "b"]), tail_off=st.sampled_from(["no", "sequence"]))
    def append_again(self, data: Any, said: str, tail_off: str) -> None:
        """A committed batch answers as the first time, wherever the tail is now; other content conflicts."""
        batch_id = data.draw(st.sampled_from(sorted(self.batches)))
        self._append(batch_id, self.batches[batch_id][0], said, 0, tail_off)

    def _append(self, batch_id: str, names: tuple[str, ...], said: str, epoch_off: int, tail_off: str) -> None:
        facts = tuple(
            Record(record_id=name, created_at=1, payload=RepairAnnotated(reason=said, details={"of": name}))
            for name in names
        )
        expected = {
            "no": self.tail,
            "sequence": Tail(self.tail.sequence + 1, self.tail.digest),
            "digest": Tail(self.tail.sequence, "0" * 64),
        }[tail_off]
        epoch = (self.epoch or 0) + epoch_off
        given = Batch(batch_id=batch_id, records=facts)
        refusal = self._refusal(batch_id, names, said, epoch_off, tail_off)
        if refusal is not None:
            with pytest.raises(refusal[0]) as refused:
                self.store.append_at(THREAD, given, expected, epoch)
            for name, value in refusal[1].items():
                assert getattr(refused.value, name) == value
            return
        tail, replayed = self.store.append_at(THREAD, given, expected, epoch)
        if batch_id in self.batches:
            assert (tail, replayed) == (self.batches[batch_id][2], True)
            return
        assert (tail.sequence, replayed) == (self.tail.sequence + len(names), False)
        self.tail = tail
        self.ids.extend(names)
        self.batches[batch_id] = (names, said, tail)

    def _refusal(
        self, batch_id: str, names: tuple[str, ...], said: str, epoch_off: int, tail_off: str
    ) -> tuple[type[Exception], dict[str, object]] | None:
        if self.epoch is None:
            return ThreadNotMaterialized, {"thread_id": THREAD}
        if epoch_off:
            return FenceRejected, {"actual": self.epoch, "attempted": self.epoch + epoch_off}
        if batch_id in self.batches:
            known = self.batches[batch_id][:2] == (names, said)
            return None if known else (AppendConflict, {"conflict": "batch-digest"})
        if len(set(names)) < len(names) or set(names) & set(self.ids):
            return AppendConflict, {"conflict": "record-identity"}
        if tail_off != "no":
            at = {"tail_sequence": self.tail.sequence, "tail_digest": self.tail.digest}
            return AppendConflict, {"conflict": "tail", **at}
        return None

    @precondition(lambda self: self.epoch is not None)
    @rule(after=st.integers(0, 60), limit=st.integers(1, 10))
    def read(self, after: int, limit: int) -> None:
        page = self.store.records(THREAD, after=after, limit=limit)
        assert [record.record_id for record in page] == self.ids[after : after + limit]
        assert [record.sequence for record in page] == list(range(after + 1, after + 1 + len(page)))

    @invariant()
    def ends_agree(self) -> None:
        if self.epoch is None:
            with pytest.raises(ThreadNotMaterialized):
                self.store.tail(THREAD)
            return
        assert self.store.tail(THREAD) == self.tail
        ends = {tail.sequence: tail.digest for _, _, tail in self.batches.values()}
        for sequence in range(1, self.tail.sequence + 1):
            assert self.store.digest_at(THREAD, sequence) == ends.get(sequence)


def check(machine: type[RuleBasedStateMachine], databases: Any, *, examples: int) -> None:
    """Run random histories, each on an empty database of its own."""
    used: list[str] = []

    def counted() -> AbstractContextManager[str]:
        used.append("")
        return databases()

    on_these = type(machine.__name__, (machine,), {"databases": staticmethod(counted)})
    run_state_machine_as_test(
        on_these,
        settings=settings(
            max_examples=examples * TIMES,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # Making a found history short may take minutes; `make histories` has them.
            phases=[phase for phase in Phase if TIMES > 1 or phase not in (Phase.shrink, Phase.explain)],
        ),
    )
    assert len(used) >= examples


@pytest.fixture
def files(migrated_file: MigratedFile, tmp_path: Path) -> Any:
    """Makes an empty SQLite database; the next one takes its place."""

    def fresh() -> AbstractContextManager[str]:
        for left in tmp_path.glob("threads.db*"):
            left.unlink()
        return nullcontext(migrated_file.copy(tmp_path))

    return fresh


def test_random_histories_of_a_lane_keep_the_rules_on_sqlite(files: Any):
    """Head rule, fences, states, guests, one settlement each, an unbroken log: after every step of any history."""
    check(Lane, files, examples=40)


def test_random_histories_of_a_lane_keep_the_rules_on_postgresql(migrated_databases: MigratedDatabases):
    """The same histories on the other database."""
    check(Lane, migrated_databases.lent, examples=10)


def test_random_histories_of_a_log_keep_the_rules_on_sqlite(files: Any):
    """Epochs, batches, record ids and tails, checked in their order: after every step of any history."""
    check(Log, files, examples=25)


def test_random_histories_of_a_log_keep_the_rules_on_postgresql(migrated_databases: MigratedDatabases):
    """The same histories on the other database."""
    check(Log, migrated_databases.lent, examples=6)
