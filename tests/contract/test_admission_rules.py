"""Who may be admitted: facts that are part of an admission, groups, fences, the worker's policy, and proof of absence."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import StoreLimits, open_store
from storage.store import SqlStore
from tests.contract.world import THREAD, World, submit
from thread_objects.admission import AdmissionQuestion, AdmissionRules, Admitted, Indeterminate, NotAdmitted
from thread_objects.contract.activities import Refusal
from thread_objects.contract.messages import AdmissionFacts, ParentLink
from thread_objects.contract.states import Outcome
from thread_objects.errors import AdmissionPolicyError, LedgerError

FACTS: dict[str, Any] = {
    "parent": ParentLink(submission_id="s", tool_call_id="c"),
    "worker": "w1",
    "message": "m1",
    "group": "g1",
    "fence": {"at": 1},
}


@pytest.fixture
def ruled(database_url: str) -> Any:
    """Opens worlds with rules on the case's database."""
    opened: list[SqlStore] = []

    def start(policy: Any = None, fence: Any = None) -> World:
        rules = AdmissionRules(policy, fence)
        store = open_store(database_url, limits=StoreLimits(), rules=rules, synchronous="OFF", pool_size=4)
        opened.append(store)
        return World(store, database_url)

    yield start
    for store in opened:
        store.close()


def refuse(_: AdmissionQuestion) -> None:
    """A policy that admits nobody."""
    raise AdmissionPolicyError(reason="refused", policy_code="closed")


def refusal_of(world: World, *said: Any, **facts: Any) -> Refusal:
    """The refusal of an admission."""
    refusal = world.one(submit(*said, **facts)).refusal
    assert refusal is not None
    return refusal


@pytest.mark.parametrize("fact", sorted(FACTS))
def test_facts_that_differ_conflict(ruled: Callable[..., World], fact: str):
    """Present against absent counts, in both directions, and so does another value (LED-044)."""
    world = ruled(fence=lambda _: None)
    other = {"parent": ParentLink(submission_id="s", tool_call_id="d"), "fence": {"at": 2}}.get(fact, "other")
    said = {fact: FACTS[fact]}
    first = world.submit("k1", **said)
    assert world.submit("k1", **said) == first.model_copy(update={"replayed": True})
    assert refusal_of(world, "k1").code == "AdmissionConflict"
    assert refusal_of(world, "k1", **{fact: other}).code == "AdmissionConflict"
    plain = world.submit("k2")
    assert refusal_of(world, "k2", **said).code == "AdmissionConflict"
    assert world.submit("k2", **{fact: None}).submission_id == plain.submission_id


def test_known_key_is_served_before_any_policy(ruled: Callable[..., World]):
    """A replay gets the original Receipt although the policy refuses everyone by now (LED-057)."""
    first = ruled().submit("k1")
    world = ruled(policy=refuse)
    assert world.submit("k1") == first.model_copy(update={"replayed": True})
    refusal = refusal_of(world, "k2")
    assert (refusal.code, refusal.fields) == ("AdmissionPolicyError", {"reason": "refused", "policy_code": "closed"})
    assert world.store.view(THREAD).nonterminal == 1


def test_fence_without_interpreter_is_refused(ruled: Callable[..., World]):
    """Nobody can judge it, so it does not pass (LED-058)."""
    world = ruled()
    refusal = refusal_of(world, "k1", fence={"tail": 3})
    assert refusal.fields == {"reason": "refused", "policy_code": "unsupported-policy"}
    assert world.store.view(THREAD).nonterminal == 0


def test_fence_is_judged_in_the_admission(ruled: Callable[..., World]):
    """The interpreter sees the Thread as it stands under its lock: admitted only if nothing came between."""
    seen: list[tuple[int, int, int]] = []

    def unchanged(question: AdmissionQuestion) -> None:
        seen.append((question.nonterminal, question.queue_last, question.tail.sequence))
        if question.facts.fence != {"after": question.queue_last}:
            raise AdmissionPolicyError(reason="refused", policy_code="moved")

    world = ruled(fence=unchanged)
    assert world.submit("k1", fence={"after": 0}).queue_sequence == 1
    world.submit("k2")
    assert refusal_of(world, "k3", fence={"after": 1}).fields["policy_code"] == "moved"
    assert world.submit("k3", fence={"after": 2}).queue_sequence == 3
    assert seen == [(0, 0, 0), (2, 2, 1), (2, 2, 1)]


def test_group_is_occupied_until_its_submission_settles(world: World):
    """One unsettled Submission of a group in a Thread; another Thread, and another group, have their own."""
    first = world.submit("k1", group="g1")
    refusal = refusal_of(world, "k2", group="g1")
    assert refusal.fields["reason"] == "occupied"
    world.submit("k3", group="g2")
    world.submit("k4", thread="thread-2", group="g1")
    assert world.submit("k1", group="g1").submission_id == first.submission_id
    world.finish(world.begin())
    assert world.submit("k2", group="g1").queue_sequence == 3


def test_group_within_one_batch_admits_one(world: World):
    """Two of a group in one batch: the first is admitted, the second told that it is occupied."""
    first, second = world.apply(submit("k1", group="g"), submit("k2", group="g")).answers
    assert first.receipt is not None
    assert second.refusal is not None
    assert second.refusal.fields["reason"] == "occupied"


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (RuntimeError("bug"), {"reason": "unavailable", "policy_code": "policy-failed"}),
        (AdmissionPolicyError(reason="unavailable", policy_code="x" * 200), {"reason": "unavailable"}),
        (AdmissionPolicyError(reason="invented"), {"reason": "unavailable"}),
    ],
    ids=["bug", "long-code", "unknown-reason"],
)
def test_policy_that_fails_refuses(ruled: Callable[..., World], raised: Exception, told: dict[str, str]):
    """A broken judge never lets anything pass, and what it says is bounded; the rest of the batch is applied."""

    def broken(question: AdmissionQuestion) -> None:
        if question.submit.key == "k1":
            raise raised

    world = ruled(policy=broken)
    refused, admitted = world.apply(submit("k1"), submit("k2")).answers
    assert refused.refusal is not None
    assert refused.refusal.code == "AdmissionPolicyError"
    assert told.items() <= refused.refusal.fields.items()
    assert len(str(refused.refusal.fields["policy_code"])) <= 128
    assert admitted.receipt is not None


def test_limits_come_before_policy(ruled: Callable[..., World], database_url: str):
    """A full lane is told as such, whatever the policy thinks."""
    asked: list[str] = []
    store = open_store(
        database_url,
        limits=StoreLimits(queue_depth=1),
        rules=AdmissionRules(lambda question: asked.append(question.submit.key)),
        synchronous="OFF",
    )
    world = World(store, database_url)
    world.submit("k1")
    assert refusal_of(world, "k2").code == "AdmissionLimitExceeded"
    assert asked == ["k1"]
    store.close()


# --- what became of a key --------------------------------------------------------------------------------------------


def test_absence_is_proven(world: World):
    """Nothing under the key, of this principal, on this Thread."""
    world.submit("k1")
    for thread, principal, key in ((THREAD, "pat", "k2"), (THREAD, "other", "k1"), ("nowhere", "pat", "k1")):
        assert world.store.resolve_admission(thread, principal, key) == NotAdmitted()


def test_admission_is_answered_with_its_row(world: World):
    """Receipt, state and facts, whatever became of it (LED-040)."""
    receipt = world.submit("k1", group="g1")
    found = world.store.resolve_admission(THREAD, "pat", "k1")
    assert isinstance(found, Admitted)
    assert found.receipt == receipt.model_copy(update={"replayed": True})
    assert (found.status.state, found.facts) == ("ready", AdmissionFacts(group="g1"))
    world.finish(world.begin())
    found = world.store.resolve_admission(THREAD, "pat", "k1")
    assert isinstance(found, Admitted)
    assert found.status.settlement is not None
    assert found.status.settlement.outcome is Outcome.COMPLETED


def test_unreachable_owner_is_indeterminate(world: World):
    """Nobody can say: no absence is claimed and nothing is admitted (LED-041)."""
    world.submit("k1")
    world.store.close()
    found = world.store.resolve_admission(THREAD, "pat", "k1")
    assert isinstance(found, Indeterminate)
    assert 1 <= len(found.reason) <= 4_096


def test_file_that_is_gone_is_indeterminate(tmp_path: Path):
    """A database that cannot be read says nothing about a key (LED-041)."""
    path = tmp_path / "threads.db"
    store = open_store(f"sqlite:///{path}", limits=StoreLimits())
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE submissions")
    assert isinstance(store.resolve_admission(THREAD, "pat", "k1"), Indeterminate)
    store.close()


def test_ledger_says_what_it_is(world: World):
    """A self-description that nothing branches on."""
    assert world.store.capabilities == "durable-temporal"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO child_reservations VALUES ('{sid}', 'c', 'r', 'held', NULL, 1, NULL, '1', NULL)",
        "INSERT INTO child_reservations VALUES ('{sid}', 'c', 'r', 'released', NULL, 1, 1, '1', NULL)",
        "INSERT INTO child_reservations VALUES ('nobody', 'c', 'r', 'reserved', NULL, 1, NULL, '1', NULL)",
        "UPDATE submissions SET state = 'joining' WHERE submission_id = '{sid}'",
        "UPDATE submissions SET admission_group = 'g'",
    ],
    ids=["unknown-status", "released-without-accounting", "no-parent", "joining-without-host", "group-twice"],
)
def test_database_holds_the_rules_too(world: World, statement: str):
    """What no operation would write, no statement can."""
    receipts = [world.submit("k1"), world.submit("k2")]
    sid = receipts[0].submission_id
    with pytest.raises(LedgerError):
        world.store._database.write(lambda tx: tx.run(statement.format(sid=sid), {}))
    assert world.store.view(THREAD).nonterminal == len(receipts)
