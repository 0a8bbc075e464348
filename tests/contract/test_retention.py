"""Retention: what was said goes, what proves stays, and nothing that is still owed is touched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activities.transcripts import Transcripts
from storage import StoreLimits, open_store
from tests.contract.archived import lived_in
from tests.contract.databases import MigratedFile
from tests.contract.world import THREAD, World, call, kinds, settled, state, submit
from thread_objects.archives import check_archive
from thread_objects.contract import ids
from thread_objects.contract.activities import ReadRequest
from thread_objects.contract.operations import InspectRequest
from thread_objects.contract.retention import RetentionCursor, RetentionPolicy, RetentionReport
from thread_objects.contract.states import CheckOutcome, Decision, Outcome, ResolutionKind
from thread_objects.core.faults import RecoveryFailure
from thread_objects.database import ThreadDatabase
from thread_objects.errors import CheckpointRejected
from thread_objects.ports import Checkpoint

SECRET = "the secret"
MODES = pytest.mark.parametrize("mode", ["redact", "delete"])


def retain(world: World, mode: str = "redact", *, dry_run: bool = False, **more: Any) -> RetentionReport:
    """Retention of everything that settled before now."""
    world.now += 1
    policy = RetentionPolicy(mode=mode, **{"before": world.now, **more})
    return ThreadDatabase(world.store).retain(policy, dry_run=dry_run)


def talk(world: World, key: str) -> str:
    """A Submission with the secret in everything that can hold one; settled."""
    sid = world.submit(key, SECRET).submission_id
    claim = world.begin(attempt=f"a-{key}")
    claim = world.respond(claim, calls=[call("ask", arguments=[SECRET]), call("lost", arguments={"of": SECRET})])
    world.suspend(claim, "ask")
    world.answer_approval(sid, "ask", Decision.APPROVED)
    world.lose(world.begin(attempt=f"b-{key}"), "lost")
    world.resolve(sid, "lost", ResolutionKind.COMPLETED_WITH_RESULT, result={"paid": SECRET}, reason=SECRET)
    claim = world.begin(attempt=f"c-{key}")
    for name in ("ask", "lost"):
        claim = world.result(claim, name, value=[SECRET])
    world.finish(claim, result={"said": SECRET})
    return sid


def stored(world: World) -> str:
    """All that the tables hold."""
    tables = ("records", "submissions", "approvals", "unknown_calls", "unknown_resolutions", "checkpoints")
    return repr([world.store._database.read(lambda tx, t=t: tx.all(f"SELECT * FROM {t}", {})) for t in tables])


def checks(world: World) -> dict[str, CheckOutcome]:
    """How each check of the Thread ends, here and in its archive."""
    found = world.store.inspect(InspectRequest(operation="verify", thread_id=THREAD), now=world.now).verification
    archived = check_archive(list(world.store.export(THREAD))).verification
    assert archived.model_copy(update={"checks": ()}) == found.model_copy(update={"checks": ()})
    return {check.name: check.outcome for check in found.checks if check.outcome is not CheckOutcome.PASSED}


@MODES
def test_content_goes_and_what_proves_stays(world: World, mode: str):
    """Receipt, outcome, digests and audits stay; the same key has the same answer, another input the same conflict."""
    sid = talk(world, "k1")
    before = world.store.snapshot(sid)
    receipt = world.submit("k1", SECRET)
    tail = world.store.tail(THREAD)
    report = retain(world, mode)
    assert SECRET not in stored(world)
    assert (report.threads, report.submissions, report.kept) == (1, 1, {})
    assert report.deleted == (tail.sequence if mode == "delete" else 0)
    assert world.submit("k1", SECRET) == receipt
    assert world.one(submit("k1", "other")).refusal.code == "AdmissionConflict"
    status = world.store.read(ReadRequest(submission_id=sid)).status
    assert (status.settlement.outcome, status.settlement.result, status.settlement.redacted) == (
        "completed",
        None,
        True,
    )
    assert status.settlement.receipt_id == receipt.receipt_id
    assert world.store.tail(THREAD) == tail
    assert world.store.snapshot(sid).state == before.state
    repeated = world.resolve(sid, "lost", ResolutionKind.COMPLETED_WITH_RESULT, result={"paid": SECRET})
    assert repeated.unknown.replayed
    other = world.resolve(sid, "lost", ResolutionKind.COMPLETED_WITH_RESULT, result="other")
    assert other.refusal.code == "UnknownResolutionConflict"
    assert checks(world) == ({"digest-chain": CheckOutcome.SKIPPED} if mode == "redact" else {})
    assert retain(world, mode) == RetentionReport(dry_run=False, threads=0, submissions=0, redacted=0, deleted=0)
    assert world.store.finalize(sid, now=world.now).outcome is Outcome.COMPLETED


@MODES
def test_thread_goes_on_after_retention(world: World, mode: str):
    """New input follows the old tail; the conversation of the Run that comes does not know what was taken."""
    talk(world, "k1")
    retain(world, mode)
    tail = world.store.tail(THREAD)
    world.submit("k2", "next")
    claim = world.begin(attempt="d")
    transcript = Transcripts().read(world.store, THREAD, tail=claim.tail.sequence, retained_at=claim.retained_at)
    assert list(transcript.runs) == [ids.run_id(claim.submission_id)]
    world.finish(world.respond(claim))
    assert world.store.tail(THREAD).sequence == tail.sequence + 5
    assert [record.sequence for record in world.store.records(THREAD, after=tail.sequence, limit=9)] == [
        tail.sequence + n for n in range(1, 6)
    ]
    assert set(checks(world)) <= {"digest-chain"}


@MODES
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_retained_thread_moves_like_any_other(world: World, mode: str, migrated_file: MigratedFile, tmp_path: Path):
    """Its archive holds what is left, comes in whole, and the chain goes on at the destination."""
    lived_in(world)
    talk_after = world.store.tail(THREAD)
    retain(world, mode)
    archive = list(world.store.export(THREAD))
    (tmp_path / "elsewhere").mkdir()
    url = migrated_file.copy(tmp_path / "elsewhere")
    elsewhere = World(open_store(url, limits=StoreLimits(), synchronous="OFF"), url, now=world.now)
    report = elsewhere.store.import_thread(archive, now=world.now)
    assert (report.base_sequence > 0) == (mode == "delete")
    assert report.tail_sequence == talk_after.sequence
    assert list(elsewhere.store.export(THREAD)) == archive
    assert elsewhere.submit("settled").replayed
    elsewhere.answer_approval(ids.submission_id(THREAD, "pat", "suspended"), "also", Decision.APPROVED)
    elsewhere.finish(elsewhere.begin(attempt="x"))
    assert set(checks(elsewhere)) <= {"digest-chain"}
    elsewhere.store.close()


@MODES
def test_open_work_is_never_touched(world: World, mode: str):
    """Work in every state but settled keeps all it has, and with it whatever stands behind it in the log."""
    found = lived_in(world)
    open_work = {name: found[name] for name in ("unknown", "suspended", "queued")}
    before = {sid: world.store.run_records(sid) for sid in open_work.values()}
    report = retain(world, mode)
    assert report.submissions == 3
    assert {sid: world.store.run_records(sid) for sid in open_work.values()} == before
    assert world.store.read(ReadRequest(submission_id=found["failed"])).status.settlement.redacted
    assert set(checks(world)) <= {"digest-chain"}
    world.resolve(found["unknown"], "other", ResolutionKind.SAFE_TO_RETRY)
    world.answer_approval(found["suspended"], "also", Decision.APPROVED)
    claim = world.begin(attempt="x")
    world.finish(world.result(world.result(claim, "lost"), "other"))
    for _ in ("suspended", "queued"):
        world.finish(world.begin(attempt="x"))
    retain(world, mode)
    assert kinds(world)[:1] == ([] if mode == "delete" else ["ThreadCreated"])
    assert set(checks(world)) <= {"digest-chain"}


def owing_unknown(world: World) -> None:
    """Settled, with a call that nobody has closed."""
    world.submit("k1", SECRET)
    claim = world.respond(world.begin(), calls=[call("c1")])
    world.lose(claim, "c1")
    world.abort(claim.submission_id)
    world.finish(world.begin(attempt="a2"), Outcome.ABORTED)


def owing_child(world: World) -> None:
    """Settled, with a reservation that was not given back."""
    world.submit("k1", SECRET)
    claim = world.begin()
    world.store.reserve_child(claim, "reservation-1", "call-1", {}, now=world.now)
    world.finish(claim)


def owing_parent(world: World) -> None:
    """A settled child whose parent is not."""
    parent = world.submit("k1", thread="parent").submission_id
    sid = world.submit("k1", SECRET).submission_id
    world.finish(world.begin())
    world.store._database.write(
        lambda tx: tx.run(
            "UPDATE submissions SET parent_submission_id = :parent, parent_call_id = 'c' WHERE submission_id = :sid",
            {"parent": parent, "sid": sid},
        )
    )


def owing_joined(world: World) -> None:
    """A host that settled without telling the input that it took."""
    world.submit("k1", SECRET)
    host = world.begin()
    world.submit("k2", SECRET)
    host = world.respond(world.join(host), turn=1)
    world.store.finish(host, [], settled(host), joins=False, now=world.now)


def owing_fault(world: World) -> None:
    """A Thread whose recovery failed."""
    world.submit("k1", SECRET)
    world.finish(world.begin())
    failure = RecoveryFailure(phase="history", reason="failure", error_tag="X", operation="read")
    world.store.record_fault(THREAD, failure, now=world.now)


def of_unknown_kind(world: World) -> None:
    """A record of a kind that this version does not know."""
    world.submit("k1", SECRET)
    world.finish(world.begin())
    world.store._database.write(lambda tx: tx.run("UPDATE records SET kind = 'Later' WHERE sequence = 4", {}))


DUTIES: dict[str, Callable[[World], None]] = {
    "unknown-call": owing_unknown,
    "child": owing_child,
    "parent": owing_parent,
    "joined": owing_joined,
    "fault": owing_fault,
    "unknown-kind": of_unknown_kind,
}


@pytest.mark.parametrize("reason", DUTIES)
def test_settled_work_that_owes_something_is_left_alone(world: World, reason: str):
    """An open duty keeps its content, and is counted by its reason."""
    DUTIES[reason](world)
    before = stored(world)
    report = retain(world, "delete")
    assert (report.submissions, report.deleted, report.kept) == (0, 0, {reason: 1})
    assert stored(world) == before


def test_joined_input_goes_with_its_own_submission(world: World):
    """What a Run took stays while it owes an answer, and goes when it is settled itself."""
    world.submit("k1", SECRET)
    host = world.begin()
    world.submit("k2", SECRET)
    host = world.respond(world.join(host), turn=1)
    world.finish(host, joins=True)
    assert retain(world).submissions == 2
    assert SECRET not in stored(world)
    assert set(checks(world)) <= {"digest-chain"}


def test_young_work_and_threads_that_go_on_can_be_spared(world: World):
    """`before` is a bound in time; with `settled_threads_only` old history stays where younger work is."""
    talk(world, "old")
    border = world.now + 1
    world.now += 10
    talk(world, "young")
    assert retain(world, before=border, settled_threads_only=True).submissions == 0
    assert retain(world, before=border, thread_id="thread-2").submissions == 0
    assert retain(world, before=border, dry_run=True).submissions == 1
    assert retain(world, before=border, thread_id=THREAD).submissions == 1
    assert retain(world, settled_threads_only=True).submissions == 1


def test_dry_run_counts_and_changes_nothing(world: World):
    """What would be redacted is told, and everything stays."""
    lived_in(world)
    before = stored(world)
    told = retain(world, dry_run=True)
    assert stored(world) == before
    done = retain(world)
    assert told == done.model_copy(update={"dry_run": True})


@MODES
def test_pieces_are_bounded_and_add_up(world: World, mode: str, monkeypatch: pytest.MonkeyPatch):
    """However small the transactions, the end is the same; one that is repeated finds nothing left to do."""
    monkeypatch.setattr("storage.retention._ROWS", 1)
    monkeypatch.setattr("storage.retention._RECORDS", 3)
    monkeypatch.setattr("storage.retention._PAGE", 1)
    monkeypatch.setattr("storage.retention._THREADS", 1)
    for number in range(3):
        world.run_through(f"k{number}")
        world.run_through("k", thread=f"thread-{number}x")
    world.now += 1
    policy = RetentionPolicy(mode=mode, before=world.now)
    cursor: RetentionCursor | None = RetentionCursor()
    submissions = redacted = deleted = 0
    while cursor is not None:
        page = world.store.retain(policy, cursor, now=world.now)
        again = world.store.retain(policy, cursor, now=world.now)
        assert page.submissions <= 1
        assert again.cursor is None or again.submissions <= 1
        submissions += page.submissions + again.submissions
        redacted += page.redacted + again.redacted
        deleted += page.deleted + again.deleted
        cursor = page.cursor
    assert submissions == 6
    assert redacted == 6 * 4
    assert deleted == (6 * 4 + 4 if mode == "delete" else 0)


def test_views_of_taken_content_go_with_it(world: World):
    """Checkpoints are dropped, and one that was made from what was read before is refused afterwards."""
    talk(world, "k1")
    world.submit("k2")
    claim = world.begin(attempt="d")
    cache = Transcripts()
    held = cache.read(world.store, THREAD, retained_at=claim.retained_at)
    assert len(held.runs) == 2
    tail = world.store.tail(THREAD)
    view = Checkpoint(THREAD, tail.sequence, tail.digest, SECRET)
    world.store.save_checkpoint(view, now=world.now)
    retain(world)
    assert SECRET not in stored(world)
    with pytest.raises(CheckpointRejected) as refused:
        world.store.save_checkpoint(view, now=world.now)
    assert refused.value.reason == "redacted"
    cache.keep(world.store, THREAD, held, world.store.records(THREAD, after=0, limit=99)[-1].record_id, now=world.now)
    again = world.claim(attempt="e", ended=["d"])
    assert again is not None
    assert again.retained_at > claim.retained_at
    assert len(cache.read(world.store, THREAD, retained_at=again.retained_at).runs) == 1


def test_open_states_are_what_they_were(world: World):
    """Retention moves no state."""
    found = lived_in(world)
    before = {name: state(world, sid) for name, sid in found.items()}
    retain(world, "delete")
    assert {name: state(world, sid) for name, sid in found.items()} == before
