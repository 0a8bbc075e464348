"""Marks, workers and deployments: what a sweep needs to find work that a dead worker left."""

from tests.contract.world import THREAD, World, submit


def test_batch_leaves_its_mark(world: World):
    """The mark commits with the batch, also with one whose items were all refused."""
    world.send(world.request(submit("k1")), worker="worker-7")
    (mark,) = world.store.old_marks(before=world.now + 1, limit=10)
    assert (mark.object_id, mark.mark, mark.marked_at, mark.worker) == (THREAD, 1, world.now, "worker-7")
    assert world.store.old_marks(before=world.now, limit=10) == []


def test_mark_is_cleared_by_what_covers_it_only(world: World):
    """An older certification leaves a newer mark alone."""
    world.submit("k1")
    world.submit("k2")
    world.store.clear_mark(THREAD, 1)
    assert [mark.mark for mark in world.store.old_marks(before=world.now + 1, limit=10)] == [2]
    world.store.clear_mark(THREAD, 2)
    world.store.clear_mark(THREAD, 2)
    assert world.store.old_marks(before=world.now + 1, limit=10) == []


def test_ends_of_an_attempt_clear_the_mark(world: World):
    """Release, settlement, suspension and unknown each take the mark with them."""
    ends = {
        "release": lambda claim: world.store.release(claim, mark_through=1, now=world.now),
        "suspend": lambda claim: world.store.suspend(
            claim, world.approval_request(claim, "c1"), ["c1"], mark_through=1, now=world.now
        ),
        "unknown": lambda claim: world.store.mark_unknown(claim, [], {"c1": "tool"}, mark_through=1, now=world.now),
    }
    for name, end in ends.items():
        world.submit("k1", thread=name)
        claim = world.begin(thread=name)
        assert name in [mark.object_id for mark in world.store.old_marks(before=world.now + 1, limit=10)]
        end(claim)
        assert world.store.old_marks(before=world.now + 1, limit=10) == []


def test_unrecorded_mark_keeps_its_age(world: World):
    """A batch after one that nobody recorded does not make the debt look young."""
    world.submit("k1")
    world.now += 5_000
    world.send(world.request(submit("k2"), applied_through=0))
    (mark,) = world.store.old_marks(before=world.now + 1, limit=10)
    assert (mark.mark, mark.marked_at) == (2, world.now - 5_000)
    world.now += 5_000
    world.send(world.request(submit("k3"), applied_through=2))
    (mark,) = world.store.old_marks(before=world.now + 1, limit=10)
    assert (mark.mark, mark.marked_at) == (3, world.now)


def test_old_marks_come_oldest_first(world: World):
    """The sweep serves who waits longest, within its bound."""
    for name in ("c", "a", "b"):
        world.now += 10
        world.submit("k1", thread=name)
    assert [mark.object_id for mark in world.store.old_marks(before=world.now + 1, limit=2)] == ["c", "a"]


def test_objects_of_dead_workers_are_those_that_owe_something(world: World):
    """Objects with a mark or nonterminal rows, of these workers only."""
    for name, worker in (("t1", "w1"), ("t2", "w1"), ("t3", "w2"), ("t4", "w1")):
        world.send(world.request(submit("k1", thread=name), object_id=name), worker=worker)
    world.finish(world.begin(thread="t2"))
    world.store.clear_mark("t2", 99)
    world.finish(world.begin(thread="t4"))
    assert world.store.objects_of_workers(["w1"], limit=10) == ["t1", "t4"]
    assert world.store.objects_of_workers(["w1", "w2"], limit=10) == ["t1", "t3", "t4"]
    assert world.store.objects_of_workers(["w1"], limit=1) == ["t1"]
    assert world.store.objects_of_workers([], limit=10) == []


def test_objects_owed_by_agents_are_those_that_a_worker_alone_is_missing(world: World):
    """Ready input of these agents, page by page; nothing that is settled, suspended or somebody else's."""
    for name in ("t1", "t2", "t3", "t4"):
        world.send(world.request(submit("k1", thread=name), object_id=name))
    world.finish(world.begin(thread="t2"))
    claim = world.begin(thread="t3")
    world.store.suspend(claim, world.approval_request(claim, "c1"), ["c1"], mark_through=1, now=world.now)
    agent = submit("k1").agent_id
    assert world.store.objects_owed_by([agent], after="", limit=10) == ["t1", "t4"]
    assert world.store.objects_owed_by([agent], after="", limit=1) == ["t1"]
    assert world.store.objects_owed_by([agent], after="t1", limit=10) == ["t4"]
    assert world.store.objects_owed_by(["another"], after="", limit=10) == []
    assert world.store.objects_owed_by([], after="", limit=10) == []


def test_late_heads_are_ready_unowned_and_first(world: World):
    """Nothing that somebody works on, that waits behind its head, or that has only just come."""
    for name in ("owned", "behind", "late", "loss"):
        world.submit("k1", thread=name)
        world.submit("k2", thread=name)
    world.begin(thread="owned")
    claim = world.begin(thread="behind")
    world.store.suspend(claim, world.approval_request(claim, "c1"), ["c1"], mark_through=1, now=world.now)
    world.store.mark_unknown(world.begin(thread="loss"), [], {"c1": "tool"}, mark_through=1, now=world.now)
    agent = submit("k1").agent_id
    assert world.store.objects_owed_by([agent], after="", limit=10, ready_by=world.now) == ["late", "loss"]
    assert world.store.objects_owed_by([agent], after="", limit=10, ready_by=world.now - 1) == []


def test_silent_workers_are_told_until_they_speak_or_leave(world: World):
    """A process that ended in good order is not looked for."""
    world.store.worker_seen("w1", host="h", pid=1, now=100)
    world.store.worker_seen("w2", host="h", pid=2, now=200)
    world.store.worker_seen("w3", host="h", pid=3, now=50)
    world.store.worker_gone("w3")
    assert world.store.workers_silent_since(200) == [("w1", "h", 1)]
    world.store.worker_seen("w1", host="h", pid=1, now=300)
    assert world.store.workers_silent_since(300) == [("w2", "h", 2)]


def test_deployments_are_numbered_in_the_order_they_appear(world: World):
    """A key keeps its number; a new key has a larger one."""
    first = world.store.deployment_order("key-b", now=1)
    second = world.store.deployment_order("key-a", now=2)
    assert second > first >= 1
    assert world.store.deployment_order("key-b", now=3) == first
