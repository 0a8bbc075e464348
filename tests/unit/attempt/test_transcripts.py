"""What is remembered of a Thread is a guess until the log confirms it."""

import pytest

from activities import transcripts
from activities.transcripts import Transcripts
from tests.unit.attempt.rig import AGENT, Rig, Script, says, scripted
from thread_objects.agents import bind


@pytest.fixture
def thread(rig: Rig, script: Script) -> Rig:
    """A Thread with two settled inputs."""
    script.steps = {"one": [says("1")], "two": [says("2")], "three": [says("3")]}
    rig.serve(bind(scripted(script), id=AGENT))
    for prompt in ("one", "two"):
        rig.submit(prompt)
        rig.settle()
    return rig


class Counting:
    """A store that notes what is read of the log."""

    def __init__(self, store) -> None:
        self._store = store
        self.read: list[int] = []

    def records(self, thread_id, *, after, limit):
        self.read.append(after)
        return self._store.records(thread_id, after=after, limit=limit)


def test_a_follow_up_reads_only_what_is_new(thread: Rig):
    """One read, from the last record that is known."""
    kept = Transcripts()
    first = kept.read(thread.store, "thread")
    last = thread.store.records("thread", after=first.through - 1, limit=1)[0].record_id
    kept.keep(thread.store, "thread", first, last, now=0)
    thread.submit("three")
    thread.settle()
    store = Counting(thread.store)
    again = kept.read(store, "thread")
    assert again is first
    assert store.read == [10]
    assert len(again.runs) == 3
    assert again.through == thread.store.tail("thread").sequence


def test_a_log_that_is_not_the_one_that_was_known_is_read_anew(thread: Rig):
    """A restored database, or a stale memory: everything is read, nothing is trusted."""
    kept = Transcripts()
    first = kept.read(thread.store, "thread")
    kept.keep(thread.store, "thread", first, "another-record", now=0)
    store = Counting(thread.store)
    again = kept.read(store, "thread")
    assert again is not first
    assert store.read == [first.through - 1, 0]


def test_a_transcript_in_use_is_in_nobody_elses_hands(thread: Rig):
    """Taking it removes it; a second reader reads for itself."""
    kept = Transcripts()
    first = kept.read(thread.store, "thread")
    kept.keep(thread.store, "thread", first, "settlement", now=0)
    assert kept.read(thread.store, "thread") is not kept.read(thread.store, "thread")


def test_memory_is_bounded_by_threads_and_by_bytes(thread: Rig, monkeypatch):
    """The least recently used goes first; one that is larger than the bound is not kept at all."""
    monkeypatch.setattr(transcripts, "THREADS_MAX", 2)
    kept = Transcripts()
    known = kept.read(thread.store, "thread")
    for name in ("a", "b", "c"):
        kept.keep(thread.store, name, known, "last", now=0)
    assert list(kept._kept) == ["b", "c"]
    monkeypatch.setattr(transcripts, "BYTES_MAX", known.weight_bytes)
    kept.keep(thread.store, "d", known, "last", now=0)
    assert list(kept._kept) == ["d"]
    assert kept._bytes == known.weight_bytes
    monkeypatch.setattr(transcripts, "BYTES_MAX", known.weight_bytes - 1)
    kept.keep(thread.store, "e", known, "last", now=0)
    assert (list(kept._kept), kept._bytes) == ([], 0)


def test_memory_is_counted_by_what_was_said(thread: Rig, script: Script):
    """A long text weighs more than a short one; a Thread that is taken up again weighs what it did."""
    kept = Transcripts()
    before = kept.read(thread.store, "thread").weight_bytes
    script.steps["long " + "x" * 50_000] = [says("y" * 50_000)]
    thread.submit("long " + "x" * 50_000)
    thread.settle()
    after = kept.read(thread.store, "thread").weight_bytes
    assert 200_000 < after - before < 300_000
    assert Transcripts().read(thread.store, "thread").weight_bytes == after


def test_records_of_others_in_between_are_not_missed(thread: Rig, script: Script):
    """An abort of queued work is published by somebody else while a Run appends: the next Run still reads all."""

    def aborts(_messages):
        thread.abort(queued)
        return says("3")

    script.steps["three"] = [aborts]
    script.steps["queued"] = [says("never")]
    script.steps["after"] = [says("after")]
    sid = thread.submit("three")
    queued = thread.submit("queued")
    thread.settle()
    assert thread.settlement(sid)["result"] == "3"
    assert thread.settlement(queued)["outcome"] == "aborted"
    thread.submit("after")
    assert thread.settle() == ["settled"]
    said = [part.content for message in script.seen[-1] for part in message.parts]
    assert said == ["one", "1", "two", "2", "three", "3", "after"]
