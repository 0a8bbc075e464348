"""Settlements: one per Submission, first winner for ever, finalized from the record and never the reverse."""

import pytest
from pydantic import ValidationError

from storage import open_reader
from tests.contract.world import THREAD, World, call, kinds, settled, state
from thread_objects.contract import ids
from thread_objects.contract.messages import Diagnostic
from thread_objects.contract.records import RunCompleted, SubmissionSettled
from thread_objects.contract.states import Outcome
from thread_objects.core import batches
from thread_objects.core.canonical import canonical
from thread_objects.errors import CorruptRecord, LedgerError, NotFound, OwnershipLost, SettlementConflict
from thread_objects.ports import Claim


@pytest.fixture
def claim(world: World) -> Claim:
    """A claimed Submission."""
    world.submit("k1")
    return world.begin()


def publish_only(world: World, claim: Claim, settlement: SubmissionSettled) -> Claim:
    """A canonical settlement whose row was not finalized: the other side of a crash in an import or a later order."""
    batch = batches.settlement(settlement, deployment_id="deployment-1", now=world.now)
    return claim.at(world.store.append(claim, batch, now=world.now))


def test_finish_appends_publishes_and_finalizes(world: World, claim: Claim):
    """Last batch, settlement and row are one transaction; the claim ends with it."""
    settlement = world.finish(claim, result={"answer": 42})
    assert kinds(world)[-2:] == ["RunCompleted", "SubmissionSettled"]
    assert settlement.model_dump(exclude={"usage"}) == {
        "submission_id": claim.submission_id,
        "settlement_id": ids.settlement_id(claim.submission_id),
        "receipt_id": claim.receipt_id,
        "thread_id": THREAD,
        "outcome": Outcome.COMPLETED,
        "run_id": ids.run_id(claim.submission_id),
        "result": {"answer": 42},
        "diagnostic": None,
        "redacted": False,
        "finish_reason": None,
        "exhausted": None,
        "policy_limit": None,
        "settled_at": world.now,
    }
    found = world.store.snapshot(claim.submission_id)
    assert found is not None
    assert (found.state, found.ownership) == ("settled", None)


def test_finish_tells_the_view_after_it(world: World, claim: Claim):
    """The view that goes back to the workflow is read in the settling transaction."""
    follower = world.submit("k2")
    _, view = world.store.finish(claim, [], settled(claim), now=world.now)
    assert (view.nonterminal, view.head.submission_id, view.quiet) == (1, follower.submission_id, 0)


def test_repeated_finish_answers_the_first_winner(world: World, claim: Claim):
    """A lost answer is asked again and is the same, first time included, wherever the tail is by now (LED-055)."""
    first = world.finish(claim)
    follower = world.run_through("k2")
    world.now += 5_000
    assert world.finish(claim) == first
    assert [kind for kind in kinds(world) if kind == "SubmissionSettled"] == ["SubmissionSettled"] * 2
    assert state(world, follower.submission_id) == "settled"


def test_other_outcome_conflicts(world: World, claim: Claim):
    """The first outcome stands (LED-048)."""
    world.finish(claim)
    with pytest.raises(SettlementConflict) as conflict:
        world.finish(claim, Outcome.FAILED)
    assert conflict.value.existing_outcome == "completed"
    assert kinds(world).count("SubmissionSettled") == 1


def test_settling_without_a_live_claim_writes_nothing(world: World, claim: Claim):
    """A released claim settles nothing (LED-050)."""
    world.store.release(claim, now=world.now)
    with pytest.raises(OwnershipLost):
        world.finish(claim)
    assert "SubmissionSettled" not in kinds(world)
    assert state(world, claim.submission_id) == "input-applied"


def test_foreign_settlement_is_refused(world: World, claim: Claim):
    """A settlement names its own Submission, receipt and derived id, or nothing happens."""
    good = settled(claim)
    for foreign in (
        good.model_copy(update={"receipt_id": "rcp-other"}),
        good.model_copy(update={"submission_id": "sub-other"}),
        good.model_copy(update={"settlement_id": "settlement:other"}),
    ):
        with pytest.raises(LedgerError):
            world.store.finish(claim, [], foreign, now=world.now)
    assert "SubmissionSettled" not in kinds(world)
    assert world.finish(claim).outcome is Outcome.COMPLETED


def test_finalize_keeps_its_first_time(world: World, claim: Claim):
    """Finalizing twice changes nothing (LED-045)."""
    publish_only(world, claim, settled(claim))
    first = world.store.finalize(claim.submission_id, now=world.now)
    again = world.store.finalize(claim.submission_id, now=world.now + 5_000)
    assert (first.settled_at, again) == (world.now, first)
    assert world.claim(attempt="attempt-2") is None
    with pytest.raises(OwnershipLost):
        world.store.renew(claim, now=world.now)


def test_finalize_needs_evidence(world: World, claim: Claim):
    """Without a record, or with one that contradicts the row, nothing moves (LED-047)."""
    with pytest.raises(LedgerError):
        world.store.finalize(claim.submission_id, now=world.now)
    publish_only(world, claim, settled(claim).model_copy(update={"receipt_id": "rcp-other"}))
    with pytest.raises(LedgerError):
        world.store.finalize(claim.submission_id, now=world.now)
    assert state(world, claim.submission_id) == "input-applied"
    with pytest.raises(NotFound):
        world.store.finalize("sub-nobody", now=world.now)


def test_finish_finds_its_own_earlier_publication(world: World, claim: Claim):
    """A settlement that is canonical under the same claim already is the answer."""
    publish_only(world, claim, settled(claim))
    again = world.store.finish(claim, [], settled(claim), now=world.now + 7)[0]
    assert (again.outcome, again.result) == (Outcome.COMPLETED, "done")
    assert state(world, claim.submission_id) == "settled"
    assert world.claim(attempt="attempt-2") is None
    with pytest.raises(SettlementConflict):
        world.finish(claim, Outcome.FAILED)


def test_outcome_comes_from_the_record(world: World, claim: Claim):
    """A row that says something else than its record is not believed."""
    world.finish(claim)
    world.store._database.write(lambda tx: tx.run("UPDATE submissions SET outcome = 'failed'", {}))
    with pytest.raises(LedgerError):
        world.store.finalize(claim.submission_id, now=world.now)
    reader = open_reader(world.url)
    assert reader.settlements([claim.submission_id])[claim.submission_id].outcome is Outcome.COMPLETED
    reader.close()


def test_failed_settlement_carries_its_diagnostic(world: World, claim: Claim):
    """The bounded diagnostic is all that a failure says."""
    settlement = world.finish(claim, Outcome.FAILED)
    assert settlement.diagnostic == Diagnostic(error_tag="Broken", message="it broke")
    assert settlement.result is None


@pytest.mark.parametrize(
    "broken",
    [
        {"outcome": "aborted", "result": "something"},
        {"outcome": "failed", "diagnostic": {"errorTag": "X", "message": ""}, "finishReason": "budget-exhausted"},
        {"outcome": "failed", "diagnostic": {"errorTag": "X", "message": ""}, "policyLimit": "cost"},
        {"outcome": "failed"},
    ],
    ids=["LIM-020", "LIM-021", "LIM-022", "failed without diagnostic"],
)
def test_invalid_settlement_is_refused_at_decode(world: World, claim: Claim, broken: dict[str, object]):
    """A stored settlement that breaks the rules is corrupt, never guessed at (LIM-020, LIM-021, LIM-022)."""
    good = settled(claim).model_dump(by_alias=True)
    with pytest.raises(ValidationError):
        SubmissionSettled.model_validate({**good, "result": None, **broken})
    world.finish(claim)
    body = canonical({**good, "result": None, **broken})
    world.store._database.write(
        lambda tx: tx.run("UPDATE records SET body = :body WHERE kind = 'SubmissionSettled'", {"body": body})
    )
    with pytest.raises(CorruptRecord) as corrupt:
        world.store.finalize(claim.submission_id, now=world.now)
    assert corrupt.value.decoder == "SubmissionSettled"


def test_earlier_batches_of_a_finish_are_not_repeated(world: World, claim: Claim):
    """A finish that finds a part of itself committed adds only what is missing."""
    run = ids.run_id(claim.submission_id)
    output = world.batch("final", (ids.run_completed_record(run), RunCompleted(run_id=run, output="done")))
    world.store.append(claim, output, now=world.now)
    world.store.finish(claim, [output], settled(claim), now=world.now)
    assert kinds(world).count("RunCompleted") == 1
    assert kinds(world)[-1] == "SubmissionSettled"


def test_aborted_unknown_work_settles_under_its_claim(world: World, claim: Claim):
    """Uncertain work with an abort is claimed and settled; its evidence stays."""
    world.lose(world.respond(claim, calls=[call("c1")]), "c1")
    world.abort(claim.submission_id)
    again = world.begin(attempt="attempt-2")
    assert world.finish(again, Outcome.ABORTED).outcome is Outcome.ABORTED
    assert kinds(world).count("ToolCallUnknown") == 1
