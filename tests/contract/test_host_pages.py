"""A shared host's Threads in pages: every round sees each of them once; a batch answers with its own Threads only."""

import pytest

from storage import surveys
from tests.contract.world import World, submit
from thread_objects.contract import limits
from thread_objects.contract.messages import Abort, ResolveApproval, ResolveUnknown
from thread_objects.contract.states import Decision, ResolutionKind
from thread_objects.contract.views import Page, ThreadView

HOST = "host"


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three Threads in a page."""
    monkeypatch.setattr(surveys, "HOST_PAGE_THREADS", 3)


def admitted(world: World, *threads: str, host: str = HOST) -> None:
    """One Submission on each Thread."""
    for thread in threads:
        assert world.one(submit(f"k-{thread}", thread=thread), object_id=host).receipt is not None


def round_from(world: World, after: str | None) -> list[list[str]]:
    """The ids of all pages of one round."""
    pages, page = [], Page(after=after, origin=after)
    while page is not None:
        survey = world.store.survey(HOST, page)
        pages.append([view.thread_id for view in survey.threads])
        assert pages[-1] == sorted(pages[-1])
        assert not survey.truncated
        page = survey.following
        assert len(pages) < 20
    return pages


def test_a_round_sees_every_thread_once_wherever_it_starts(world: World) -> None:
    """It begins behind the cursor, goes on from the first id, and ends where it began; pages are bounded."""
    admitted(world, "a1x", host="another")
    threads: list[str] = []
    for count in range(8):
        for after in (None, "", "a0", "a3", "a6", "b"):
            pages = round_from(world, after)
            assert sorted(thread for page in pages for thread in page) == threads, (count, after)
            assert all(len(page) <= 3 for page in pages)
            behind = [thread for thread in threads if thread > (after or "")]
            assert set(pages[0]) >= set(behind[:3])
        threads.append(f"a{count}")
        admitted(world, threads[-1])


def test_a_thread_that_owes_nothing_is_on_no_page(world: World) -> None:
    """Settled Threads cost a round nothing."""
    admitted(world, "a0", "a1", "a2", "a3")
    claim = world.begin(thread="a1")
    world.finish(claim)
    assert round_from(world, None) == [["a0", "a2", "a3"]]


def test_a_page_shows_what_the_whole_survey_shows(world: World) -> None:
    """Heads, counts, faults: the same views, page by page."""
    admitted(world, "a0", "a1", "a2", "a3")
    world.one(submit("k2", thread="a3"), object_id=HOST)
    paged: list[ThreadView] = []
    page: Page | None = Page()
    while page is not None:
        survey = world.store.survey(HOST, page)
        paged += survey.threads
        page = survey.following
    assert tuple(paged) == world.store.survey(HOST).threads


def test_a_batch_on_a_host_answers_with_its_own_threads(world: World) -> None:
    """However many others the host owns; a Thread of the batch without open rows is told as such."""
    admitted(world, "a0", "a1", "a2", "a3")
    sid = world.one(submit("k-a1", thread="a1"), object_id=HOST).receipt.submission_id
    request = world.request(
        submit("k2", thread="a0"),
        Abort(thread_id="a1", submission_id=sid, author="ann", reason="no"),
        object_id=HOST,
    ).model_copy(update={"shared_host": True})
    survey = world.send(request).survey
    assert survey.partial and survey.following is None
    assert [(view.thread_id, view.nonterminal) for view in survey.threads] == [("a0", 2), ("a1", 0)]
    assert world.apply(submit("k3", thread="a0"), object_id=HOST).survey.partial is False


def test_a_thread_is_refused_by_every_object_but_its_own(world: World) -> None:
    """The refusal names the right one and nothing is written, whatever the mutation."""
    admitted(world, "a0")
    receipt = world.one(submit("k-a0", thread="a0"), object_id=HOST).receipt
    given = {"thread_id": "a0", "submission_id": receipt.submission_id}
    messages = [
        submit("k-a0", thread="a0"),
        submit("new", thread="a0"),
        Abort(**given, author="ann", reason="no"),
        ResolveApproval(**given, tool_call_id="c", decision=Decision.APPROVED, resolver="ann"),
        ResolveUnknown(**given, tool_call_id="c", resolution=ResolutionKind.COMPLETED_WITH_RESULT, author="ann"),
    ]
    before = world.store.survey(HOST)
    for message in messages:
        answer = world.one(message, object_id="elsewhere")
        assert answer.refusal is not None
        assert answer.refusal.code == "ThreadPlacedElsewhere"
        assert answer.refusal.fields == {"thread_id": "a0", "object_id": HOST}
        assert not answer.progress
    assert world.store.survey(HOST) == before
    assert world.store.survey("elsewhere").threads == ()


def test_threads_that_owe_are_bounded_for_a_host_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known key and a Thread that owes already are exempt; a plain object has no such bound."""
    monkeypatch.setattr("storage.admission.HOST_THREADS_MAX", 2)
    admitted(world, "a0", "a1")

    def on_host(*messages):
        request = world.request(*messages, object_id=HOST).model_copy(update={"shared_host": True})
        return world.send(request).answers

    fresh, known, more = on_host(submit("k", thread="a2"), submit("k-a0", thread="a0"), submit("k2", thread="a0"))
    assert fresh.refusal is not None
    assert fresh.refusal.fields == {"limit": "host-threads", "actual": 2, "maximum": 2}
    assert (known.receipt.replayed, more.receipt.queue_sequence) == (True, 2)
    assert world.one(submit("k", thread="a2"), object_id="plain").receipt is not None
    assert limits.HOST_THREADS_MAX > limits.HOST_PAGE_THREADS
