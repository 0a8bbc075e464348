"""Recovery of joins, children and faults dies before or after each of its writes; later passes reach the same end."""

from typing import Any

import pytest

from thread_objects.contract import ids
from thread_objects.core.faults import RecoveryFailure

from .conftest import opened
from .family import Family, abort
from .lab import THREAD, Lab
from .mortal import Killed, Mortal
from .test_joins import Seam

PASSES = 5


def requested(lab: Lab) -> str:
    """A child was asked for and never admitted."""
    return Family(lab).upto("request").sid


def admitted(lab: Lab) -> str:
    """A child exists, its parent has not linked it."""
    return Family(lab).upto("admit").sid


def started(lab: Lab) -> str:
    """The start is canonical, the reservation holds no child yet."""
    return Family(lab).upto("start").sid


def joined(lab: Lab) -> str:
    """The child is joined, its budget still held."""
    return Family(lab).upto("join").sid


def orphaned(lab: Lab) -> str:
    """Budget is held for a call that never asked for a child."""
    family = Family(lab).upto("reserve", lose=False)
    lab.result(family.claim, family.call)
    lab.pass_lease()
    return family.sid


def aborted_parent(lab: Lab) -> str:
    """An abort of a parent whose child is at work."""
    family = Family(lab).upto("attach")
    abort(lab, family)
    return family.sid


def late_parent(lab: Lab) -> str:
    """The parent's time is over; one child was asked for."""
    family = Family(lab).upto("request")
    lab.clock.at += 3_600_001
    return family.sid


def settled_parent(lab: Lab) -> str:
    """A parent settled with a child's budget in its hands."""
    family = Family(lab).upto("freeze")
    lab.settle(lab.claim("settling"))
    return family.sid


def joining(lab: Lab) -> str:
    """A host took an input and died before its append."""
    return Seam(lab).upto("take").guest


def appended(lab: Lab) -> str:
    """A host appended an input and died before marking it."""
    return Seam(lab).upto("append").guest


def left_behind(lab: Lab) -> str:
    """A host settled without its joined input."""
    return Seam(lab).upto("settle").guest


SCENARIOS = [
    requested,
    admitted,
    started,
    joined,
    orphaned,
    aborted_parent,
    late_parent,
    settled_parent,
    joining,
    appended,
    left_behind,
]


def passes(lab: Lab) -> None:
    """As many passes as the longest way has steps; the child's own Thread is recovered too."""
    for n in range(PASSES):
        lab.recover(attempt=f"recovery-{n}", ended_attempts=("killed",))


def reached(lab: Lab, sid: str) -> Any:
    """Both histories and rows, the budget and what is owed; audits and times do not count."""
    found = []
    child_sid = ids.submission_id(ids.child_thread_id(sid, "d1"), "p", ids.child_key(ids.run_id(sid), "d1"))
    for submission_id in (sid, child_sid):
        snapshot = lab.store.snapshot(submission_id)
        if snapshot is None:
            found.append(None)
            continue
        records = lab.store.run_records(submission_id)
        assert len({record.record_id for record in records}) == len(records)
        history = sorted((rec.record_id, rec.batch_id) for rec in records if rec.kind != "RepairAnnotated")
        found.append(
            (
                history,
                snapshot.state,
                snapshot.suspension,
                snapshot.host_submission_id,
                snapshot.abort_intent is not None,
                snapshot.child_reservations,
                [(row.call_id, row.child_submission_id) for row in snapshot.child_attachments],
            )
        )
    ownership = lab.store.snapshot(sid).ownership
    # Where nothing is left to repair a dead one's lease stays, for the next claim to supersede.
    assert ownership is None or not ownership.attempt_id.startswith("recovery")
    return found, lab.store.duties(THREAD, after=(0, ""), limit=9)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_crash_at_any_write_converges_on_one_family(scenario, tmp_path):
    """One child, one settlement each, budget given back once, wherever recovery dies."""
    with opened(f"sqlite:///{tmp_path / 'whole.db'}") as lab:
        sid = scenario(lab)
        whole = Mortal(lab.store, None, after=False)
        lab.recover(attempt="first", store=whole)
        passes(lab)
        expected = reached(lab, sid)
    assert whole.writes > 0
    for dies_at in range(1, whole.writes + 1):
        for after in (False, True):
            with opened(f"sqlite:///{tmp_path}/{dies_at}-{after}.db") as lab:
                assert scenario(lab) == sid
                with pytest.raises(Killed):
                    lab.recover(attempt="killed", store=Mortal(lab.store, dies_at, after=after))
                passes(lab)
                assert reached(lab, sid) == expected, (dies_at, after)


FAILURE = RecoveryFailure(phase="history", reason="failure", error_tag="X", operation="read history")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_while_a_fault_is_cleared_tells_it_once(after, tmp_path):
    """Fault, recipients and events go together: each transition is told once, whatever died in between."""
    with opened(f"sqlite:///{tmp_path / 'threads.db'}") as lab:
        lab.submit("k1")
        lab.submit("k2")
        fault = lab.store.record_fault(THREAD, FAILURE, now=lab.clock.now()).fault
        lab.clock.at = fault.retry_at
        with pytest.raises(Killed):
            lab.recover(attempt="killed", store=Mortal(lab.store, 1, after=after))
        lab.recover()
        events = lab.store.recovery_events(THREAD, after=0, limit=99)
        assert [event.transition for event in events] == ["created"] * 2 + ["cleared"] * 2
        assert lab.store.survey(THREAD).event_sequence == 4


def test_a_damaged_conversation_backs_off_until_it_reads_again(tmp_path):
    """A fault of reading the conversation is not cleared by rows in order; it grows, and goes when it reads."""
    with opened(f"sqlite:///{tmp_path / 'threads.db'}") as lab:
        lab.submit("k0")
        lab.settle(lab.claim("first"))
        lab.submit("k1")
        lab.claim("second")
        lab.pass_lease()
        damaged = "UPDATE records SET body = ? WHERE kind = 'SubmissionSettled'"
        whole = lab.store._database.read(
            lambda tx: tx.one("SELECT body FROM records WHERE kind = 'SubmissionSettled'", {})
        )[0]
        lab.tear(damaged, '{"kind":"SubmissionSettled"}')
        seen = RecoveryFailure(
            phase="history",
            reason="failure",
            error_tag="CorruptRecord",
            operation="read transcript",
            decoder="transcript",
            sequence=2,
        )
        fault = lab.store.record_fault(THREAD, seen, now=lab.clock.now()).fault
        for attempts in (2, 3):
            lab.clock.at = fault.retry_at
            fault = lab.recover().fault
            assert (fault.attempts, fault.operation, fault.decoder) == (attempts, "read transcript", "transcript")
        lab.tear(damaged, whole)
        lab.clock.at = fault.retry_at
        assert lab.recover().fault is None
        assert lab.store.fault(THREAD) is None
