"""One mutation that breaks its transaction holds up nothing and nobody."""

from typing import Any

import pytest

from storage import admission
from tests.contract.world import World, submit
from thread_objects.contract.states import SubmissionState
from thread_objects.errors import StoreUnavailable


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admission of the key `poison` breaks after it has written; of the key `away`, the database goes away."""
    admit = admission.admit

    def breaking(tx: Any, mutation: Any, *args: Any, **more: Any) -> Any:
        answer = admit(tx, mutation, *args, **more)
        if mutation.key == "poison":
            raise RuntimeError("broken after it wrote")
        if mutation.key == "away":
            raise StoreUnavailable(reason="gone")
        return answer

    monkeypatch.setattr(admission, "admit", breaking)


@pytest.mark.usefixtures("poisoned")
def test_an_item_that_breaks_its_transaction_is_refused_alone(world: World) -> None:
    """The items around it are applied, once, also when the batch comes again; of it nothing stays."""
    request = world.request(*(submit(key) for key in ("before", "poison", "after")))
    for again in (False, True):
        answer = world.send(request)
        assert [item.n for item in answer.answers] == [item.n for item in request.items]
        before, poison, after = answer.answers
        assert (poison.refusal.code, poison.receipt) == ("LedgerError", None)
        assert [before.receipt.replayed, after.receipt.replayed] == [False, False], again
        assert [before.progress, after.progress] == [True, True]
        (view,) = answer.survey.threads
        assert (view.nonterminal, view.head.state) == (2, SubmissionState.READY)
    assert world.store.old_marks(before=world.now + 1, limit=10)[0].mark == request.mark


@pytest.mark.usefixtures("poisoned")
def test_a_batch_of_poison_alone_is_answered(world: World) -> None:
    """Nothing was written, and whoever sent it is told."""
    answer = world.send(world.request(submit("poison")))
    assert answer.answers[0].refusal.retryable is False
    assert answer.survey.threads == ()


@pytest.mark.usefixtures("poisoned")
def test_a_database_that_goes_away_refuses_nothing(world: World) -> None:
    """An outage is nobody's fault: the whole batch is offered again later."""
    with pytest.raises(StoreUnavailable):
        world.send(world.request(submit("before"), submit("away")))
    with pytest.raises(StoreUnavailable):
        world.send(world.request(submit("poison"), submit("away")))
