"""Recovery events: who is told of a fault, in which order, and how numbers and deliveries are kept."""

import dataclasses
import threading

import pytest

from storage.recipients import BLOCK
from tests.contract.world import THREAD, World, submit
from thread_objects.core.faults import RecoveryFailure
from thread_objects.errors import CorruptRecord, LedgerError

FAILURE = RecoveryFailure(
    phase="history", reason="failure", error_tag="CorruptRecord", operation="read history", causes=("CorruptRecord",)
)
DEFECT = dataclasses.replace(FAILURE, reason="defect", error_tag="Defect")


def told(world: World, *, after: int = 0) -> list[tuple[int, str, str]]:
    """Number, transition and queue sequence of the stored events."""
    order = {world.store.snapshot(s).submission_id: f"s{world.store.snapshot(s).queue_sequence}" for s in rows(world)}
    return [
        (event.sequence, event.transition.value, order[event.submission_id])
        for event in world.store.recovery_events(THREAD, after=after, limit=10_000)
    ]


def rows(world: World) -> list[str]:
    """All Submissions of the Thread, in order."""
    found = world.store._database.read(
        lambda tx: tx.all(
            "SELECT submission_id FROM submissions WHERE thread_id = 'thread-1' ORDER BY queue_sequence", {}
        )
    )
    return [row[0] for row in found]


def test_a_first_failure_tells_every_row_in_order(world: World):
    """SWP-018: numbers from 1, row by row; the fault counts whom it told."""
    for key in ("k1", "k2"):
        world.submit(key)
    change = world.store.record_fault(THREAD, FAILURE, now=world.now)
    assert told(world) == [(1, "created", "s1"), (2, "created", "s2")]
    assert (change.event_sequence, change.fault.recipients) == (2, 2)
    event = world.store.recovery_events(THREAD, after=1, limit=1)[0]
    assert (event.occurred_at, event.first_failed_at, event.thread_id) == (world.now, world.now, THREAD)
    assert (event.failure.error_tag, event.failure.causes) == ("CorruptRecord", ("CorruptRecord",))


def test_a_plain_retry_tells_nobody(world: World):
    """Counters and deadlines are no news."""
    world.submit("k1")
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.now += 5_000
    again = world.store.record_fault(THREAD, FAILURE, now=world.now)
    assert (again.event_sequence, again.fault.attempts, again.fault.recipients) == (0, 2, 1)
    assert told(world) == [(1, "created", "s1")]


def test_a_changed_failure_reaches_known_rows_before_new_ones(world: World):
    """SWP-020."""
    for key in ("k1", "k2"):
        world.submit(key)
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.submit("k3")
    world.store.record_fault(THREAD, DEFECT, now=world.now + 5_000)
    assert told(world, after=2) == [(3, "changed", "s1"), (4, "changed", "s2"), (5, "created", "s3")]
    assert {event.first_failed_at for event in world.store.recovery_events(THREAD, after=0, limit=9)} == {world.now}


@pytest.mark.parametrize(
    "change",
    [{"operation": "x"}, {"causes": ()}, {"sequence": 7}, {"decoder": "json"}, {"phase": "recovery"}],
    ids=lambda change: next(iter(change)),
)
def test_any_field_makes_a_failure_another_one(world: World, change):
    """The value is compared, not its tag."""
    world.submit("k1")
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.store.record_fault(THREAD, dataclasses.replace(FAILURE, **change), now=world.now)
    assert [transition for _, transition, _ in told(world)] == ["created", "changed"]


def test_a_clear_reaches_settled_rows_too(world: World):
    """Once told of the fault, a Submission is told of its end; a new fault then begins anew."""
    world.submit("k1")
    world.submit("k2")
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.finish(world.begin())
    cleared = world.store.clear_fault(THREAD, now=world.now + 1)
    assert told(world, after=2) == [(3, "cleared", "s1"), (4, "cleared", "s2")]
    assert cleared.event_sequence == 4
    assert world.store.recovery_events(THREAD, after=2, limit=1)[0].failure.error_tag == "CorruptRecord"
    assert world.store.clear_fault(THREAD, now=world.now + 2).event_sequence == 0
    world.store.record_fault(THREAD, FAILURE, now=world.now + 3)
    assert told(world, after=4) == [(5, "created", "s2")]


def test_a_row_admitted_during_backoff_is_told_and_changes_no_retry(world: World):
    """SWP-021: the native scan tells it of the fault; when to retry stays; the Thread is not claimed for it."""
    world.submit("k1")
    fault = world.store.record_fault(THREAD, FAILURE, now=world.now).fault
    world.submit("k2")
    world.now += 1
    assert world.store.note_recipients(THREAD, now=world.now) == 2
    assert told(world) == [(1, "created", "s1"), (2, "created", "s2")]
    kept = world.store.fault(THREAD)
    assert (kept.retry_at, kept.attempts, kept.recipients) == (fault.retry_at, 1, 2)
    assert world.store.note_recipients(THREAD, now=world.now) == 2
    assert len(told(world)) == 2


def test_only_faulted_threads_of_the_object_get_recipients(world: World):
    """Another Thread of the host, and another object, hear nothing."""
    world.apply(submit("k1", thread="a"), submit("k1", thread="b"), object_id="host")
    world.submit("k1")
    world.store.record_fault("a", FAILURE, now=world.now)
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.apply(submit("k2", thread="a"), submit("k2", thread="b"), object_id="host")
    world.store.note_recipients("host", now=world.now)
    events = world.store.recovery_events("host", after=0, limit=10)
    assert [(event.sequence, event.thread_id) for event in events] == [(1, "a"), (2, "a")]
    assert [event.sequence for event in world.store.recovery_events(THREAD, after=0, limit=10)] == [1]
    assert world.store.note_recipients("nobody", now=world.now) == 0


def test_more_rows_than_a_block_are_told_once_each(open_world):
    """Blocks of 128: no row twice, none left out, in order."""
    world = open_world(queue_depth=1_000)
    many = 2 * BLOCK + 3
    for first in range(0, many, 64):
        world.apply(*(submit(f"k{n}") for n in range(first, min(many, first + 64))))
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    assert [number for number, _, _ in told(world)] == list(range(1, many + 1))
    assert [row for _, _, row in told(world)] == [f"s{n}" for n in range(1, many + 1)]
    world.store.clear_fault(THREAD, now=world.now)
    assert [row for _, _, row in told(world, after=many)] == [f"s{n}" for n in range(1, many + 1)]


def test_an_unreadable_fault_is_replaced_and_its_recipients_are_told(world: World):
    """SWP-027: what cannot be read is not used, and whoever knew of it hears what is known now."""
    world.submit("k1")
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.store._database.write(lambda tx: tx.run("UPDATE faults SET causes = '{', recipients = 9", {}))
    world.submit("k2")
    with pytest.raises(CorruptRecord):
        world.store.fault(THREAD)
    assert world.store.note_recipients(THREAD, now=world.now) == 1
    fault = world.store.record_fault(THREAD, FAILURE, now=world.now).fault
    assert (fault.attempts, fault.recipients) == (1, 2)
    assert told(world, after=1) == [(2, "changed", "s1"), (3, "created", "s2")]


# --- delivery ------------------------------------------------------------------------------------------------------


def test_an_acknowledged_event_is_gone_and_its_number_too(world: World):
    """SWP-022, SWP-028: what was not acknowledged stays unchanged; numbers rise whatever was dropped."""
    for key in ("k1", "k2", "k3"):
        world.submit(key)
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    kept = world.store.recovery_events(THREAD, after=1, limit=10)
    standing = world.store.acknowledge_recovery_event(THREAD, 1, now=world.now)
    assert (standing.acknowledged, standing.sequence, standing.pending) == (1, 3, True)
    assert world.store.recovery_events(THREAD, after=0, limit=10) == kept
    assert world.store.acknowledge_recovery_event(THREAD, 1, now=world.now) == standing
    assert not world.store.acknowledge_recovery_event(THREAD, 3, now=world.now).pending
    assert world.store.acknowledge_recovery_event(THREAD, 2, now=world.now).acknowledged == 3
    assert world.store.recovery_events(THREAD, after=0, limit=10) == []
    assert world.store.survey(THREAD).event_sequence == 0
    world.store.clear_fault(THREAD, now=world.now)
    assert [number for number, _, _ in told(world)] == [4, 5, 6]


def test_nobody_acknowledges_what_was_never_stored(world: World):
    """A consumer that is ahead of the object is wrong; nothing is changed."""
    world.submit("k1")
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    for object_id, sequence in ((THREAD, 2), ("nobody", 1)):
        with pytest.raises(LedgerError):
            world.store.acknowledge_recovery_event(object_id, sequence, now=world.now)
    assert world.store.event_standing(THREAD).acknowledged == 0
    assert len(told(world)) == 1


def test_a_survey_tells_that_events_wait(world: World):
    """An answer may be lost after its commit: the next reading of the object tells it again."""
    world.submit("k1")
    assert world.store.survey(THREAD).event_sequence == 0
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.store.clear_fault(THREAD, now=world.now)
    assert world.store.survey(THREAD).event_sequence == 2
    assert world.one(submit("k2")).receipt is not None
    assert world.apply(submit("k3")).survey.event_sequence == 2


def test_an_unreadable_event_is_told_not_skipped(world: World):
    """Delivery stops there; nothing after it overtakes."""
    world.submit("k1")
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.store._database.write(lambda tx: tx.run("UPDATE recovery_events SET failure = '[]'", {}))
    with pytest.raises(CorruptRecord) as corrupt:
        world.store.recovery_events(THREAD, after=0, limit=10)
    assert corrupt.value.decoder == "recovery-event"


def test_threads_that_fail_at_once_share_one_numbering(world: World):
    """Whoever stores events of an object at the same time: each number once, none left out."""
    names = [f"t{n}" for n in range(4)]
    world.apply(*(submit(key, thread=name) for name in names for key in ("k1", "k2")), object_id="host")
    errors: list[BaseException] = []

    def fail(name: str) -> None:
        try:
            for failure in (FAILURE, DEFECT, FAILURE):
                world.store.record_fault(name, failure, now=world.now)
            world.store.clear_fault(name, now=world.now)
        except BaseException as error:
            errors.append(error)

    jobs = [threading.Thread(target=fail, args=(name,)) for name in names]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert errors == []
    events = world.store.recovery_events("host", after=0, limit=1_000)
    assert [event.sequence for event in events] == list(range(1, 4 * 8 + 1))
    for name in names:
        own = [event.transition.value for event in events if event.thread_id == name]
        assert own == ["created"] * 2 + ["changed"] * 4 + ["cleared"] * 2
