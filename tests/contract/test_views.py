"""Control views: one size whatever the queue's length, and one moment."""

from tests.contract.world import THREAD, World, call, submit


def test_view_folds_a_lane(world: World):
    """The head, parked uncertainty, quiet followers and busy ones are told apart."""
    lost = world.submit("k1")
    world.lose(world.respond(world.begin(), calls=[call("c1")]), "c1")
    running = world.submit("k2")
    world.begin(attempt="a2")
    for key in ("k3", "k4", "k5"):
        world.submit(key)
    view = world.store.view(THREAD)
    assert (view.nonterminal, view.unknown, view.quiet, view.busy) == (5, 1, 3, 0)
    assert (view.head.submission_id, view.head.state, view.head.queue_sequence) == (
        running.submission_id,
        "input-applied",
        2,
    )
    assert (view.head.agent_id, view.head.abort_requested) == ("agent-1", False)
    world.abort(lost.submission_id)
    aborted = world.store.view(THREAD)
    assert (aborted.head.submission_id, aborted.head.abort_requested) == (lost.submission_id, True)
    assert (aborted.unknown, aborted.quiet, aborted.busy) == (0, 3, 1)


def test_view_of_nobody_is_empty(world: World):
    """A Thread without rows, or that does not exist, owes nothing."""
    world.run_through("k1")
    for thread in (THREAD, "nobody"):
        view = world.store.view(thread)
        assert (view.nonterminal, view.head, view.quiet, view.busy, view.unknown) == (0, None, 0, 0, 0)


def test_survey_lists_threads_by_code_points(world: World):
    """All Threads of an object with nonterminal rows, ordered as plain code points on both databases (LED-034)."""
    names = ["b", "B", "a-1", "a", "ä", "\uffee", "\U0001f9f5", "a\x00"]
    for name in names:
        world.apply(*(submit(key, thread=name) for key in ("k1", "k2")), object_id="host")
    world.run_through("k1", thread="elsewhere")
    survey = world.store.survey("host")
    assert [view.thread_id for view in survey.threads] == sorted(names)
    assert {(view.nonterminal, view.quiet, view.head.queue_sequence) for view in survey.threads} == {(2, 1, 1)}
    assert [view for view in survey.threads if view != world.store.view(view.thread_id)] == []
    assert not survey.truncated
    assert world.store.survey("nobody").threads == ()


def test_survey_leaves_settled_threads_out(world: World):
    """Threads without debts do not travel."""
    for name in ("t1", "t2", "t3"):
        world.apply(submit("k1", thread=name), object_id="host")
    world.finish(world.begin(thread="t2"))
    assert [view.thread_id for view in world.store.survey("host").threads] == ["t1", "t3"]
