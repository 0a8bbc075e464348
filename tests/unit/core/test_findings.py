"""What a view says of its Thread, and which Threads are chosen."""

import pytest

from tests.unit.core.world import World, fault
from thread_objects.contract.states import Disposition
from thread_objects.contract.views import Decided, Recovered
from thread_objects.core import selection
from thread_objects.core.findings import Findings
from thread_objects.core.record import BindingWait, MaintenanceRecord
from thread_objects.core.selection import Scan

RECORD = MaintenanceRecord()


def thread(*states, abort=()):
    """A Thread A with rows in these states; `abort` lists the indexes with an abort intent."""
    world = World()
    for index, state in enumerate(states):
        world.submit("A", f"s{index + 1}", state, abort=index in abort)
    return world.view("A")


def knowing(decision=None, disposition="deferred", sid="s1", **facts):
    """Findings after a clean recovery of A with this decision."""
    findings = Findings()
    decided = () if decision is None else (Decided(submission_id=sid, decision=decision, disposition=disposition),)
    findings.learn(Recovered(thread_id="A", decisions=decided, **facts))
    return findings


@pytest.mark.parametrize(
    ("state", "abort", "decision", "disposition", "waits"),
    [
        ("ready", False, None, None, False),
        ("input-applied", False, None, None, False),
        ("joining", False, None, None, False),
        ("suspended", False, None, None, True),
        ("suspended", True, "SettleAborted", "deferred", False),
        ("joined", False, None, None, True),
        ("suspended", False, "AwaitApprovalDecision", "deferred", True),
        ("suspended", False, "AwaitChildAdmissionResolution", "deferred", False),
        ("suspended", False, "AwaitChildAdmissionResolution", "repaired", True),
        ("joined", False, "SettleJoinedWithHost", "deferred", False),
        ("unknown", True, "SettleAborted", "unknown", False),
        ("admitted", False, "AwaitParentEstablishment", "deferred", True),
        ("admitted", False, "RepairReadiness", "deferred", False),
        ("admitted", False, None, None, False),
    ],
)
def test_a_head_waits_only_for_what_lies_outside(state, abort, decision, disposition, waits):
    """The stable external waits, and the two decisions under which suspended and joined are none."""
    view = thread(state, abort=(0,) if abort else ())
    findings = Findings() if decision is None else knowing(decision, disposition)
    assert findings.waiting(view, RECORD) is waits


def test_a_binding_wait_is_of_one_submission():
    """The wait holds its Submission only, and never against an abort (DSP-024)."""
    record = MaintenanceRecord(binding_waits=(BindingWait("A", "s1", 5),))
    assert Findings().waiting(thread("ready"), record)
    assert not Findings().eligible(thread("ready"), record)
    assert not Findings().waiting(thread("ready", abort=(0,)), record)
    other = MaintenanceRecord(binding_waits=(BindingWait("A", "s9", 5),))
    assert Findings().eligible(thread("ready"), other)


@pytest.mark.parametrize("hold", ["pending", "fault"])
def test_a_pending_or_faulted_thread_neither_waits_nor_runs(hold):
    """Waiting is a claim about a Thread that was read well."""
    findings = Findings()
    if hold == "pending":
        findings.pending["A"] = None
    else:
        findings.learn(Recovered(thread_id="A", fault=fault("A", 9_000)))
    assert not findings.waiting(thread("suspended"), RECORD)
    assert not findings.eligible(thread("ready"), RECORD)


def test_only_recovered_uncertainty_frees_later_input():
    """An unknown row holds its follower back until recovery has looked at it in this event (DSP-010)."""
    view = thread("unknown", "ready")
    assert view.head.submission_id == "s2"
    findings = Findings()
    assert findings.uncertain(view) and not findings.eligible(view, RECORD) and findings.autonomous(view, RECORD)
    findings = knowing("AwaitUnknownResolution", "unknown")
    assert not findings.uncertain(view) and findings.eligible(view, RECORD)
    parked = thread("unknown")
    assert not findings.autonomous(parked, RECORD)


@pytest.mark.parametrize(
    ("state", "known", "runs"),
    [
        ("ready", False, True),
        ("input-applied", False, False),
        ("input-applied", True, True),
        ("suspended", True, False),
    ],
)
def test_a_head_that_ever_ran_is_recovered_before_it_is_dispatched(state, known, runs):
    """Eligible: `ready`, or with a report in this event; a waiting head is not."""
    findings = knowing("ResumeFromTurnBoundary") if known else Findings()
    assert findings.eligible(thread(state), RECORD) is runs


def test_a_ready_head_with_an_abort_intent_is_cleanup():
    """Not dispatched; it goes to the recovery wave (DSP-012)."""
    view = thread("ready", abort=(0,))
    findings = Findings()
    assert not findings.eligible(view, RECORD)
    assert selection.backlog(Scan(1, (view,)), (), findings, RECORD, 0).thread_ids == ("A",)


@pytest.mark.parametrize(
    ("states", "autonomous"),
    [
        (("suspended", "ready", "ready"), False),
        (("suspended", "input-applied"), True),
        (("suspended", "joined"), False),
        (("ready",), True),
        (("input-applied",), True),
        (("joining",), True),
        ((), False),
    ],
)
def test_autonomous_is_whatever_we_still_have_to_move(states, autonomous):
    """Followers of a waiting head that are fresh or wait themselves are not our work (DSP-011)."""
    assert Findings().autonomous(thread(*states), RECORD) is autonomous


def test_a_deferred_host_settlement_keeps_a_quiet_thread_at_work():
    """A joined follower whose host settled but whose settlement was deferred is still to be done."""
    findings = knowing("SettleJoinedWithHost", "deferred", sid="s2")
    assert findings.autonomous(thread("suspended", "joined"), RECORD)
    assert not knowing("AwaitHostSettlement", "deferred", sid="s2").autonomous(thread("suspended", "joined"), RECORD)


def test_faults_are_loaded_once_and_newer_knowledge_wins():
    """A scan read before the recovery that cleared a fault does not bring it back."""
    world = World(faults={"A": 9_000, "B": 8_000})
    world.submit("A")
    world.submit("B")
    findings = knowing(None)
    findings.load_faults(world.survey().threads)
    assert findings.faults == {"B": 8_000}
    world.faults["B"] = 99_000
    findings.load_faults(world.survey().threads)
    assert findings.faults == {"B": 8_000}


def test_a_fault_is_cleared_by_a_whole_recovery_only():
    """A clean page before the last clears nothing; the last one does."""
    findings = Findings()
    findings.learn(Recovered(thread_id="A", fault=fault("A", 9_000)))
    findings.learn(Recovered(thread_id="A", cursor="page-2"))
    assert findings.faults == {"A": 9_000} and findings.unfinished == {"A"}
    findings.learn(Recovered(thread_id="A"))
    assert findings.faults == {} and findings.unfinished == set() and findings.recovered == {"A"}


def test_counters_and_retry_times_of_pages_add_up():
    """`recovered` sums, `repaired` sticks, and the earliest work retry counts."""
    findings = Findings()
    findings.learn(Recovered(thread_id="A", recovered=2, repaired=True, retry_at=900, cursor="page-2"))
    findings.learn(Recovered(thread_id="A", recovered=1, retry_at=1_200))
    assert (findings.recovered_count, findings.repaired, findings.work_retries) == (3, True, {"A": 900})
    findings.learn(Recovered(thread_id="A"))
    assert findings.work_retries == {}, "another recovery found nothing to retry"


@pytest.mark.parametrize(("last", "taken"), [("B", ["C"]), ("C", ["A"]), (None, ["A"]), ("AA", ["B"]), ("Z", ["A"])])
def test_selection_goes_round(last, taken):
    """One slot: the first runnable id past the one served last, else from the start (DSP-004, DSP-005)."""
    assert selection.take(["A", "B", "C"], (), last, 1) == taken


def test_selection_takes_as_many_as_there_is_room():
    """Excluded Threads are passed over; no room takes nothing."""
    assert selection.take(["A", "B", "C"], {"B"}, "A", 2) == ["C", "A"]
    assert selection.take(["A"], (), None, 0) == []


def test_ids_are_ordered_as_plain_code_points():
    """Capital letters before small ones, whatever a locale thinks."""
    world = World()
    for name in ("b", "B", "a", "Ä"):
        world.submit(name)
    assert selection.eligible_heads(Scan(1, world.survey().threads), Findings(), RECORD) == ["B", "a", "b", "Ä"]


def test_the_backlog_is_cut_at_thirty_two_and_goes_on_behind_the_cursor():
    """40 Threads need old recovery: 32 now, discovery pending; the cursor's successors come first (DSP-015)."""
    world = World()
    for number in range(40):
        world.submit(f"t{number:02}", state="input-applied")
    scan = Scan(1, world.survey().threads)
    first = selection.backlog(scan, (), Findings(), RECORD, 0)
    assert first.thread_ids == tuple(f"t{number:02}" for number in range(32)) and first.more
    record = MaintenanceRecord(last_recovered_thread_id="t31")
    second = selection.backlog(scan, (), Findings(), record, 0)
    assert second.thread_ids[:8] == tuple(f"t{number:02}" for number in range(32, 40))
    assert second.thread_ids[8] == "t00"


def test_a_faulted_thread_joins_the_backlog_when_its_time_has_come():
    """Before retryAt nothing of it is read (DSP-014)."""
    world = World(faults={"A": 9_000})
    world.submit("A")
    world.submit("B")
    findings = Findings()
    scan = Scan(1, world.survey().threads)
    findings.load_faults(scan.views)
    eligible = selection.eligible_heads(scan, findings, RECORD)
    assert eligible == ["B"]
    assert selection.backlog(scan, eligible, findings, RECORD, 8_999).thread_ids == ()
    assert selection.backlog(scan, eligible, findings, RECORD, 9_000).thread_ids == ("A",)


def test_duty_threads_follow_the_heads():
    """Heads in scan order, then duty Threads in discovery order, each once."""
    world = World(duties=["D", "A", "C"])
    world.submit("B", state="suspended")
    world.submit("A", state="input-applied")
    scan = Scan(1, world.survey().threads, world.survey().duties)
    assert selection.backlog(scan, (), Findings(), RECORD, 0).thread_ids == ("A", "B", "D", "C")


def test_dispositions_are_those_of_the_contract():
    """The classifier's words arrive as they were sent."""
    assert [d.value for d in Disposition] == ["repaired", "deferred", "unknown", "none"]
