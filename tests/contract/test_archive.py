"""Archives: one moment of a Thread, whole; imported into an empty Thread or not at all."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import SQLModel

import storage.tables  # noqa: F401 - declares them
from activities.thread_recovery import recover_thread
from storage import StoreLimits, open_store
from storage.archiving import _TABLES, _columns
from storage.store import SqlStore
from storage.ties import SqlTies
from tests.contract.archived import changed, lived_in, of_type, sealed
from tests.contract.databases import MigratedDatabases, MigratedFile
from tests.contract.recovery.lab import StepClock
from tests.contract.world import THREAD, World, call, state, submit
from thread_objects.archives import ArchiveFile, check_archive
from thread_objects.contract import ids, limits
from thread_objects.contract.records import RepairAnnotated, UserInputRecorded
from thread_objects.contract.states import Decision, ResolutionKind
from thread_objects.core.canonical import parse
from thread_objects.core.digests import EMPTY_TAIL
from thread_objects.errors import (
    AdmissionConflict,
    ArchiveRefused,
    CorruptRecord,
    InvalidInput,
    ThreadNotMaterialized,
)
from thread_objects.ports import Checkpoint, Tail

on_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
"""What is checked before any statement is the same everywhere."""


def opened(url: str) -> World:
    """A store on a database that may be fresh."""
    return World(open_store(url, limits=StoreLimits(), synchronous="OFF", pool_size=4), url)


@pytest.fixture
def elsewhere(migrated_file: MigratedFile, tmp_path: Path) -> Iterator[World]:
    """An empty database."""
    (tmp_path / "elsewhere").mkdir()
    other = opened(migrated_file.copy(tmp_path / "elsewhere"))
    yield other
    other.store.close()


@pytest.fixture
def across(database_kind: str, elsewhere: World, migrated_databases: MigratedDatabases) -> Iterator[World]:
    """An empty database of the other kind."""
    if database_kind == "postgresql":
        yield elsewhere
        return
    with migrated_databases.lent() as url:
        other = opened(url)
        yield other
        other.store.close()


def exported(world: World, thread: str = THREAD) -> list[str]:
    """A Thread's archive."""
    return list(world.store.export(thread))


def rows(store: SqlStore, sql: str, **params: Any) -> list[Any]:
    """What a statement finds."""
    return list(store._database.read(lambda tx: tx.all(sql, params)))


def everything(store: SqlStore) -> dict[str, list[Any]]:
    """All rows of the tables that an import writes to."""
    tables = ("threads", "submissions", "records", "approvals", "unknown_calls", "unknown_resolutions", "objects")
    return {table: sorted(rows(store, f"SELECT * FROM {table}"), key=repr) for table in tables}


def test_import_keeps_what_was_and_gives_nobody_the_ownership(world: World, across: World):
    """Receipts, keys, sequences, times and commands are kept; no ownership; equal tail; exported again, the same (EXP-001)."""
    found = lived_in(world)
    world.now += 50
    archive = exported(world)
    imported = across.store.import_thread(archive, now=across.now)
    tail = world.store.tail(THREAD)
    assert Tail(imported.tail_sequence, imported.tail_digest) == tail == across.store.tail(THREAD)
    assert (imported.thread_id, imported.object_id, imported.submissions) == (THREAD, THREAD, len(found))
    assert exported(across) == archive
    for sid in found.values():
        before, after = world.store.snapshot(sid), across.store.snapshot(sid)
        assert before == after
        assert after.ownership is None
    receipt = across.submit("settled")
    assert receipt.replayed
    assert receipt.submission_id == found["settled"]
    assert across.one(submit("settled", "other")).refusal.code == AdmissionConflict.code
    assert across.store.records(THREAD, after=0, limit=100) == world.store.records(THREAD, after=0, limit=100)
    assert across.store.survey(THREAD) == world.store.survey(THREAD)


def test_imported_work_goes_on(world: World, across: World):
    """Commands work on what was imported, and the next claim is past every epoch of the source."""
    found = lived_in(world)
    across.store.import_thread(exported(world), now=across.now)
    across.answer_approval(found["suspended"], "also", Decision.APPROVED)
    across.resolve(found["unknown"], "other", ResolutionKind.SAFE_TO_RETRY)
    assert state(across, found["unknown"]) == state(across, found["suspended"]) == "input-applied"
    claim = across.begin(attempt="new")
    assert claim.submission_id == found["unknown"]
    assert claim.epoch > max(row[0] for row in rows(world.store, "SELECT epoch FROM threads"))
    across.finish(across.append(claim, ("r", RepairAnnotated(reason="note")), batch_id="b"))
    for _ in ("suspended", "queued"):
        across.finish(across.begin(attempt="x"))
    assert across.store.view(THREAD).nonterminal == 0


@on_sqlite
def test_import_leaves_an_old_mark(world: World, elsewhere: World):
    """The next sweep finds the object at once, whatever marks it had before."""
    lived_in(world)
    archive = exported(world)
    elsewhere.submit("k", thread="neighbour")
    elsewhere.store.import_thread(archive, object_id="neighbour", now=elsewhere.now + 5)
    (mark,) = elsewhere.store.old_marks(before=1, limit=10)
    assert (mark.object_id, mark.marked_at) == ("neighbour", 0)
    assert mark.mark >= elsewhere.now + 5
    assert {view.thread_id for view in elsewhere.store.survey("neighbour").threads} == {"neighbour", THREAD}


def test_export_is_one_moment(world: World, elsewhere: World):
    """What commits while an archive is read is not in it."""
    lived_in(world)
    before = exported(world)
    reading = world.store.export(THREAD)
    lines = [next(reading)]
    world.submit("meanwhile")
    world.abort(ids.submission_id(THREAD, "pat", "queued"))
    lines += reading
    assert lines == before
    assert exported(world) != before
    assert elsewhere.store.import_thread(lines, now=1).submissions == 6


@on_sqlite
def test_thread_without_a_log_has_no_archive(world: World):
    """Exporting what does not exist says so (LOG-012)."""
    with pytest.raises(ThreadNotMaterialized):
        exported(world, "nobody")


@pytest.mark.parametrize("target", ["thread", "receipt"])
def test_import_meets_an_empty_thread_or_changes_nothing(world: World, across: World, target: str):
    """A Thread with anything in it, the same receipt among it, refuses (EXP-002, EXP-007)."""
    lived_in(world)
    archive = exported(world)
    across.submit("another" if target == "thread" else "settled")
    before = everything(across.store)
    with pytest.raises(ArchiveRefused) as refused:
        across.store.import_thread(archive, now=1)
    assert refused.value.reason == "not-empty"
    assert everything(across.store) == before


def test_submission_that_is_there_under_another_thread_refuses(world: World, across: World):
    """An identity is taken once in a database, wherever it stands (EXP-007)."""
    found = lived_in(world)
    across.submit("k", thread="other")
    across.store._database.write(
        lambda tx: tx.run("UPDATE submissions SET submission_id = :sid", {"sid": found["queued"]})
    )
    before = everything(across.store)
    with pytest.raises(ArchiveRefused) as refused:
        across.store.import_thread(exported(world), now=1)
    assert refused.value.reason == "duplicate-submission"
    assert everything(across.store) == before


@on_sqlite
def test_same_key_in_another_thread_is_no_conflict(world: World, elsewhere: World):
    """Keys belong to their Thread (EXP-008)."""
    lived_in(world)
    elsewhere.submit("settled", thread="other")
    assert elsewhere.store.import_thread(exported(world), now=1).thread_id == THREAD


@on_sqlite
def test_empty_thread_that_is_there_takes_an_archive(world: World, elsewhere: World):
    """A Thread whose row exists and holds nothing is as good as none, and keeps its object."""
    lived_in(world)
    elsewhere.store._database.write(
        lambda tx: tx.run(
            "INSERT INTO threads (thread_id, object_id, created_at, materialized, queue_last, epoch, tail_sequence,"
            " tail_digest) VALUES (:thread, 'host', 1, 0, 0, 40, 0, :digest)",
            {"thread": THREAD, "digest": EMPTY_TAIL},
        )
    )
    assert elsewhere.store.import_thread(exported(world), now=1).object_id == "host"
    assert rows(elsewhere.store, "SELECT epoch FROM threads") == [(40,)]


@on_sqlite
def test_open_call_of_the_archive_is_not_executed(world: World, elsewhere: World):
    """A declared call without a result is a question for recovery: it becomes unknown, and nobody may run it (EXP-005)."""
    world.submit("k1")
    world.respond(world.begin(), calls=[call("pay")])
    elsewhere.store.import_thread(exported(world), now=1)
    (snapshot,) = elsewhere.store.recovery_page(THREAD, after=0, limit=10)
    assert (snapshot.state.value, snapshot.ownership) == ("input-applied", None)
    recover_thread(elsewhere.store, THREAD, producer_id="p", attempt_id="recovery", clock=StepClock(elsewhere.now))
    assert state(elsewhere, snapshot.submission_id) == "unknown"
    assert elsewhere.try_begin(attempt="a2") is None


@on_sqlite
def test_checkpoints_stay_behind(world: World, elsewhere: World):
    """What is derived is not copied; it can be built again (EXP-014)."""
    world.run_through("k1")
    tail = world.store.tail(THREAD)
    world.store.save_checkpoint(Checkpoint(THREAD, tail.sequence, tail.digest, "view"), now=1)
    elsewhere.store.import_thread(exported(world), now=1)
    assert elsewhere.store.load_checkpoint(THREAD, at_or_before=99) is None
    elsewhere.store.save_checkpoint(Checkpoint(THREAD, tail.sequence, tail.digest, "again"), now=1)
    assert elsewhere.store.load_checkpoint(THREAD, at_or_before=99).body == "again"


def header_of(lines: list[Any]) -> Any:
    return lines[0]


DAMAGE: dict[str, tuple[str, Callable[[list[Any]], object]]] = {
    "predecessor": ("format", lambda lines: header_of(lines).update(version=0)),
    "successor": ("format", lambda lines: header_of(lines).update(version=2)),
    "foreign": ("format", lambda lines: header_of(lines).update(format="snapshot")),
    "unknown field": ("malformed", lambda lines: of_type(lines, "submission")[0].update(priority=1)),
    "unknown type": ("malformed", lambda lines: lines.insert(1, {"type": "lease"})),
    "record before the ledger": ("malformed", lambda lines: lines.insert(1, of_type(lines, "record")[0])),
    "two headers": ("malformed", lambda lines: lines.insert(1, lines[0])),
    "record missing": ("malformed", lambda lines: lines.remove(of_type(lines, "record")[3])),
    "record changed": (
        "digest-chain",
        lambda lines: of_type(lines, "record")[3]["record"]["payload"].update(output="forged"),
    ),
    "input changed": (
        "contradiction",
        lambda lines: of_type(lines, "record")[1]["record"]["payload"].update(input="forged"),
    ),
    "records swapped": (
        "contradiction",
        lambda lines: (
            of_type(lines, "record")[2].update(sequence=2),
            of_type(lines, "record")[1].update(sequence=3),
        ),
    ),
    "gap": (
        "sequence-contiguity",
        lambda lines: [record.update(sequence=record["sequence"] + 1) for record in of_type(lines, "record")[-2:]],
    ),
    "kind unknown": (
        "schema-round-trip",
        lambda lines: of_type(lines, "record")[0]["record"]["payload"].update(kind="Unheard"),
    ),
    "record id twice": (
        "record-identity",
        lambda lines: of_type(lines, "record")[3]["record"].update(
            recordId=of_type(lines, "record")[2]["record"]["recordId"]
        ),
    ),
    "another tail": ("malformed", lambda lines: header_of(lines)["tail"].update(digest="0" * 64)),
    "foreign thread": ("identity", lambda lines: header_of(lines).update(threadId="thread-2")),
    "foreign key": ("identity", lambda lines: of_type(lines, "submission")[0].update(idempotencyKey="mine")),
    "forged receipt": ("identity", lambda lines: of_type(lines, "submission")[0].update(receiptId="rcp-1")),
    "queue place taken": ("contradiction", lambda lines: of_type(lines, "submission")[1].update(queueSequence=1)),
    "queue too long": ("contradiction", lambda lines: header_of(lines).update(queueLast=2)),
    "other outcome": (
        "ledger-canonical-agreement",
        lambda lines: of_type(lines, "submission")[0].update(outcome="aborted"),
    ),
    "settled without a record": (
        "ledger-canonical-agreement",
        lambda lines: of_type(lines, "submission")[5].update(state="settled", outcome="completed", settledAt=1),
    ),
    "settled without an outcome": ("contradiction", lambda lines: of_type(lines, "submission")[0].update(outcome=None)),
    "state forged": (
        "ledger-canonical-agreement",
        lambda lines: of_type(lines, "submission")[5].update(state="input-applied", inputApplied=4),
    ),
    "queued input changed": ("contradiction", lambda lines: of_type(lines, "submission")[5].update(input='"x"')),
    "queued input missing": ("reference", lambda lines: of_type(lines, "submission")[5].update(input=None)),
    "input elsewhere": ("contradiction", lambda lines: of_type(lines, "submission")[0].update(inputApplied=3)),
    "joined to nobody": (
        "reference",
        lambda lines: of_type(lines, "submission")[5].update(state="joining", hostSubmissionId="sub-none"),
    ),
    "approval of nobody": ("reference", lambda lines: of_type(lines, "approval")[0].update(submissionId="sub-none")),
    "approval invented": ("contradiction", lambda lines: of_type(lines, "approval")[0].update(toolCallId="invented")),
    "approval left out": ("contradiction", lambda lines: lines.remove(of_type(lines, "approval")[1])),
    "approval twice": ("identity", lambda lines: lines.insert(7, of_type(lines, "approval")[0])),
    "unknown call left out": ("contradiction", lambda lines: lines.remove(of_type(lines, "unknown-call")[0])),
    "resolution of another sort": (
        "contradiction",
        lambda lines: of_type(lines, "resolution")[0].update(category="permission"),
    ),
    "record of nobody": ("reference", lambda lines: of_type(lines, "record")[1].update(submissionId="sub-none")),
    "redacted on its own": (
        "contradiction",
        lambda lines: of_type(lines, "record")[1]["record"]["payload"].update(
            input=None, redacted={"digest": "0" * 64, "bytes": 1}
        ),
    ),
    "negative time": ("malformed", lambda lines: of_type(lines, "submission")[0].update(admittedAt=-1)),
}


@on_sqlite
def test_archive_that_does_not_hold_together_changes_nothing(world: World, elsewhere: World):
    """Formats, digests, chain, references, identities and bounds are checked before any write (EXP-004)."""
    lived_in(world)
    archive = exported(world)
    before = everything(elsewhere.store)
    found = {}
    for name, (_, damage) in DAMAGE.items():
        try:
            elsewhere.store.import_thread(changed(archive, damage), now=1)
        except ArchiveRefused as refused:
            found[name] = refused.reason
    assert found == {name: reason for name, (reason, _) in DAMAGE.items()}
    assert everything(elsewhere.store) == before


@on_sqlite
def test_archive_cut_or_changed_anywhere_is_refused(world: World, elsewhere: World):
    """Every prefix, and every single changed byte, is noticed (EXP-004)."""
    lived_in(world)
    archive = exported(world)
    text = "".join(archive)
    drawn = random.Random(20)
    damaged = [archive[:count] for count in range(len(archive))]
    damaged += [[*archive, archive[-1]], [*archive, "{}\n"], ["\n", *archive], [line[:-9] for line in archive]]
    for at in drawn.sample(range(len(text) - 1), 40):
        other = chr(ord(text[at]) ^ 1)
        damaged.append((text[:at] + other + text[at + 1 :]).splitlines(keepends=True))
    for lines in damaged:
        with pytest.raises(ArchiveRefused):
            check_archive(lines)
    assert check_archive(archive).verification.ok


@on_sqlite
def test_line_and_count_bounds(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A line past 16 MiB and lines past the limit of an export are refused without being taken in."""
    lived_in(world)
    archive = exported(world)
    file = tmp_path / "thread.jsonl"
    file.write_text("".join(archive))
    assert check_archive(ArchiveFile(file)).header.thread_id == THREAD
    monkeypatch.setattr("thread_objects.archives.LINE_BYTES_MAX", 200)
    with pytest.raises(ArchiveRefused) as refused:
        check_archive(ArchiveFile(file))
    assert (refused.value.reason, refused.value.line) == ("bounds", 1)
    monkeypatch.undo()
    file.write_bytes(b"\xff\n")
    with pytest.raises(ArchiveRefused):
        check_archive(ArchiveFile(file))
    monkeypatch.setattr(limits, "EXPORT_RECORDS_MAX", 5)
    with pytest.raises(ArchiveRefused) as refused:
        check_archive(archive)
    assert refused.value.reason == "bounds"
    monkeypatch.setattr("storage.archiving.EXPORT_RECORDS_MAX", 5)
    with pytest.raises(InvalidInput) as too_long:
        exported(world)
    assert (too_long.value.limit, too_long.value.maximum) == ("export-records", 5)


@on_sqlite
def test_archive_is_read_twice(world: World, elsewhere: World):
    """An iterator cannot be; and an archive that is another one the second time changes nothing."""
    lived_in(world)
    archive = exported(world)
    with pytest.raises(InvalidInput):
        elsewhere.store.import_thread(iter(archive), now=1)

    class Changing:
        def __init__(self) -> None:
            self.reads = 0

        def __iter__(self) -> Iterator[str]:
            self.reads += 1
            other = changed(archive, lambda lines: of_type(lines, "submission")[0].update(claims=9))
            return iter(archive if self.reads <= 2 else other)

    before = everything(elsewhere.store)
    with pytest.raises(ArchiveRefused) as refused:
        elsewhere.store.import_thread(Changing(), now=1)
    assert refused.value.reason == "archive-digest"
    assert everything(elsewhere.store) == before


@on_sqlite
def test_damaged_log_is_not_exported(world: World):
    """An archive of a log that does not hold together has no trailer (and is nobody's backup)."""
    lived_in(world)
    world.store._database.write(
        lambda tx: tx.run('UPDATE records SET body = \'{"kind":"RunStarted"}\' WHERE sequence = 3', {})
    )
    lines: list[str] = []
    with pytest.raises(CorruptRecord) as corrupt:
        lines.extend(world.store.export(THREAD))
    assert corrupt.value.decoder == "digest-chain"
    with pytest.raises(ArchiveRefused):
        check_archive(lines)


def test_archive_lines_are_canonical(world: World):
    """The same Thread has the same archive, byte for byte, on either database; every line is one JSON document."""
    lived_in(world)
    archive = exported(world)
    assert sealed([parse(line) for line in archive]) == archive
    assert [parse(line)["type"] for line in (archive[0], archive[-1])] == ["header", "trailer"]
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in archive)


def test_pages_of_an_export_are_joined(world: World, across: World, monkeypatch: pytest.MonkeyPatch):
    """However small the pages, nothing is left out or told twice."""
    lived_in(world)
    whole = exported(world)
    monkeypatch.setattr("storage.archiving._ROWS", 1)
    monkeypatch.setattr("storage.archiving._RECORDS", 1)
    assert exported(world) == whole
    across.store.import_thread(whole, now=1)
    assert exported(across) == whole


@on_sqlite
def test_parent_comes_after_its_children(world: World, elsewhere: World):
    """Reservations travel with the parent; the child that one names must be there first."""
    ties = SqlTies(world.store._database, StoreLimits())
    world.submit("k1")
    claim = world.begin()
    child = world.submit("k1", thread="child").submission_id
    ties.reserve_child(claim, "reservation-1", "call-1", {"turns": 3}, now=world.now)
    ties.attach_child(claim, "reservation-1", child, now=world.now)
    parent, children = exported(world), exported(world, "child")
    with pytest.raises(ArchiveRefused) as refused:
        elsewhere.store.import_thread(parent, now=1)
    assert refused.value.reason == "reference"
    elsewhere.store.import_thread(children, now=1)
    elsewhere.store.import_thread(parent, now=1)
    assert exported(elsewhere) == parent
    held = elsewhere.store.snapshot(claim.submission_id).child_attachments
    assert [attached.child_submission_id for attached in held] == [child]


@on_sqlite
def test_joined_input_travels_with_its_host(world: World, elsewhere: World):
    """Input that a Run took stands among its records, under its own identity."""
    ties = SqlTies(world.store._database, StoreLimits())
    world.submit("k1")
    claim = world.begin()
    joined = world.submit("k2").submission_id
    (taken,) = ties.claim_joining(claim, 1, now=world.now)
    record = UserInputRecorded(
        submission_id=joined, input_kind="steering", run_id=ids.run_id(claim.submission_id), input=taken.input
    )
    batch = world.batch(ids.input_batch(joined), (ids.input_record(joined), record))
    ties.apply_joined(claim, joined, batch, now=world.now)
    archive = exported(world)
    elsewhere.store.import_thread(archive, now=1)
    assert exported(elsewhere) == archive
    assert state(elsewhere, joined) == "joined"


KEPT_OUT = {
    "submissions": {"thread_id", "object_id", "admitted_by", "abort_by"},
    "approvals": {"decided_by"},
    "unknown_resolutions": {"resolved_by"},
}
"""Columns that an archive does not have: whose Thread it is stands in the header, batch items mean nothing elsewhere."""
STAYS = {"objects", "threads", "records", "faults", "fault_recipients", "checkpoints", "deployments", "workers"}
STAYS |= {"recovery_events", "recovery_event_counters", "work_items"}
"""Tables that an archive has in another form, or not at all."""


def test_every_fact_of_the_ledger_is_in_the_archive():
    """A column or a table that somebody adds is archived, or kept out on purpose."""
    archived = {table: set(_columns(kind)) for kind, (table, _) in _TABLES.items()}
    declared = {table.name: {column.name for column in table.columns} for table in SQLModel.metadata.tables.values()}
    assert set(declared) - STAYS == set(archived)
    for table, columns in archived.items():
        assert columns == declared[table] - KEPT_OUT.get(table, set())
