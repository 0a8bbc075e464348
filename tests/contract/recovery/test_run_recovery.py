"""One bounded sweep over many Threads and work owners, and the inventory behind it."""

import pytest

from activities.cursors import Position, SweepPosition, sweep_cursor, sweep_position
from activities.recovery_sweep import discover_work_threads, run_recovery
from activities.thread_recovery import recover_thread
from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.limits import RECOVERY_CURSOR_CHARS_MAX, RECOVERY_OWNERS_MAX, WORK_PAGE_ENTRIES
from thread_objects.contract.states import ResolutionKind
from thread_objects.contract.sweeps import WorkOwner
from thread_objects.errors import InvalidInput, StoreUnavailable, WorkDiscoveryUnavailable
from thread_objects.ports import ClaimRequest

from .lab import THREAD, declared
from .proxy import Proxied, raising


def sweep(lab, *, thread=None, cursor=None, store=None):
    """One call over the lab's object."""

    def recover(thread_id, *, cursor, owners_max, told):
        return recover_thread(
            store or lab.store,
            thread_id,
            producer_id="producer",
            attempt_id="sweep",
            clock=lab.clock,
            cursor=cursor,
            stopping=lambda: True,
            owners_max=owners_max,
            told=told,
        )

    return run_recovery(store or lab.store, recover, THREAD, thread_id=thread, cursor=cursor)


def owner(lab, thread, key="k1"):
    """A Submission whose worker died between two Turns."""
    sid = lab.submit(key, thread=thread)
    lab.store.begin(
        ClaimRequest(thread, "producer", f"attempt-{thread}-{key}"),
        run_duration_ms=lambda _: 3_600_000,
        deployment_id="",
        now=lab.clock.now(),
    )
    return sid


def debts(lab, count, *, settled=True):
    """A Submission that was aborted while so many of its calls were open: it settled, the calls are owed a word."""
    sid = lab.lost(*(declared(f"c{n:03}") for n in range(count)))
    if settled:
        lab.abort(sid)
    lab.recover(attempt="debts")
    return sid


def parked(lab, count):
    """This many parked rows on one Thread."""
    for n in range(count):
        lab.submit(f"p{n}")
        lab.respond(lab.claim(f"attempt-{n}"), declared("c1"))
        lab.recover(ended_attempts=(f"attempt-{n}",), attempt=f"recovery-{n}")


# --- bounds --------------------------------------------------------------------------------------------------------


def test_many_owners_of_one_thread_take_several_calls(lab):
    """SWP-001: 32 reports and a cursor, then the rest and none."""
    debts(lab, 40)
    first = sweep(lab, thread=THREAD)
    second = sweep(lab, thread=THREAD, cursor=first.cursor)
    assert (len(first.work_reports), len(second.work_reports), second.cursor) == (32, 8, None)
    works = [report.work_id for report in (*first.work_reports, *second.work_reports)]
    assert len(set(works)) == 40
    assert {report.owner for report in first.work_reports} == {WorkOwner.OPERATION}
    assert {(report.disposition, report.retry_at_millis) for report in first.work_reports} == {("unknown", None)}


def test_many_threads_take_several_calls(lab):
    """SWP-002: at most 32 Threads and owners, in the order of their ids; each once."""
    names = [f"t{n:02}" for n in range(35)]
    for name in names:
        owner(lab, name)
    lab.pass_lease()
    first = sweep(lab)
    second = sweep(lab, cursor=first.cursor)
    assert [report.thread_id for report in first.work_reports] == names[:32]
    assert [report.thread_id for report in second.work_reports] == names[32:]
    assert (first.cursor is not None, second.cursor) == (True, None)


def test_a_sweep_goes_on_inside_a_thread(lab):
    """The owners of a call end in the middle of a Thread; the next call begins there."""
    names = ["a", "b"]
    for name in names:
        for n in range(20):
            lab.submit(f"k{n}", thread=name)
    lab.tear("UPDATE submissions SET claims = 1")
    first = sweep(lab)
    assert len(first.work_reports) == RECOVERY_OWNERS_MAX
    second = sweep(lab, cursor=first.cursor)
    assert (len(second.work_reports), second.cursor) == (8, None)
    works = {report.work_id for report in (*first.work_reports, *second.work_reports)}
    assert len(works) == 40


def test_threads_without_anything_to_report_are_bounded_too(lab):
    """An empty page with a cursor is progress."""
    for n in range(40):
        lab.submit("k1", thread=f"t{n:02}")
    first = sweep(lab)
    assert (first.work_reports, first.cursor is not None) == ((), True)
    assert sweep(lab, cursor=first.cursor).cursor is None


def test_what_nobody_owes_needs_no_sweep(lab):
    """No Threads, no reports, no cursor."""
    assert sweep(lab).model_dump() == {"reports": (), "blocked": (), "work_reports": (), "cursor": None}


# --- cursors -------------------------------------------------------------------------------------------------------


def test_cursors_of_another_selection_are_refused(lab):
    """SWP-004: a Thread's cursor serves neither another Thread nor a sweep, nor the reverse, nor another object."""
    debts(lab, 33)
    of_thread = sweep(lab, thread=THREAD).cursor
    of_sweep = sweep(lab).cursor
    assert of_thread is not None and of_sweep is not None
    for selection in (
        {"thread": "thread-2", "cursor": of_thread},
        {"cursor": of_thread},
        {"thread": THREAD, "cursor": of_sweep},
        {"cursor": sweep_cursor("another object", SweepPosition(THREAD))},
        {"cursor": "[3]"},
        {"cursor": "[4, 1, 2, 3]"},
        {"cursor": '"x"'},
    ):
        with pytest.raises(InvalidInput):
            sweep(lab, **selection)
    assert sweep(lab, cursor=of_sweep).cursor is None


def test_cursors_are_bounded_whatever_the_ids_hold():
    """The longest ids of the widest characters fit."""
    wide = "\U0001f9f5" * 256
    at = SweepPosition(wide, Position(duty=(2**62, wide)))
    cursor = sweep_cursor(wide, at)
    assert len(cursor) <= RECOVERY_CURSOR_CHARS_MAX
    assert sweep_position(wide, cursor) == at


def test_work_behind_a_cursor_shows_up_in_the_next_sweep(lab):
    """Cursors only go forward."""
    for n in range(33):
        owner(lab, f"t{n:02}")
    first = sweep(lab)
    owner(lab, "a")
    rest = sweep(lab, cursor=first.cursor)
    assert [report.thread_id for report in rest.work_reports] == ["t32"]
    assert sweep(lab).work_reports[0].thread_id == "a"


# --- isolation -----------------------------------------------------------------------------------------------------


def test_a_thread_that_cannot_be_read_blocks_nobody_else(lab):
    """SWP-005: exactly one blocked entry; the other Thread is recovered."""
    for key in ("k1", "k2", "k3"):
        lab.submit(key, thread="a")
    owner(lab, "a", "k1")
    lab.tear("UPDATE records SET body = '{' WHERE thread_id = 'a'")
    owner(lab, "b")
    lab.pass_lease()
    found = sweep(lab)
    assert [(entry.thread_id, entry.failure.error_tag, entry.attempts) for entry in found.blocked] == [
        ("a", "CorruptRecord", 1)
    ]
    assert [report.thread_id for report in found.work_reports] == ["b"]
    again = sweep(lab)
    assert [(entry.thread_id, entry.attempts) for entry in again.blocked] == [("a", 1)]


def test_a_hanging_thread_is_left_after_its_time(lab):
    """SWP-007: a timeout of its own, its claim given back, nothing settled; the next Thread has its full time."""
    hung, fine = owner(lab, "a"), owner(lab, "b")
    lab.pass_lease()
    store = lab.store

    def slow(submission_id):
        lab.clock.at += 30_000 if submission_id == hung else 0
        return store.run_records(submission_id)

    found = sweep(lab, store=Proxied(store, run_records=slow))
    assert [(entry.failure.reason, entry.failure.error_tag) for entry in found.blocked] == [
        ("timeout", "RecoveryTimeout")
    ]
    assert [report.submission for report in found.work_reports] == [fine]
    assert lab.state(hung) == "input-applied"


def test_what_cannot_be_isolated_fails_the_sweep(lab):
    """The list of Threads, and an interruption, concern everybody."""
    owner(lab, "a")
    with pytest.raises(StoreUnavailable):
        sweep(lab, store=Proxied(lab.store, work_threads=raising(StoreUnavailable(reason="away"))))
    with pytest.raises(KeyboardInterrupt):
        sweep(lab, store=Proxied(lab.store, run_records=raising(KeyboardInterrupt())))
    assert lab.store.fault("a") is None


def test_a_clean_sweep_without_reports_clears_the_fault(lab):
    """SWP-017: whatever was wrong is over, and its recipients hear of it."""
    lab.submit("k1")
    fault = sweep(lab, store=Proxied(lab.store, recovery_start=raising(StoreUnavailable(reason="away")))).blocked[0]
    lab.clock.at = fault.retry_at
    assert sweep(lab).model_dump() == {"reports": (), "blocked": (), "work_reports": (), "cursor": None}
    assert lab.store.fault(THREAD) is None
    transitions = [event.transition for event in lab.store.recovery_events(THREAD, after=0, limit=9)]
    assert transitions == ["created", "cleared"]


# --- owners that outlive their Submission --------------------------------------------------------------------------


def test_an_open_call_outlives_its_settled_submission(lab):
    """It waits for somebody's word, without a retry of its own, and goes with that word."""
    sid = debts(lab, 2)
    assert lab.state(sid) == "settled"
    found = sweep(lab)
    assert [(report.work_id, report.owner, report.disposition, report.submission) for report in found.work_reports] == [
        (f"Operation:{sid}:c000", "Operation", "unknown", sid),
        (f"Operation:{sid}:c001", "Operation", "unknown", sid),
    ]
    assert {report.retry_at_millis for report in found.work_reports} == {None}
    lab.resolve(sid, "c000", ResolutionKind.NEVER_HAPPENED)
    lab.resolve(sid, "c001", ResolutionKind.COMPLETED_WITH_RESULT, result=1)
    assert sweep(lab).work_reports == ()
    assert lab.store.work_threads(THREAD, after=None, limit=9) == []


def test_inventory_pages_are_bounded_and_an_empty_one_is_progress(lab, monkeypatch):
    """Duties of Submissions that are still open are their rows' own, and are passed over a few pages at a time."""
    monkeypatch.setattr("thread_objects.contract.limits.WORK_PAGE_ENTRIES", 4)
    debts(lab, 40, settled=False)
    first = sweep(lab, thread=THREAD)
    assert (len(first.work_reports), first.cursor is not None) == (1, True)
    second = sweep(lab, thread=THREAD, cursor=first.cursor)
    assert (second.work_reports, second.cursor) == ((), None)
    assert WORK_PAGE_ENTRIES == 128


def test_threads_with_duties_alone_are_discovered(lab):
    """Also without any nonterminal Submission; by id, in pages of at most 32."""
    debts(lab, 1)
    for name in ("a", "z"):
        lab.submit("k1", thread=name)
    found = discover_work_threads(lab.store, THREAD, after=None, limit=2)
    assert (found.thread_ids, found.after_thread_id) == (("a", THREAD), THREAD)
    rest = discover_work_threads(lab.store, THREAD, after=found.after_thread_id, limit=2)
    assert (rest.thread_ids, rest.after_thread_id) == (("z",), None)
    for limit in (0, 33):
        with pytest.raises(InvalidInput):
            discover_work_threads(lab.store, THREAD, after=None, limit=limit)


# --- the inventory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("UPDATE threads SET work_through = NULL", "missing-index"),
        ("UPDATE threads SET work_through = 3", "incomplete-rebuild"),
        ("UPDATE threads SET work_through = -2", "unsupported"),
        ("UPDATE work_items SET owner = 'Nobody'", "unsupported"),
    ],
    ids=["missing", "half", "newer", "unknown owner"],
)
def test_an_unusable_inventory_is_told_never_read_as_empty(lab, damage, reason):
    """Recovery says so as the Thread's fault and does not rebuild it; the explicit rebuild ends it."""
    sid = debts(lab, 3)
    lab.tear(damage)
    with pytest.raises(WorkDiscoveryUnavailable) as told:
        lab.store.duties(THREAD, after=(0, ""), limit=10)
    assert told.value.reason == reason
    (blocked,) = sweep(lab).blocked
    assert (blocked.failure.error_tag, blocked.failure.phase) == ("WorkDiscoveryUnavailable", "history")
    lab.clock.at = blocked.retry_at
    assert len(sweep(lab).blocked) == 1
    while not lab.store.rebuild_work(THREAD).complete:
        pass
    lab.clock.at += 60_000
    assert {report.submission for report in sweep(lab).work_reports} == {sid}
    assert lab.store.fault(THREAD) is None


def test_a_rebuild_finds_what_was_listed(lab, monkeypatch):
    """In bounded passes, from the log alone: what was closed on the way is not listed again."""
    monkeypatch.setattr("storage.work_rebuild.WORK_REBUILD_RECORDS_MAX", 3)
    sid = debts(lab, 6)
    lab.resolve(sid, "c000", ResolutionKind.NEVER_HAPPENED)
    lab.resolve(sid, "c001", ResolutionKind.COMPLETED_WITH_RESULT, result=1)
    parked(lab, 2)
    before = lab.store.duties(THREAD, after=(0, ""), limit=100)
    assert [item.call_id for item in before] == ["c002", "c003", "c004", "c005", "c1", "c1"]
    lab.tear("UPDATE threads SET work_through = NULL")
    lab.tear("DELETE FROM work_items")
    passes = 1
    while not lab.store.rebuild_work(THREAD).complete:
        passes += 1
        with pytest.raises(WorkDiscoveryUnavailable):
            lab.store.duties(THREAD, after=(0, ""), limit=100)
    assert passes > 4
    assert lab.store.duties(THREAD, after=(0, ""), limit=100) == before


def test_a_rebuild_reads_a_bounded_size(lab, monkeypatch):
    """At least one record a pass, and no more than its bytes allow."""
    monkeypatch.setattr("storage.work_rebuild.WORK_REBUILD_BYTES_MAX", 1)
    debts(lab, 1)
    records = len(lab.store.records(THREAD, after=0, limit=100))
    passes = [lab.store.rebuild_work(THREAD)]
    while not passes[-1].complete:
        passes.append(lab.store.rebuild_work(THREAD))
    assert len(passes) == records + 1


def test_a_call_closed_while_its_run_lives_is_not_owed(lab):
    """A result takes the item away in the transaction that stores it."""
    sid = lab.lost(declared("c1"))
    lab.recover()
    assert [item.call_id for item in lab.store.duties(THREAD, after=(0, ""), limit=9)] == ["c1"]
    lab.resolve(sid, "c1", ResolutionKind.SAFE_TO_RETRY)
    claim = lab.claim("attempt-2")
    run = ids.run_id(sid)
    result = r.ToolCallSettled(run_id=run, turn=1, tool_call_id="c1", tool_name="tool_c1", result=1)
    lab.append(claim, ids.results_batch(run, 1, "c1"), (ids.tool_settled_record(run, 1, "c1"), result))
    assert lab.store.duties(THREAD, after=(0, ""), limit=9) == []
