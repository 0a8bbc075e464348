"""A long Thread is taken up from checkpoints: as the log would have it, from few rows, and from the log itself where they fail."""

import contextlib
import sqlite3

import pytest

from activities import prefixes
from activities.transcripts import Transcripts
from storage.sqlite import SqliteTransaction
from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import ToolPolicy, bind
from thread_objects.agents.transcript import Transcript
from thread_objects.contract import limits
from thread_objects.contract.records import ModelResponseRecorded, RunStarted, UserInputRecorded
from thread_objects.contract.states import Outcome
from thread_objects.core import batches
from thread_objects.core.canonical import canonical
from thread_objects.errors import StoreUnavailable

THREAD = "thread"
SEEN = "seen\x00" + "é" * 40
PROMPTS = ["p0", "p1 \ud800", *(f"p{number}" for number in range(2, 8))]
RECORDS_PER_RUN = 4


@pytest.fixture
def long(rig: Rig, script: Script, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A Thread whose checkpoints are due every ten records, with tools, odd texts and a lone surrogate."""
    monkeypatch.setattr(prefixes, "RECORDS_MIN", 10)
    agent = scripted(script)

    @agent.tool_plain
    def look() -> str:
        return SEEN

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolPolicy()}))
    for number, prompt in enumerate(PROMPTS):
        script.steps[prompt] = [calls(("look", f"c{number}")), says(f"a{number} \x1a ☃")]
        rig.submit(prompt)
        assert rig.settle() == ["settled"]
    return rig


def folded(rig: Rig) -> Transcript:
    """The fold of the log itself."""
    transcript = Transcript()
    transcript.extend(rig.store.records(THREAD, after=0, limit=1_024))
    return transcript


def taken_up(rig: Rig) -> Transcript:
    """What a new process takes up."""
    return Transcripts().read(rig.store, THREAD, tail=rig.store.tail(THREAD).sequence, now=1)


def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the rows that statements give from now on."""
    counted: list[int] = []
    original_all, original_one = SqliteTransaction.all, SqliteTransaction.one

    def counting_all(self, sql, params):
        rows = original_all(self, sql, params)
        counted.append(len(rows))
        return rows

    def counting_one(self, sql, params):
        row = original_one(self, sql, params)
        counted.append(int(row is not None))
        return row

    monkeypatch.setattr(SqliteTransaction, "all", counting_all)
    monkeypatch.setattr(SqliteTransaction, "one", counting_one)
    return counted


def test_a_thread_taken_up_from_checkpoints_is_the_fold_of_its_log(long: Rig):
    """Run for Run the same, whatever was said in it; only the end is read from the log."""
    chain = long.store.checkpoint_chain(THREAD)
    assert chain[-1].sequence >= 40
    found = taken_up(long)
    assert found.runs == folded(long).runs
    assert list(found.runs) == list(folded(long).runs)
    assert (found.through, found.since) == (long.store.tail(THREAD).sequence, chain[-1].sequence)
    assert sum(len(batch.payloads) for batch in found.recent) <= 10


def test_a_run_goes_on_after_a_restart_with_all_that_was_said(long: Rig, script: Script):
    """The model reads the same conversation whether it was remembered or taken up."""
    script.steps["last"] = [says("end")]
    long.restart()
    long.submit("last")
    assert long.settle() == ["settled"]
    said = [getattr(part, "content", "") for message in script.seen[-1] for part in message.parts]
    assert [text for text in said if text in PROMPTS] == PROMPTS
    assert said.count(SEEN) == 8


def test_short_threads_pay_nothing(rig: Rig, script: Script, monkeypatch: pytest.MonkeyPatch):
    """Nothing is asked or written about checkpoints before one is due, from memory or after a restart."""
    seen: list[str] = []
    original = SqliteTransaction.all
    monkeypatch.setattr(
        SqliteTransaction, "all", lambda self, sql, params: seen.append(sql) or original(self, sql, params)
    )
    rig.serve(bind(scripted(script), id=AGENT))
    for prompt in ("one", "two", "three"):
        script.steps[prompt] = [says(prompt)]
        rig.submit(prompt)
        rig.settle()
        rig.restart()
    assert seen
    assert not any("checkpoints" in sql for sql in seen)


def test_a_checkpoint_that_does_not_fit_is_passed_over_and_written_anew(long: Rig):
    """Another digest, text that is no JSON, a format of another version: the log is read, and heals what is stored."""
    whole = folded(long).runs
    for damage in (
        "UPDATE checkpoints SET digest = 'x'",
        "UPDATE checkpoints SET body = 'no json'",
        """UPDATE checkpoints SET body = '{"format":9,"facts":"[]"}'""",
        """UPDATE checkpoints SET body = '{"format":1,"facts":"[{}]"}'""",
        "DELETE FROM checkpoints",
    ):
        long.store._database.write(lambda tx, damage=damage: tx.run(damage, {}))
        assert taken_up(long).runs == whole
        assert prefixes.read(long.store, THREAD) is None or "facts" not in damage
        long.store._database.write(lambda tx: tx.run("DELETE FROM checkpoints", {}))
        assert taken_up(long).runs == whole
        assert prefixes.read(long.store, THREAD).runs == whole


def test_pieces_are_bounded_and_follow_one_another(long: Rig, monkeypatch: pytest.MonkeyPatch):
    """A piece grows until it is full, then the next begins; what is too large for any is left to the log."""
    whole = folded(long).runs
    for limit in (200, 1_000, 4_000):
        monkeypatch.setattr(prefixes, "PIECE_BYTES_MAX", limit)
        long.store._database.write(lambda tx: tx.run("DELETE FROM checkpoints", {}))
        taken_up(long)
        pieces = long.store.load_checkpoints(THREAD)
        assert [piece.follows for piece in pieces] == [0, *(piece.sequence for piece in pieces[:-1])]
        texts = [piece.body["facts"] for piece in pieces]
        assert all(text is None or len(text.encode()) <= limit + len(pieces) * 300 for text in texts)
        assert (None in texts) == (limit == 200)
        assert prefixes.read(long.store, THREAD).runs == whole


def test_two_workers_write_one_chain(long: Rig, script: Script):
    """What another process wrote meanwhile is gone on from, and never written twice."""
    mine, others = Transcripts(), Transcripts()

    def settle(prompt: str) -> None:
        script.steps[prompt] = [calls(("look", prompt)), says(prompt)]
        long.submit(prompt)
        assert long.settle() == ["settled"]

    tail = long.store.tail(THREAD).sequence
    mine_has, others_have = (kept.read(long.store, THREAD, tail=tail) for kept in (mine, others))
    for number in range(6):
        settle(f"more{number}")
        for transcript in (mine_has, others_have):
            transcript.extend(long.store.records(THREAD, after=transcript.through, limit=1_024))
            prefixes.save(long.store, THREAD, transcript, now=1)
    end = long.store.tail(THREAD).sequence
    assert long.store.checkpoint_chain(THREAD)[-1].sequence == end
    assert (mine_has.since, others_have.since) == (end, end)
    assert prefixes.read(long.store, THREAD).runs == folded(long).runs


def test_a_memory_that_is_far_behind_catches_up_record_by_record(long: Rig, monkeypatch: pytest.MonkeyPatch):
    """Checkpoints of another worker may end past what is known here: nothing in between is taken for read."""
    monkeypatch.setattr(limits, "READ_PAGE_RECORDS_MAX", 16)
    kept, behind = Transcripts(), Transcript()
    behind.extend(long.store.records(THREAD, after=0, limit=6))
    last = long.store.records(THREAD, after=5, limit=1)[0]
    kept.keep(long.store, THREAD, behind, last.record_id, now=1)
    tail = long.store.tail(THREAD).sequence
    assert long.store.checkpoint_chain(THREAD)[-1].sequence > 6 + 16
    caught_up = kept.read(long.store, THREAD, tail=tail, now=1)
    assert caught_up is behind
    assert caught_up.through == tail
    assert caught_up.runs == folded(long).runs


def test_a_store_that_is_away_keeps_no_settlement_back(long: Rig, script: Script, monkeypatch: pytest.MonkeyPatch):
    """A checkpoint that cannot be written now is written later."""

    def away(*_args, **_named):
        raise StoreUnavailable(reason="away")

    with monkeypatch.context() as patch:
        patch.setattr(type(long.store), "checkpoint_chain", away)
        for number in range(4):
            script.steps[f"away{number}"] = [says("ok")]
            long.submit(f"away{number}")
            assert long.settle() == ["settled"]
    before = long.store.checkpoint_chain(THREAD)[-1].sequence
    script.steps["back"] = [says("ok")]
    long.submit("back")
    assert long.settle() == ["settled"]
    assert long.store.checkpoint_chain(THREAD)[-1].sequence > before
    assert prefixes.read(long.store, THREAD).runs.keys() <= folded(long).runs.keys()


def grow(rig: Rig, records: int) -> None:
    """Settled Runs of four records each behind the Thread's tail, written as the log would hold them."""
    tail = rig.store.tail(THREAD)
    rows = []
    for number in range(tail.sequence + 1, tail.sequence + records, RECORDS_PER_RUN):
        sid, run = f"sub-{number}", f"run:sub-{number}"
        answer = {"kind": "response", "parts": [{"part_kind": "text", "content": f"answer {number}"}]}
        facts = (
            UserInputRecorded(submission_id=sid, run_id=run, input=f"text {number}"),
            RunStarted(run_id=run, started_at=1, deadline_at=2),
            ModelResponseRecorded(run_id=run, turn_id="t", turn=1, messages=[answer], messages_digest="d"),
            batches.settled(sid, "rcp", Outcome.COMPLETED, run_id=run, result="done"),
        )
        for place, fact in enumerate(facts):
            digest = f"digest {number}" if place == RECORDS_PER_RUN - 1 else None
            body = canonical(fact.model_dump(mode="json", by_alias=True))
            sequence = number + place
            rows.append((THREAD, sequence, f"rec-{sequence}", f"bat-{number}", fact.kind, 1, 1, "", sid, digest, body))
    with contextlib.closing(sqlite3.connect(rig.store._database._path)) as connection, connection:
        connection.executemany(f"INSERT INTO records VALUES ({', '.join('?' * 11)})", rows)
        connection.execute("UPDATE threads SET tail_sequence = ?, tail_digest = ?", (rows[-1][1], rows[-1][9]))


def test_a_new_input_reads_a_bounded_number_of_rows(rig: Rig, script: Script, monkeypatch: pytest.MonkeyPatch):
    """After a restart, an input on a Thread of 20 000 records reads about as many rows as on one of 1 000."""
    rig.serve(bind(scripted(script), id=AGENT))
    script.steps["next"] = [says("ok")]
    rig.submit("next")
    rig.settle()
    read: dict[int, int] = {}
    for target in (1_000, 20_000):
        grow(rig, target - rig.store.tail(THREAD).sequence - RECORDS_PER_RUN)
        taken_up(rig)  # a process that serves it writes its checkpoints
        rig.restart()
        with monkeypatch.context() as patch:
            counted = rows_read(patch)
            rig.submit("next", key=f"cold-{target}")
            assert rig.settle() == ["settled"]
            read[target] = sum(counted)
            counted.clear()
            rig.submit("next", key=f"warm-{target}")
            assert rig.settle() == ["settled"]
            assert sum(counted) < 60
    assert rig.store.tail(THREAD).sequence > 20_000
    assert len(script.seen[-1]) > 9_000
    assert read[20_000] < read[1_000] + 100


def test_what_retention_removed_is_not_brought_back(long: Rig):
    """A transcript that goes on after its checkpoints were removed writes none with a gap."""
    tail = long.store.tail(THREAD).sequence
    transcript = Transcripts().read(long.store, THREAD, tail=tail)
    with sqlite3.connect(long.store._database._path) as connection:
        connection.execute("DELETE FROM checkpoints")
    assert transcript.since > 0
    prefixes.save(long.store, THREAD, transcript, now=1)
    assert long.store.checkpoint_chain(THREAD) == []
