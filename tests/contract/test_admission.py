"""Admission: one row per key, the first identities for ever, limits in a fixed order, nothing written on refusal."""

from collections.abc import Callable

import pytest

from storage import open_reader
from tests.contract.world import REGISTRY, THREAD, World, kinds, submit
from thread_objects.contract import ids
from thread_objects.contract.messages import Abort
from thread_objects.core.digests import of_value


def test_repeated_key_answers_the_first_identities(world: World):
    """The same key and input is one Submission, however often it is sent (LED-001)."""
    first = world.submit("k1")
    world.now += 5
    again = world.submit("k1")
    assert again == first.model_copy(update={"replayed": True})
    assert world.store.view(THREAD).nonterminal == 1


def test_first_admission_makes_progress_and_a_duplicate_none(world: World):
    """Only the item that admitted made work possible."""
    assert world.one(submit("k1")).progress
    assert not world.one(submit("k1")).progress


def test_key_with_another_input_conflicts(world: World):
    """A key stands for one input; the row stays as it is (LED-002)."""
    first = world.submit("k1", "one")
    refusal = world.one(submit("k1", "two")).refusal
    assert refusal is not None
    assert refusal.code == "AdmissionConflict"
    assert refusal.fields["existing_input_digest"] == first.input_digest
    assert refusal.fields["attempted_input_digest"] == of_value("two")
    assert world.submit("k1", "one").submission_id == first.submission_id


def test_key_with_another_agent_conflicts(world: World):
    """Facts beside the input that differ from the first admission conflict too (LED-044)."""
    world.submit("k1")
    refusal = world.one(submit("k1", agent="agent-2")).refusal
    assert refusal is not None
    assert refusal.code == "AdmissionConflict"
    assert refusal.fields["existing_input_digest"] == refusal.fields["attempted_input_digest"]


def test_settled_key_is_answered_and_not_run_again(world: World):
    """A replay after the settlement has the original identities and adds no work (LED-004)."""
    first = world.run_through("k1")
    again = world.submit("k1")
    assert again.replayed
    assert again.submission_id == first.submission_id
    assert world.try_begin(attempt="attempt-2") is None


def test_keys_belong_to_their_principal(world: World):
    """Two principals may use the same key on one Thread (LED-005)."""
    one = world.submit("k1", principal="p1")
    two = world.submit("k1", principal="p2")
    assert one.submission_id != two.submission_id
    assert [one.queue_sequence, two.queue_sequence] == [1, 2]
    for receipt in (one, two):
        found = world.store.snapshot(receipt.submission_id)
        assert found is not None
        assert found.receipt_id == receipt.receipt_id


def test_key_order_of_an_input_does_not_matter(world: World):
    """Content is compared, not its spelling (LED-007)."""
    world.submit("k1", {"a": 1, "b": [1, {"c": 2, "d": 3}]})
    assert world.submit("k1", {"b": [1, {"d": 3, "c": 2}], "a": 1}).replayed


def test_admission_materializes_the_thread_once(world: World):
    """The created record precedes everything, and later admissions add none (LED-010)."""
    first = world.submit("k1")
    world.submit("k2")
    assert kinds(world) == ["ThreadCreated"]
    found = world.store.snapshot(first.submission_id)
    assert found is not None
    assert found.thread_materialized
    assert found.state == "ready"


def test_derived_identities_are_the_senders(world: World):
    """What a sender computes before the answer is what the answer says."""
    receipt = world.submit("k1")
    assert receipt.submission_id == ids.submission_id(THREAD, "pat", "k1")
    assert receipt.receipt_id == ids.receipt_id(THREAD, "pat", "k1")
    assert receipt.run_id == ids.run_id(receipt.submission_id)


def test_row_is_found_right_after_its_admission(world: World):
    """Look-ups by id and by key see every earlier write, and an unknown id finds nothing (LED-037, LED-038, LED-040)."""
    receipt = world.submit("k1")
    reader = open_reader(world.url)
    try:
        by_id = reader.status(receipt.submission_id)
        assert by_id is not None
        assert by_id == reader.find(THREAD, "pat", "k1")
        assert (by_id.receipt_id, by_id.queue_sequence, by_id.state) == (receipt.receipt_id, 1, "ready")
        assert reader.status("sub-nobody") is None
        assert reader.find(THREAD, "pat", "k2") is None
        assert reader.find(THREAD, "another", "k1") is None
    finally:
        reader.close()


# --- limits ----------------------------------------------------------------------------------------------------


def test_full_lane_refuses_the_next_and_counts_suspended_work(open_world: Callable[..., World]):
    """Every nonterminal row counts, whatever it waits for (LIM-001)."""
    world = open_world(queue_depth=2)
    world.submit("k1")
    assert world.suspend(world.respond(world.begin()), "c1")
    world.submit("k2")
    refusal = world.one(submit("k3")).refusal
    assert refusal is not None
    assert refusal.code == "AdmissionLimitExceeded"
    assert (refusal.fields["limit"], refusal.fields["actual"], refusal.fields["maximum"]) == ("queue-depth", 2, 2)
    assert world.store.view(THREAD).nonterminal == 2


def test_replay_is_exempt_from_limits(open_world: Callable[..., World]):
    """A known key answers before any limit is looked at (LIM-002)."""
    world = open_world(queue_depth=1)
    first = world.submit("k1")
    assert world.one(submit("k2")).refusal is not None
    assert world.submit("k1").submission_id == first.submission_id


def test_settled_work_leaves_room(open_world: Callable[..., World]):
    """The depth is of what is still owed."""
    world = open_world(queue_depth=1)
    world.run_through("k1")
    assert world.submit("k2").queue_sequence == 2


def test_oversized_input_is_refused_and_writes_nothing(open_world: Callable[..., World]):
    """The refusal names limit, actual and maximum, and not even the Thread comes to be (LIM-004)."""
    world = open_world(input_bytes=512)
    refusal = world.one(submit("k1", "x" * 2_000)).refusal
    assert refusal is not None
    assert refusal.fields["limit"] == "input-bytes"
    assert refusal.fields["maximum"] == 512
    assert refusal.fields["actual"] == 2_002
    assert world.store.survey(THREAD).threads == ()


def test_input_of_exactly_the_maximum_is_accepted(open_world: Callable[..., World]):
    """The bound is inclusive and counts canonical UTF-8 bytes (LIM-005)."""
    world = open_world(input_bytes=512)
    assert world.submit("k1", "x" * 510).queue_sequence == 1
    assert world.one(submit("k2", "x" * 511)).refusal is not None
    assert world.submit("k3", "é" * 255).queue_sequence == 2
    assert world.one(submit("k4", "é" * 256)).refusal is not None


def test_input_bytes_are_checked_before_queue_depth(open_world: Callable[..., World]):
    """The order of limits is fixed (LIM-007)."""
    world = open_world(input_bytes=512, queue_depth=1)
    world.submit("k1")
    refusal = world.one(submit("k2", "x" * 2_000)).refusal
    assert refusal is not None
    assert refusal.fields["limit"] == "input-bytes"


def test_queue_depth_is_checked_before_database_size(open_world: Callable[..., World]):
    """The size of the database comes last."""
    roomy = open_world()
    roomy.submit("k1")
    world = open_world(queue_depth=1, database_bytes=1)
    assert world.one(submit("k2")).refusal.fields["limit"] == "queue-depth"
    refusal = world.one(submit("k1", thread="thread-2")).refusal
    assert refusal.fields["limit"] == "database-bytes"
    assert refusal.fields["actual"] > refusal.fields["maximum"] == 1
    assert world.one(submit("k1")).receipt.replayed


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (float("nan"), None),
        ([float("inf")], None),
        ("x" * 1_048_577, "bytes"),
        ([0] * 4_097, "collection"),
    ],
    ids=["nan", "infinity", "bytes", "collection"],
)
def test_unpersistable_input_refuses_its_item_only(world: World, value: object, limit: str | None):
    """A malformed item is refused typed, and its neighbours are applied (LIM-010, LIM-012)."""
    bad = submit("k2").model_copy(update={"input": value})
    answers = world.apply(submit("k1"), bad, submit("k3")).answers
    assert answers[1].refusal is not None
    assert answers[1].refusal.code == "InvalidInput"
    assert answers[1].refusal.fields["limit"] == limit
    assert [answers[0].receipt.queue_sequence, answers[2].receipt.queue_sequence] == [1, 2]


def test_deep_input_is_refused_without_recursion(world: World):
    """A value nested far past the stack is refused like any other (LIM-008, LIM-011)."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    cycle: list[object] = []
    cycle.append(cycle)
    for value in (deep, cycle):
        refusal = world.one(submit("k1").model_copy(update={"input": value})).refusal
        assert refusal is not None
        assert refusal.fields["limit"] == "depth"


def test_ids_that_fit_no_index_are_refused(world: World):
    """Ids of 256 characters outside ASCII would not fit one database's index: refused on both."""
    wide = "\U0001f9f5" * 256
    refusal = world.one(submit(wide, thread=wide, principal=wide)).refusal
    assert refusal is not None
    assert refusal.code == "InvalidInput"
    assert world.submit(wide, thread=wide).queue_sequence == 1


def test_text_that_no_database_holds_comes_back_as_it_was(world: World):
    """NUL, lone surrogates and large integers are stored reversibly, in ids and in bodies, on both databases."""
    value = {"nul \x00": ["\ud800 lone", 2**70, -(2**53), "\x1a0041", "\U0001f9f5"]}
    receipt = world.one(submit("k\x00", value, thread="t\x00")).receipt
    assert receipt is not None
    claim = world.begin(thread="t\x00")
    assert claim.input == value
    assert (claim.thread_id, claim.key) == ("t\x00", "k\x00")
    assert world.store.records("t\x00", after=1, limit=1)[0].payload["input"] == value
    assert world.try_begin(thread="t") is None


# --- batches -----------------------------------------------------------------------------------------------------


def test_same_batch_answers_as_the_first_time(world: World):
    """A transaction that meets its own earlier commit repeats its answers, progress included."""
    world.submit("k0")
    request = world.request(submit("k0"), submit("k1"), submit("k1"), submit("k1", "other"))
    first = world.send(request)
    assert [answer.progress for answer in first.answers] == [False, True, False, False]
    world.now += 1
    assert world.send(request).answers == first.answers


def test_answer_carries_survey_and_registry(world: World):
    """The object's survey is read at the end of the same transaction."""
    answer = world.apply(submit("k1"), submit("k2"))
    (view,) = answer.survey.threads
    assert (view.thread_id, view.nonterminal, view.quiet) == (THREAD, 2, 1)
    assert view.head.submission_id == answer.answers[0].receipt.submission_id
    assert answer.registry == REGISTRY


def test_refused_item_leaves_the_others_applied(world: World):
    """Items do not stand in each other's way."""
    unknown = Abort(thread_id=THREAD, submission_id="sub-nobody", author="a", reason="")
    answers = world.apply(submit("k1"), unknown, submit("k2")).answers
    assert answers[1].refusal.code == "NotFound"
    assert [answers[0].receipt.queue_sequence, answers[2].receipt.queue_sequence] == [1, 2]


def test_thread_of_another_object_is_refused(world: World):
    """A Thread has one owner; another object cannot feed it."""
    world.submit("k1")
    refusal = world.one(submit("k2"), object_id="another-object").refusal
    assert refusal is not None
    assert refusal.code == "ThreadPlacedElsewhere"
