"""One Thread's recovery as a whole: pages, cursors, isolation, faults."""

import pytest
from structlog.testing import capture_logs

from activities.cursors import Position, cursor_after, position_of
from activities.watch import RecoveryTimeout
from thread_objects.contract.limits import RECOVERY_CURSOR_CHARS_MAX, RECOVERY_OWNERS_MAX
from thread_objects.errors import CorruptRecord, InvalidInput, StoreUnavailable

from .lab import THREAD, declared
from .proxy import Proxied, raising


def unknowns(lab, count):
    """This many parked rows on one Thread."""
    found = []
    for n in range(count):
        found.append(lab.submit(f"k{n}"))
        lab.respond(lab.claim(f"attempt-{n}"), declared("c1"))
        lab.recover(ended_attempts=(f"attempt-{n}",), attempt=f"recovery-{n}")
    return found


def test_fresh_rows_cost_one_read(lab):
    """Recovery runs before every claim: with nothing to recover it asks one thing."""
    for n in range(3):
        lab.submit(f"k{n}")
    store = Proxied(lab.store)
    recovered = lab.recover(store=store)
    assert store.calls == ["recovery_start"]
    assert (recovered.recovered, recovered.repaired, recovered.decisions) == (0, False, ())


def test_a_thread_that_does_not_exist_needs_no_recovery(lab):
    """Absence is no failure."""
    recovered = lab.recover()
    assert (recovered.recovered, recovered.fault, recovered.cursor) == (0, None, None)


def test_every_page_is_recovered_and_the_first_decisions_are_told(lab):
    """All rows count, at most 32 are told."""
    unknowns(lab, RECOVERY_OWNERS_MAX + 3)
    recovered = lab.recover()
    assert recovered.recovered == RECOVERY_OWNERS_MAX + 3
    assert len(recovered.decisions) == 32
    assert recovered.cursor is None


def test_a_stop_between_pages_leaves_a_cursor(lab):
    """SWP-001, DSP-018: at most 32 and a cursor, then the rest and none."""
    rows = unknowns(lab, RECOVERY_OWNERS_MAX + 3)
    first = lab.recover(stopping=lambda: True)
    assert (first.recovered, bool(first.cursor)) == (RECOVERY_OWNERS_MAX, True)
    second = lab.recover(cursor=first.cursor, stopping=lambda: True)
    assert ([d.submission_id for d in second.decisions], second.cursor) == (rows[RECOVERY_OWNERS_MAX:], None)


@pytest.mark.parametrize(
    "cursor",
    [
        cursor_after("another", Position(3)),
        "",
        "3",
        "null",
        '{"a": 1}',
        f'[1, "{THREAD}", -1]',
        f'[1, "{THREAD}", true]',
        f'[1, "{THREAD}", 1.5]',
        f'[2, "{THREAD}", 1]',
        "[" * 8_000,
        "x" * (RECOVERY_CURSOR_CHARS_MAX + 1),
    ],
)
def test_a_foreign_or_unreadable_cursor_is_refused(lab, cursor):
    """SWP-004."""
    with pytest.raises(InvalidInput):
        lab.recover(cursor=cursor)


def test_a_cursor_reads_back():
    """Whatever the thread id holds."""
    for position in (Position(7), Position(duty=(7, 'c"\\'))):
        assert position_of('a"b\\', cursor_after('a"b\\', position)) == position
    assert position_of("t", None) == Position()


def test_an_unreadable_row_blocks_its_thread_once(lab):
    """SWP-005: one fault, however many rows; nothing settled, nothing proven."""
    rows = [lab.lost(declared("c1")), lab.submit("k2")]
    lab.tear(
        "UPDATE records SET body = '{\"kind\":\"ToolCallSettled\"}', kind = 'ToolCallSettled' WHERE kind = 'RunStarted'"
    )
    with capture_logs() as logged:
        recovered = lab.recover()
        again = lab.recover(attempt="recovery-2")
    fault = recovered.fault
    assert (fault.phase, fault.reason, fault.error_tag) == ("history", "failure", "CorruptRecord")
    assert (fault.decoder, fault.operation, fault.attempts) == ("ToolCallSettled", "read history", 1)
    assert recovered.retry_at == fault.retry_at == lab.clock.now() + 5_000
    assert lab.store.fault(THREAD) == fault
    assert (recovered.recovered, recovered.decisions) == (1, ())
    assert again == recovered.model_copy(update={"recovered": 0, "event_sequence": 0})
    assert [entry["event"] for entry in logged] == ["recovery failed"]
    assert lab.state(rows[0]) == "input-applied"


def test_a_thread_in_backoff_is_not_read(lab):
    """DSP-014: before its retry a faulted Thread costs one look at its fault."""
    lab.lost(declared("c1"))
    lab.recover(store=Proxied(lab.store, run_records=raising(RuntimeError())))
    store = Proxied(lab.store)
    blocked = lab.recover(store=store)
    assert store.calls == ["recovery_start"]
    assert blocked.fault is not None
    assert lab.store.recovery_start(THREAD, limit=32, now=blocked.retry_at - 1) == (blocked.fault, [], False)
    cursor = cursor_after(THREAD, Position(1))
    assert lab.recover(store=store, cursor=cursor).fault == blocked.fault
    lab.clock.at = blocked.retry_at
    assert lab.recover(store=store, attempt="recovery-2").fault is None


def test_repeated_failures_back_off(lab):
    """SWP-011: attempts and delays grow, the first instant stays."""
    lab.lost(declared("c1"))
    broken = Proxied(lab.store, run_records=raising(RuntimeError()))
    first = lab.recover(store=broken).fault
    lab.clock.at = first.retry_at
    second = lab.recover(store=broken).fault
    assert (second.attempts, second.first_failed_at) == (2, first.first_failed_at)
    assert second.retry_at == lab.clock.now() + 10_000


def test_a_whole_clean_recovery_clears_the_fault(lab):
    """SWP-017, ABT-011: also where it had nothing to report."""
    sid = lab.lost(declared("c1"))
    fault = lab.recover(store=Proxied(lab.store, recovery_start=raising(StoreUnavailable(reason="away")))).fault
    assert fault.error_tag == "StoreUnavailable"
    lab.settle(lab.claim("attempt-2"))
    lab.clock.at = max(lab.clock.at, fault.retry_at)
    recovered = lab.recover(attempt="recovery-2")
    assert (recovered.recovered, recovered.fault) == (0, None)
    assert lab.store.fault(THREAD) is None
    assert lab.state(sid) == "settled"


def test_a_clean_page_before_a_stop_clears_nothing(lab):
    """Only the last page of a clean recovery clears."""
    unknowns(lab, RECOVERY_OWNERS_MAX + 1)
    fault = lab.recover(store=Proxied(lab.store, run_records=raising(RuntimeError()))).fault
    lab.clock.at = fault.retry_at
    first = lab.recover(stopping=lambda: True)
    assert first.cursor is not None
    assert lab.store.fault(THREAD) is not None
    lab.recover(cursor=first.cursor)
    assert lab.store.fault(THREAD) is None


def test_an_untyped_error_is_a_defect_and_tells_no_message(lab):
    """Class names only, and only ours: no payload reaches a fault."""
    lab.lost(declared("c1"))
    fault = lab.recover(store=Proxied(lab.store, run_records=raising(KeyError("secret-input")))).fault
    assert (fault.reason, fault.error_tag, fault.phase) == ("defect", "Defect", "history")
    assert "secret" not in fault.model_dump_json()
    assert "KeyError" not in fault.model_dump_json()


def test_a_failed_repair_is_told_as_recovery(lab):
    """The phase tells reading from repairing; the claim is given back."""
    sid = lab.lost(declared("c1"))
    broken = Proxied(lab.store, mark_unknown=raising(StoreUnavailable(reason="locked")))
    fault = lab.recover(store=broken).fault
    assert (fault.phase, fault.operation, fault.error_tag) == ("recovery", "mark unknown", "StoreUnavailable")
    assert lab.snapshot(sid).ownership is None


def test_a_recovery_that_takes_too_long_is_a_timeout(lab):
    """SWP-007: nothing is settled; what was held is given back."""
    sid = lab.lost(declared("c1"))
    store = lab.store

    def slow(submission_id):
        lab.clock.at += 30_000
        return store.run_records(submission_id)

    fault = lab.recover(store=Proxied(store, run_records=slow)).fault
    assert (fault.reason, fault.error_tag) == ("timeout", RecoveryTimeout.__name__)
    assert lab.state(sid) == "input-applied"


def test_a_timeout_under_a_claim_gives_the_claim_back(lab):
    """What hangs behind the bound is fenced by its epoch; the Thread is not held."""
    sid = lab.lost(declared("c1"))

    store = lab.store

    def slow(claim, batch, *, now):
        tail = store.append(claim, batch, now=now)
        lab.clock.at += 30_000
        return tail

    fault = lab.recover(store=Proxied(store, append=slow)).fault
    assert (fault.reason, fault.operation, fault.phase) == ("timeout", "reconcile call", "recovery")
    assert lab.snapshot(sid).ownership is None
    assert lab.state(sid) == "input-applied"


def test_each_page_has_its_own_time(lab):
    """A long lane is no timeout."""
    unknowns(lab, RECOVERY_OWNERS_MAX + 2)
    store = lab.store

    def page(thread_id, *, after, limit):
        lab.clock.at += 29_000
        return store.recovery_page(thread_id, after=after, limit=limit)

    assert lab.recover(store=Proxied(store, recovery_page=page)).fault is None


def test_a_store_that_cannot_even_keep_the_fault_raises(lab):
    """The queue retries: the database is away, not the Thread broken."""
    lab.lost(declared("c1"))
    away = raising(StoreUnavailable(reason="away"))
    with pytest.raises(StoreUnavailable, match="away"):
        lab.recover(store=Proxied(lab.store, recovery_start=away, record_fault=away))


def test_an_interruption_is_no_fault(lab):
    """Interruption and injected faults end the sweep; they say nothing of the Thread."""
    lab.lost(declared("c1"))
    for error in (KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(type(error)):
            lab.recover(store=Proxied(lab.store, run_records=raising(error)))
    assert lab.store.fault(THREAD) is None


def test_a_corrupt_state_is_a_fault_of_its_thread(lab):
    """A row nobody can read is visible, not skipped."""
    lab.lost(declared("c1"))
    fault = lab.recover(
        store=Proxied(lab.store, recovery_start=raising(CorruptRecord(thread_id=THREAD, decoder="submission-state")))
    ).fault
    assert (fault.decoder, fault.operation, fault.phase) == ("submission-state", "read recovery page", "history")


def test_an_unreadable_fault_is_not_used(lab):
    """SWP-027: it is replaced by the failure to read it, and the count begins anew."""
    lab.lost(declared("c1"))
    lab.recover(store=Proxied(lab.store, run_records=raising(RuntimeError())))
    lab.tear("UPDATE faults SET causes = 'nonsense', attempts = 9")
    fault = lab.recover().fault
    assert (fault.error_tag, fault.decoder, fault.attempts) == ("CorruptRecord", "fault", 1)
    lab.clock.at = fault.retry_at
    assert lab.recover(attempt="recovery-2").fault is None


def test_a_fault_that_falls_due_during_the_look_is_not_cleared_unseen(lab):
    """The page was left out for its sake, so nothing was recovered yet."""
    lab.lost(declared("c1"))
    fault = lab.recover(store=Proxied(lab.store, run_records=raising(RuntimeError()))).fault
    lab.clock.at = fault.retry_at - 1
    store = lab.store

    def start(thread_id, *, limit, now):
        lab.clock.at += 10
        return store.recovery_start(thread_id, limit=limit, now=now)

    assert lab.recover(store=Proxied(store, recovery_start=start)).fault == fault
    assert store.fault(THREAD) == fault
