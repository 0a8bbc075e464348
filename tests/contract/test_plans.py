"""Every statement finds its rows by an index, and the cost of an operation does not grow with a Thread's past."""

import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from storage import StoreLimits, open_reader, open_store
from storage.engine import Params, for_postgres, for_sqlite, storable
from storage.postgres import PostgresTransaction
from storage.sqlite import SqliteTransaction
from tests.contract.world import THREAD, World, call, submit
from thread_objects.contract import ids
from thread_objects.contract.activities import ReadRequest
from thread_objects.contract.messages import ParentLink
from thread_objects.contract.operations import InspectRequest, ObligationsQuery, Operation
from thread_objects.contract.records import RepairAnnotated, SubagentLineageRecorded
from thread_objects.contract.retention import RetentionCursor, RetentionPolicy
from thread_objects.contract.states import Decision, Outcome, ResolutionKind
from thread_objects.core.faults import RecoveryFailure
from thread_objects.ports import Checkpoint, ClaimRequest

FAILURE = RecoveryFailure(phase="history", reason="failure", error_tag="X", operation="read")
SMALL = {"deployments", "workers"}
"""Tables of the fleet, with a row for each process or deployment: reading them whole is fine."""

Statement = tuple[str, Params]


def everything(world: World) -> None:
    """Each operation of the store and of the reader at least once."""
    store = world.store
    world.submit("k1")
    claim = world.claim()
    assert claim is not None
    store.renew(claim, now=world.now)
    store.release(claim, mark_through=1, now=world.now)
    claim = world.respond(world.begin(attempt="a2"), calls=[call("c1"), call("c2")])
    world.suspend(claim, "c1")
    store.wake_suspended(claim.submission_id, now=world.now)
    world.answer_approval(claim.submission_id, "c1", Decision.APPROVED)
    claim = world.begin(attempt="a3")
    store.mark_input_applied(claim, now=world.now)
    world.lose(claim, "c1", "c2")
    store.apply_unknown_resolutions(claim.submission_id, now=world.now)
    world.resolve(claim.submission_id, "c1", ResolutionKind.COMPLETED_WITH_RESULT, result=1)
    world.resolve(claim.submission_id, "c2", ResolutionKind.ABORT_SUBMISSION)
    store.recovery_start(THREAD, limit=10, now=world.now)
    store.recovery_page(THREAD, after=0, limit=10)
    store.snapshot(claim.submission_id)
    store.survey(THREAD)
    named = store.claim_submission(ClaimRequest(THREAD, "p", "a4"), claim.submission_id, now=world.now)
    assert named is not None
    world.finish(named, Outcome.ABORTED)
    world.finish(named, Outcome.ABORTED)
    world.resolve(claim.submission_id, "c2", ResolutionKind.NEVER_HAPPENED)
    families(world)
    world.abort(world.submit("k2").submission_id)
    world.submit("k3")
    world.apply(*(world.request().items))
    store.materialize_and_ready(claim.submission_id, deployment_id="", now=world.now)
    store.finalize(claim.submission_id, now=world.now)
    store.run_records(claim.submission_id)
    store.records(THREAD, after=0, limit=10)
    store.digest_at(THREAD, 1)
    last = store.tail(THREAD)
    store.save_checkpoint(Checkpoint(THREAD, last.sequence, last.digest, 1), now=world.now)
    store.load_checkpoint(THREAD, at_or_before=99)
    list(store.export(THREAD))
    policy = RetentionPolicy(mode="delete", before=2**52)
    store.retain(policy, RetentionCursor(), now=world.now)
    store.retain(policy, RetentionCursor(thread_id=THREAD, queue_sequence=99), now=world.now)
    store.fence_restored(after="", limit=9, now=world.now)
    store.checkpoint_chain(THREAD)
    store.load_checkpoints(THREAD)
    store.abort_intent(claim.submission_id)
    store.record_fault(THREAD, FAILURE, now=world.now)
    store.fault(THREAD)
    world.submit("k4")
    store.note_recipients(THREAD, now=world.now)
    store.recovery_events(THREAD, after=0, limit=10)
    store.clear_fault(THREAD, now=world.now)
    store.acknowledge_recovery_event(THREAD, store.event_standing(THREAD).sequence, now=world.now)
    store.old_marks(before=world.now, limit=10)
    store.objects_of_workers(["worker-1"], limit=10)
    store.objects_owed_by(["agent"], after="", limit=10)
    store.objects_owed_by(["agent"], after="", limit=10, ready_by=world.now)
    store.hint_object_of(THREAD, now=world.now)
    store.clear_mark(THREAD, 99)
    store.read(ReadRequest(submission_id=claim.submission_id))
    for request in inspections(claim.submission_id):
        store.inspect(request, now=world.now)
    store.annotate(claim.submission_id, world.batch("audit", ("audit", RepairAnnotated(reason="recovery:X"))))
    reader = open_reader(world.url)
    reader.status(claim.submission_id)
    reader.find(THREAD, "pat", "k1")
    reader.settlements([claim.submission_id])
    reader.log(THREAD, after=0, limit=10)
    reader.tails([THREAD])
    reader.close()


def inspections(sid: str) -> list[InspectRequest]:
    """Every question of an operator."""
    query = ObligationsQuery(aging_seconds=60, overdue_seconds=600)
    past = query.model_copy(update={"after": f'[1,"{THREAD}","{THREAD}",1]'})
    of_thread = query.model_copy(update={"thread_id": THREAD})
    return [
        InspectRequest(operation=Operation.EXPLAIN, submission_id=sid),
        InspectRequest(operation=Operation.EXPLAIN_THREAD, thread_id=THREAD),
        InspectRequest(operation=Operation.VERIFY, thread_id=THREAD),
        InspectRequest(operation=Operation.OBSERVE, thread_id=THREAD),
        *(
            InspectRequest(operation=Operation.SCAN_OBLIGATIONS, obligations=asked)
            for asked in (query, past, of_thread)
        ),
    ]


def families(world: World) -> None:
    """A host with joined inputs, and a parent with a child."""
    store = world.store
    world.submit("host", thread="t-family", group="g")
    taken, back = (world.submit(key, thread="t-family") for key in ("j1", "j2"))
    host = world.begin(thread="t-family", attempt="host")
    host = world.join(host)
    store.mark_joined(host, taken.submission_id, now=world.now)
    store.claim_joining(host, 1, now=world.now)
    store.revert_joining(back.submission_id, host.submission_id, token=host.token, now=world.now)
    store.reserve_child(host, "r1", "c1", 1, now=world.now)
    link = ParentLink(submission_id=host.submission_id, tool_call_id="c1")
    child = store.admit(submit("child", thread="t-child", parent=link), "t-child", deployment_id="", now=world.now)
    record_id = ids.subagent_lineage_record("t-child")
    lineage = SubagentLineageRecorded(
        parent_link=link, parent_submission_id=host.submission_id, child_input_digest="", grant_digest=""
    )
    store.record_lineage(child.submission_id, world.batch(record_id, (record_id, lineage)), now=world.now)
    store.attach_child(host, "r1", child.submission_id, now=world.now)
    store.begin_release("r1", 1, now=world.now)
    store.release_reservation("r1", now=world.now)
    store.snapshot(host.submission_id)
    store.suspend_for_children(host, None, [child.submission_id], now=world.now)
    store.request_abort(child.submission_id, author="a", reason="", deployment_id="", now=world.now)
    store.record_child_settled(host.submission_id, child.submission_id, now=world.now)
    store.resolve_admission("t-family", "pat", "host")
    host = world.begin(thread="t-family", attempt="host-2")
    world.finish(world.respond(host, turn=2))
    store.settle_joined(taken.submission_id, host.submission_id, deployment_id="", now=world.now)
    store.run_records(taken.submission_id)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Statement]:
    """All statements that transactions run, with their parameters."""
    found: list[Statement] = []

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, sql: str, params: Params) -> Any:
            found.append((sql, params))
            return method(self, sql, params)

        return run

    for cls in (SqliteTransaction, PostgresTransaction):
        for name in ("all", "one", "run"):
            monkeypatch.setattr(cls, name, watched(getattr(cls, name)))
    return found


def expect_searches_only(plan: list[str], sql: str, scan: str) -> None:
    """No step of a plan reads a whole table that grows."""
    scans = [line for line in plan if scan in line and not any(table in line for table in SMALL)]
    assert scans == [], f"{sql}\n{plan}"


def test_every_statement_searches_an_index(world: World, recorded: list[Statement]):
    """No operation reads a table from end to end, on either database."""
    everything(world)
    statements = {sql: params for sql, params in recorded if sql.startswith(("SELECT", "UPDATE", "DELETE"))}
    assert len(statements) > 40
    if world.url.startswith("sqlite"):
        with sqlite3.connect(world.url.removeprefix("sqlite:///")) as connection:
            for sql, params in statements.items():
                rows = connection.execute(f"EXPLAIN QUERY PLAN {for_sqlite(sql)}", storable(params))
                plan = [row[3] for row in rows if not row[3].startswith(("SCAN CONSTANT", "SCAN calls", "SCAN h"))]
                expect_searches_only(plan, sql, "SCAN ")
        return
    with psycopg.connect(world.url) as connection:
        # Small tables are read whole because that is cheap; without that choice an index must serve.
        connection.execute("SET enable_seqscan = off")
        for sql, params in statements.items():
            plan = [row[0] for row in connection.execute(f"EXPLAIN {for_postgres(sql)}", storable(params))]
            expect_searches_only(plan, sql, "Seq Scan on ")


# --- flatness ------------------------------------------------------------------------------------------------------


def grow(path: str, threads: int, settled: int) -> None:
    """Settled Submissions with a record each: the past of one busy Thread, and as many other Threads."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    (last, tail) = connection.execute(
        "SELECT queue_last, tail_sequence FROM threads WHERE thread_id = ?", (THREAD,)
    ).fetchone()
    for thread, first, sequence, count in [
        (THREAD, last, tail, settled),
        *((f"other-{n}", 0, 0, 1) for n in range(threads)),
    ]:
        if thread != THREAD:
            connection.execute(
                "INSERT OR IGNORE INTO threads (thread_id, object_id, created_at, materialized, queue_last, epoch,"
                " tail_sequence, tail_digest) VALUES (?, ?, 1, 1, 1, 0, 1, 'x')",
                (thread, thread),
            )
        connection.executemany(
            "INSERT OR IGNORE INTO submissions (submission_id, thread_id, object_id, queue_sequence, receipt_id, principal,"
            " idempotency_key, agent_id, state, epoch, claims, admitted_at, admitted_by, outcome, settled_at, input_digest)"
            " VALUES (?, ?, ?, ?, ?, 'p', ?, 'a', 'settled', 1, 1, 1, 'x', 'completed', 1, 'x')",
            [
                (f"s-{thread}-{first + n}", thread, thread, first + n, f"r{n}", f"old-{first + n}")
                for n in range(1, count + 1)
            ],
        )
        connection.executemany(
            "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, 'RepairAnnotated', 1, 1, '', ?, 'x', '{}')",
            [
                (thread, sequence + n, f"rec-{sequence + n}", f"bat-{sequence + n}", f"s-{thread}-{first + n}")
                for n in range(1, count + 1)
            ],
        )
    connection.execute(
        "UPDATE threads SET queue_last = queue_last + ?, tail_sequence = tail_sequence + ? WHERE thread_id = ?",
        (settled, settled, THREAD),
    )
    connection.commit()
    connection.close()


def steps_of(world: World, operation: Callable[[], Any]) -> int:
    """Virtual machine steps that SQLite takes for an operation: its cost, without a clock."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    database = world.store._database
    database.write(lambda tx: None)
    database.read(lambda tx: None)
    connections = [database._writer, *database._idle]
    for connection in connections:
        connection.set_progress_handler(tick, 1)
    try:
        operation()
    finally:
        for connection in connections:
            connection.set_progress_handler(None, 1)
    return count


def one_turn(world: World, key: str) -> dict[str, int]:
    """The steps of each operation of a one-turn Submission, and of the reads around it."""
    store = world.store
    costs: dict[str, int] = {}

    def cost(name: str, operation: Callable[[], Any]) -> Any:
        answer: list[Any] = []
        costs[name] = steps_of(world, lambda: answer.append(operation()))
        return answer[0]

    receipt = cost("apply", lambda: world.submit(key))
    claim = cost("begin", lambda: world.begin(attempt=key))
    claim = cost("append", lambda: world.respond(claim, calls=[call("c1")]))
    claim = cost("result", lambda: world.result(claim, "c1"))
    cost("view", lambda: store.view(THREAD))
    cost("survey", lambda: store.survey(THREAD))
    cost("recovery_page", lambda: store.recovery_page(THREAD, after=0, limit=32))
    cost("run_records", lambda: store.run_records(receipt.submission_id))
    cost("page", lambda: store.records(THREAD, after=claim.tail.sequence - 3, limit=3))
    cost("status", lambda: store.read(ReadRequest(submission_id=receipt.submission_id)))
    explain, _, _, _, scan, past, of_thread = inspections(receipt.submission_id)
    cost("explain", lambda: store.inspect(explain, now=world.now))
    cost("obligations", lambda: store.inspect(scan, now=world.now))
    cost("obligations past a cursor", lambda: store.inspect(past, now=world.now))
    cost("obligations of a thread", lambda: store.inspect(of_thread, now=world.now))
    cost("tails", lambda: store.inspect(inspections("")[3], now=world.now))
    cost("old_marks", lambda: store.old_marks(before=world.now, limit=10))
    cost("finish", lambda: world.finish(claim))
    return costs


def test_cost_does_not_grow_with_the_past(tmp_path: Any):
    """Ten times the settled work, the records and the Threads: the same steps, up to the depth of a tree."""
    path = tmp_path / "threads.db"
    store = open_store(f"sqlite:///{path}", limits=StoreLimits(), synchronous="OFF")
    world = World(store, f"sqlite:///{path}")
    world.run_through("first")
    lost = world.submit("lost")
    world.lose(world.respond(world.begin(attempt="lost"), calls=[call("c1")]), "c1")
    grow(str(path), threads=300, settled=300)
    one_turn(world, "warm")
    small = one_turn(world, "small")
    grow(str(path), threads=3_000, settled=3_000)
    large = one_turn(world, "large")
    grown = {name: (small[name], large[name]) for name in small if large[name] > 1.2 * small[name] + 20}
    store.close()
    assert grown == {}
    assert lost.submission_id == ids.submission_id(THREAD, "pat", "lost")
    assert min(small.values()) > 10
