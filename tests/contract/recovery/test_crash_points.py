"""Recovery dies before or after each of its writes; the next pass reaches the same history."""

from typing import Any

import pytest

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.states import ResolutionKind, ToolClass
from thread_objects.core.recovery import CompletedWithResult, Uncertain

from .conftest import opened
from .lab import Lab, declared
from .mortal import Killed, Mortal


def lost_calls(lab: Lab) -> str:
    """One call is reconciled, one is uncertain, one may be repeated."""
    return lab.lost(declared("c1"), declared("c2"), declared("c3", ToolClass.IDEMPOTENT))


def answered_unknown(lab: Lab) -> str:
    """A resolution was stored and its row woken."""
    sid = lab.lost(declared("c2"))
    lab.recover(attempt="before")
    lab.resolve(sid, "c2", ResolutionKind.COMPLETED_WITH_RESULT, result="done")
    return sid


def aborted_run(lab: Lab) -> str:
    """An abort of a Run with open calls."""
    sid = lab.lost(declared("c1"), declared("c2"))
    lab.abort(sid)
    return sid


def aborted_suspension(lab: Lab) -> str:
    """An abort of a Run that waits for approvals."""
    sid = lab.submit()
    claim = lab.respond(lab.claim(), declared("c1", approval=True), declared("c2", approval=True))
    lab.suspend(lab.ask(lab.ask(claim, "c1"), "c2"), "c1", "c2")
    lab.approve(sid, "c1")
    lab.abort(sid)
    return sid


def lost_suspension(lab: Lab) -> str:
    """The request is canonical, the row is not suspended."""
    sid = lab.submit()
    lab.ask(lab.respond(lab.claim(), declared("c1", approval=True)), "c1")
    lab.pass_lease()
    return sid


def lost_marker(lab: Lab) -> str:
    """The input is canonical, the row does not say so."""
    sid = lab.submit()
    claim = lab.store.claim(lab.request("attempt-1"), now=lab.clock.now())
    recorded = r.UserInputRecorded(submission_id=sid, run_id=ids.run_id(sid), input="hi")
    lab.append(claim, ids.input_batch(sid), (ids.input_record(sid), recorded))
    lab.pass_lease()
    return sid


def queued_abort(lab: Lab) -> str:
    """An abort of queued work that was not published with its intent."""
    lab.submit("k0")
    sid = lab.submit("k1")
    lab.tear("UPDATE submissions SET abort_at = 1, abort_author = 'op', abort_reason = '' WHERE submission_id = ?", sid)
    return sid


SCENARIOS = [
    lost_calls,
    answered_unknown,
    aborted_run,
    aborted_suspension,
    lost_suspension,
    lost_marker,
    queued_abort,
]


def verdict(call):
    return CompletedWithResult("seen") if call.tool_call_id == "c1" else Uncertain()


def pass_once(lab: Lab, attempt: str, **more: Any) -> None:
    lab.reconciled(verdict, attempt=attempt, **more)


def reached(lab: Lab, sid: str) -> Any:
    """The normalised history and the row: audits of repairs and their number do not count."""
    found = lab.store.run_records(sid)
    snapshot = lab.snapshot(sid)
    history = sorted((rec.record_id, rec.batch_id) for rec in found if rec.kind != "RepairAnnotated")
    assert len({rec.record_id for rec in found}) == len(found)
    # Where nothing is left to repair the dead one's lease stays, for the next claim to supersede.
    assert snapshot.ownership is None or snapshot.ownership.attempt_id == "killed"
    return history, snapshot.state, snapshot.unknown_calls, snapshot.suspension, snapshot.input_applied is not None


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_crash_at_any_write_converges_on_the_same_history(scenario, tmp_path):
    """EVI-024, EVI-034, EVI-035, CHA-007: one settlement, no second statement, no call run, wherever it dies."""
    with opened(f"sqlite:///{tmp_path / 'whole.db'}") as lab:
        sid = scenario(lab)
        whole = Mortal(lab.store, None, after=False)
        pass_once(lab, "recovery-1", store=whole)
        pass_once(lab, "recovery-2")
        expected = reached(lab, sid)
    assert whole.writes > 0
    for dies_at in range(1, whole.writes + 1):
        for after in (False, True):
            with opened(f"sqlite:///{tmp_path}/{dies_at}-{after}.db") as lab:
                assert scenario(lab) == sid
                with pytest.raises(Killed):
                    pass_once(lab, "killed", store=Mortal(lab.store, dies_at, after=after))
                pass_once(lab, "recovery-1", ended_attempts=("killed",))
                pass_once(lab, "recovery-2")
                assert reached(lab, sid) == expected, (dies_at, after)
