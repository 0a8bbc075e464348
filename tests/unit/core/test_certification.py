"""Checkpoint, finish and failure rearming, number by number."""

import pytest

from tests.unit.core.world import World, fault, state_of
from thread_objects.contract.views import Recovered
from thread_objects.core import certification
from thread_objects.core.certification import Observation
from thread_objects.core.config import MaintenanceConfig
from thread_objects.core.due_queue import NATIVE, PUBLICATION, Row, RowState
from thread_objects.core.findings import Findings
from thread_objects.core.generation import Begin
from thread_objects.core.record import BindingWait, MaintenanceRecord, Retry
from thread_objects.core.selection import Scan

PENDING, PARKED = RowState.PENDING, RowState.PARKED


def checkpoint(
    *,
    dirty=7,
    processed=6,
    observed=7,
    scanned=7,
    stalls=1,
    world=None,
    now=1_000,
    j=0.0,
    native=None,
    findings=None,
    record=None,
    **facts,
):
    """One checkpoint; answers the record, native's row and the verdict."""
    record = record or MaintenanceRecord(dirty=dirty, processed=processed)
    state = state_of(native or Row(NATIVE, 3, 0, state=PENDING), record=record, slot=77)
    survey = (world or World()).survey()
    facts.setdefault("observation", Observation(observed, overlapped=facts.pop("overlapped", False)))
    facts.setdefault("active", 0)
    with state.transaction() as tx:
        verdict = certification.checkpoint(
            tx,
            now,
            j,
            MaintenanceConfig(),
            step=Begin(facts.pop("step", observed), True, 3, stalls, facts.pop("active_at_start", 0)),
            scan=Scan(scanned, survey.threads, survey.duties, overlapped=facts.pop("scan_overlapped", False)),
            findings=findings or Findings(),
            eligible=facts.pop("eligible", ()),
            progressed=facts.pop("progressed", False),
            discovery_pending=facts.pop("discovery_pending", False),
            **facts,
        )
    assert state.alarm.deadline == 77, "a checkpoint leaves the slot alone"
    return state.record, state.queue.get(NATIVE), verdict


def one_ready():
    world = World()
    world.submit("A", "s1")
    return world


def test_nothing_left_acknowledges_the_observed_generation():
    """Observed 7, nothing left, no overlap: processed 7, no deadline (GEN-008)."""
    record, native, verdict = checkpoint()
    assert (record.processed, record.nonterminal, record.retry) == (7, 0, None)
    assert native.due_at is None and verdict.next_attempt_at is None and verdict.empty


def test_a_scan_of_a_newer_generation_certifies_it_when_nothing_is_left():
    """Observed 7, scanned = dirty = 9, nothing left: processed 9."""
    record, native, _ = checkpoint(dirty=9, scanned=9)
    assert record.processed == 9 and native.due_at is None


def test_a_duty_thread_holds_certification_at_the_observed_generation():
    """Observed 7, scanned = dirty = 9, one duty Thread already recovered: processed 7, rearmed (GEN-010)."""
    findings = Findings()
    findings.learn(Recovered(thread_id="D"))
    record, native, _ = checkpoint(dirty=9, scanned=9, world=World(duties=["D"]), findings=findings)
    assert record.processed == 7 and native.due_at == 1_050


def test_a_duty_that_no_recovery_has_looked_at_is_not_acknowledged():
    """Found when admission was over, or after the wave: the generation stays dirty and native has a deadline."""
    record, native, verdict = checkpoint(world=World(duties=["D"]))
    assert record.processed == 6 and native.due_at is not None and verdict.next_attempt_at is not None


def test_a_generation_newer_than_the_scan_is_not_acknowledged():
    """Observed 7, scanned 9, dirty 10 at the checkpoint: processed 7, rearmed (GEN-011)."""
    record, native, _ = checkpoint(dirty=10, scanned=9)
    assert record.processed == 7 and native.due_at == 1_050


def test_a_scan_beside_a_mutation_proves_nothing_of_its_generation():
    """Read while a body ran: only the observed generation is certified."""
    record, native, _ = checkpoint(dirty=9, scanned=9, scan_overlapped=True)
    assert record.processed == 7 and native.due_at == 1_050


@pytest.mark.parametrize("facts", [{"overlapped": True}, {"active_at_start": 1}, {"active": 1}])
def test_acknowledgement_never_covers_a_body_still_running(facts):
    """Any overlap, of the observation, the step or now: processed stays, native due at now + M."""
    record, native, _ = checkpoint(**facts)
    assert record.processed == 6 and native.due_at == 1_050


def test_idle_autonomous_work_backs_off_with_a_retry():
    """Stalls 1, j = 0, at 1 000: retry {notBefore 1 100, stalls 2, nativeOnly} (GEN-020)."""
    record, native, verdict = checkpoint(world=one_ready())
    assert record.retry == Retry(7, 1_100, True, 2)
    assert (record.processed, record.nonterminal) == (6, 1)
    assert native.due_at == verdict.next_attempt_at == 1_100


def test_the_queues_floor_wins_over_the_retry():
    """Charged stalls 2 at 1 000 → notBefore 3 000; backoff 200: row due 3 000, retry.notBefore 1 200."""
    native = Row(NATIVE, 3, 3_000, 2, None, 3_000, PENDING)
    record, native, _ = checkpoint(world=one_ready(), stalls=2, native=native)
    assert record.retry.not_before == 1_200 and native.due_at == 3_000


def test_progress_rearms_after_exactly_the_base():
    """Settled one, more left: deadline now + 100, no retry; the queue floor still applies (GEN-021)."""
    record, native, verdict = checkpoint(world=one_ready(), progressed=True, stalls=6, j=0.9)
    assert record.retry is None and native.due_at == verdict.next_attempt_at == 1_100
    charged = Row(NATIVE, 3, 2_000, 1, None, 2_000, PENDING)
    _, native, verdict = checkpoint(world=one_ready(), progressed=True, native=charged)
    assert native.due_at == 2_000 and verdict.next_attempt_at == 1_100


def test_work_that_raced_a_newer_generation_comes_back_at_once():
    """Autonomous, but dirty moved on: now + M and no backoff."""
    record, native, _ = checkpoint(world=one_ready(), dirty=8)
    assert record.retry is None and native.due_at == 1_050


def test_a_suspended_head_is_no_work_of_ours():
    """Head suspended, follower ready: not autonomous, acknowledged, no deadline (DSP-011)."""
    world = World()
    world.submit("A", "s1", "suspended")
    world.submit("A", "s2")
    record, native, _ = checkpoint(world=world)
    assert (record.processed, record.nonterminal) == (7, 2) and native.due_at is None


@pytest.mark.parametrize("seconds", [2, 90])
def test_a_fault_keeps_the_generation_until_its_retry(seconds):
    """Any fault is autonomous; delay = max(rearm delay, retryAt − now)."""
    findings = Findings()
    findings.learn(Recovered(thread_id="A", fault=fault("A", 1_000 + seconds * 1_000)))
    record, native, _ = checkpoint(findings=findings, stalls=7)
    assert record.processed == 6
    assert native.due_at == max(1_000 + seconds * 1_000, 3_500)


def test_an_eligible_head_brings_a_faults_delay_down_to_the_backoff():
    """The earliest of fault retries and `now` for a head that may run."""
    findings = Findings()
    findings.learn(Recovered(thread_id="B", fault=fault("B", 61_000)))
    _, native, _ = checkpoint(world=one_ready(), findings=findings, eligible=("A",))
    assert native.due_at == 1_100


@pytest.mark.parametrize("retry_at", [500, 8_000])
def test_a_duty_with_a_retry_time_sets_the_deadline(retry_at):
    """No rows but a duty: next deadline = max(retryAt, rearm delay, native notBefore) (DSP-027)."""
    findings = Findings()
    findings.learn(Recovered(thread_id="D", retry_at=retry_at))
    charged = Row(NATIVE, 3, 2_000, 1, None, 2_000, PENDING)
    record, native, _ = checkpoint(world=World(duties=["D"]), findings=findings, native=charged)
    assert native.due_at == max(retry_at, 2_000)
    assert record.processed == 6


def test_pending_discovery_keeps_the_generation():
    """More pages, or more than 32 Threads to recover: not acknowledged (DSP-015)."""
    record, native, _ = checkpoint(discovery_pending=True)
    assert record.processed == 6 and native.due_at == 1_100


def test_binding_waits_of_finished_submissions_are_removed():
    """The head is gone or lies behind: removed. An earlier head in front: kept."""
    waits = tuple(BindingWait(i, f"{i}1", 5, queue_sequence=q) for i, q in (("A", 1), ("B", 1), ("C", 9), ("D", 2)))
    world = World()
    world.submit("A", "A1")
    world.submit("B", "B2")
    world.submit("C", "C0", "suspended")
    record = MaintenanceRecord(dirty=7, processed=6, binding_waits=waits)
    record, _, _ = checkpoint(world=world, record=record)
    assert [wait.thread_id for wait in record.binding_waits] == ["A", "C"]


def test_a_binding_wait_alone_clears_the_alarm():
    """A waiting Submission keeps no ownership and no timer (DSP-020)."""
    world = one_ready()
    record = MaintenanceRecord(dirty=7, processed=6, binding_waits=(BindingWait("A", "s1", 5, queue_sequence=1),))
    record, native, _ = checkpoint(world=world, record=record)
    assert record.processed == 7 and native.due_at is None


def finish(*, record, native=None, now=1_000, observed=7, next_attempt_at=None, active=0, other=()):
    """One finish; answers whether it rearmed, with the state."""
    state = state_of(native or Row(NATIVE, 3), *other, record=record, slot=77)
    with state.transaction() as tx:
        rearmed = certification.finish(
            tx, now, MaintenanceConfig(), observed=observed, next_attempt_at=next_attempt_at, active=active
        )
    return rearmed, state


def test_finish_clears_an_object_that_owes_nothing():
    """Dirty = processed, no other row: cancel."""
    rearmed, state = finish(record=MaintenanceRecord(dirty=7, processed=7))
    assert not rearmed and state.alarm.deadline is None


def test_a_mutation_after_the_last_checkpoint_rearms():
    """Observed 7, dirty 8 before finish: processed at most 7, rearmed at now + M (GEN-007)."""
    rearmed, state = finish(record=MaintenanceRecord(dirty=8, processed=7), next_attempt_at=9_000)
    assert rearmed and state.alarm.deadline == 1_050 and state.record.processed == 7


@pytest.mark.parametrize(
    ("retry", "active", "deadline"),
    [(None, 0, 4_000), (Retry(7, 2_500, True, 1), 0, 2_500), (Retry(7, 900, True, 1), 0, 1_050), (None, 1, 1_050)],
)
def test_finish_takes_the_retry_then_the_steps_own_answer(retry, active, deadline):
    """Valid retry → its notBefore, floored; else the step's nextAttemptAt; beside a body now + M."""
    record = MaintenanceRecord(dirty=7, processed=6, retry=retry)
    _, state = finish(record=record, next_attempt_at=4_000, active=active)
    assert state.queue.get(NATIVE).due_at == state.alarm.deadline == deadline


def test_finish_arms_the_earliest_row():
    """The slot is max(now + M, next) over all rows."""
    _, state = finish(
        record=MaintenanceRecord(dirty=7, processed=7), other=(Row("L", 1, 8_000), Row("M", 1, 20, state=PENDING))
    )
    assert state.alarm.deadline == 1_050


def rearm(*, now, record=None, native=None, rows=(), charged=None, observed=7, native_only=False, active=0, j=0.0):
    """One failure rearming."""
    record = record or MaintenanceRecord(dirty=7, processed=6)
    state = state_of(native or Row(NATIVE, 3, 0, state=PENDING), *rows, record=record, slot=77)
    with state.transaction() as tx:
        rearmed = certification.rearm_after_failure(
            tx,
            now,
            j,
            MaintenanceConfig(),
            observed=observed,
            native_only=native_only,
            rows=[*state.queue.rows()],
            charged=charged or {},
            active=active,
        )
    return rearmed, state


def test_repeated_failures_escalate_their_retry():
    """10 000 → 10 050, stalls 1; 11 000 → 11 100, stalls 2; the charged row's own floor still wins."""
    charged = Row(NATIVE, 3, 11_000, 1, None, 11_000, PENDING)
    _, state = rearm(now=10_000, native=charged)
    assert state.record.retry == Retry(7, 10_050, False, 1)
    assert state.queue.get(NATIVE).due_at == state.alarm.deadline == 11_000
    charged = Row(NATIVE, 3, 13_000, 2, None, 13_000, PENDING)
    _, state = rearm(now=11_000, native=charged, record=state.record)
    assert state.record.retry == Retry(7, 11_100, False, 2)
    assert state.queue.get(NATIVE).due_at == 13_000


def test_a_native_only_retry_is_kept_whatever_fails_next():
    """Escalation then comes from the queue's floor alone."""
    stored = MaintenanceRecord(dirty=7, processed=6, retry=Retry(7, 10_050, True, 1))
    for native_only in (True, False):
        _, state = rearm(now=11_000, record=stored, native_only=native_only)
        assert state.record.retry == stored.retry


def test_a_retry_of_the_other_kind_or_generation_starts_over():
    """Previous = the observed generation's retry with the same flag."""
    for retry in (Retry(7, 90_000, False, 4), Retry(6, 90_000, True, 4)):
        _, state = rearm(now=10_000, record=MaintenanceRecord(dirty=7, processed=6, retry=retry), native_only=True)
        assert state.record.retry == Retry(7, 10_050, True, 1)


@pytest.mark.parametrize(("dirty", "active"), [(8, 0), (7, 1)])
def test_a_failure_beside_newer_work_comes_back_at_once(dirty, active):
    """Active bodies or another generation: now + M, not the retry."""
    _, state = rearm(now=10_000, record=MaintenanceRecord(dirty=dirty, processed=6), active=active)
    assert state.queue.get(NATIVE).due_at == state.alarm.deadline == 10_050


def test_a_failure_with_nothing_owed_leaves_native_idle():
    """Dirty = processed and no body: no native deadline."""
    rearmed, state = rearm(now=10_000, record=MaintenanceRecord(dirty=7, processed=7))
    assert not rearmed and state.alarm.deadline is None


def test_due_rows_are_charged_once_by_failure_rearming():
    """Not charged in this event → charge, then complete with the backoff; the floor wins (LAN-002)."""
    due = Row("ghost", 4, 0, state=PENDING)
    future = Row("later", 4, 90_000, state=PENDING)
    _, state = rearm(now=10_000, rows=(due, future))
    assert state.queue.get("ghost") == Row("ghost", 5, 11_000, 1, None, 11_000, PENDING)
    assert state.queue.get("later") == future


def test_a_row_charged_in_this_event_is_not_charged_again():
    """Its deadline is the floor: before it the row is left, past it only completed."""
    charged = Row("L", 4, 11_000, 1, None, 11_000, PENDING)
    _, state = rearm(now=10_000, rows=(charged,), charged={"L": 4})
    assert state.queue.get("L") == charged
    _, state = rearm(now=12_000, rows=(charged,), charged={"L": 4})
    assert state.queue.get("L") == Row("L", 5, 12_100, 1, None, 11_000, PENDING)


def test_publication_parked_keeps_native_without_a_deadline_after_a_failure():
    """CheckpointNative gives no deadline while publication is parked (DUE-028)."""
    parked = Row(PUBLICATION, 1, 90_000, 8, None, 90_000, PARKED)
    _, state = rearm(now=10_000, rows=(parked,))
    assert state.queue.get(NATIVE).due_at is None
    assert state.alarm.deadline == 90_000
