"""The ledger's table: every pair of operation and state is decided, and what is not listed is refused."""

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thread_objects.contract.states import Decision, SubmissionState
from thread_objects.core.ledger import (
    TRANSITIONS,
    IllegalTransition,
    Operation,
    advance,
    claimable,
    fresh,
    head,
    joins,
    wakes,
)

S = SubmissionState


@dataclass(frozen=True)
class Row:
    """A row of a lane."""

    queue_sequence: int
    state: SubmissionState
    abort_requested: bool = False


def test_settled_is_never_left():
    """No operation leads out of the only terminal state."""
    for operation, moves in TRANSITIONS.items():
        assert moves.get(S.SETTLED, S.SETTLED) is S.SETTLED, operation


def test_every_operation_has_its_row():
    """The table is complete."""
    assert set(TRANSITIONS) == set(Operation)


def test_unlisted_moves_are_refused_by_name():
    """An illegal move raises, naming operation and state."""
    for operation, state in itertools.product(Operation, S):
        if state in TRANSITIONS[operation]:
            assert advance(operation, state) is TRANSITIONS[operation][state]
            continue
        with pytest.raises(IllegalTransition) as refused:
            advance(operation, state)
        assert (refused.value.operation, refused.value.state) == (operation, state)


@pytest.mark.parametrize(
    ("operation", "before", "after"),
    [
        (Operation.MARK_READY, S.ADMITTED, S.READY),
        (Operation.MARK_READY, S.SUSPENDED, S.SUSPENDED),
        (Operation.MARK_INPUT_APPLIED, S.READY, S.INPUT_APPLIED),
        (Operation.MARK_INPUT_APPLIED, S.INPUT_APPLIED, S.INPUT_APPLIED),
        (Operation.CLAIM_JOINING, S.READY, S.JOINING),
        (Operation.MARK_JOINED, S.JOINING, S.JOINED),
        (Operation.REVERT_JOINING, S.JOINING, S.READY),
        (Operation.REVERT_JOINING, S.JOINED, S.JOINED),
        (Operation.SUSPEND, S.INPUT_APPLIED, S.SUSPENDED),
        (Operation.WAKE_SUSPENDED, S.SUSPENDED, S.INPUT_APPLIED),
        (Operation.MARK_UNKNOWN, S.INPUT_APPLIED, S.UNKNOWN),
        (Operation.WAKE_UNKNOWN, S.UNKNOWN, S.INPUT_APPLIED),
        (Operation.FINALIZE, S.JOINED, S.SETTLED),
        (Operation.FINALIZE_ABORTED, S.ADMITTED, S.SETTLED),
    ],
)
def test_moves_of_the_contract(operation: Operation, before: SubmissionState, after: SubmissionState):
    """The moves that the contract lists (LED-010, LED-011)."""
    assert advance(operation, before) is after


def test_joined_work_is_never_called_unknown():
    """A joined input has no tools of its own, and settled work is certain (UNK-015)."""
    for state in (S.JOINED, S.JOINING, S.SETTLED, S.ADMITTED):
        with pytest.raises(IllegalTransition):
            advance(Operation.MARK_UNKNOWN, state)


def test_suspended_work_does_not_settle_directly():
    """Its suspension is closed first."""
    for operation in (Operation.FINALIZE, Operation.FINALIZE_ABORTED):
        with pytest.raises(IllegalTransition):
            advance(operation, S.SUSPENDED)


@given(st.lists(st.tuples(st.sampled_from(list(S)), st.booleans())))
def test_head_is_the_lowest_unsettled_row_but_parked_unknown(states: list[tuple[SubmissionState, bool]]):
    """Whatever blocks, is blocked or is done: the rule is the same (LED-028, LED-030)."""
    rows = [Row(number, state, aborted) for number, (state, aborted) in enumerate(states, 1)]
    found = head(reversed(rows))
    expected = [r for r in rows if r.state is not S.SETTLED and (r.state is not S.UNKNOWN or r.abort_requested)]
    assert found == (expected[0] if expected else None)


@pytest.mark.parametrize(
    ("state", "aborted", "granted"),
    [
        (S.ADMITTED, False, True),
        (S.READY, False, True),
        (S.INPUT_APPLIED, False, True),
        (S.UNKNOWN, False, False),
        (S.UNKNOWN, True, True),
        (S.JOINING, False, False),
        (S.JOINED, True, False),
        (S.SUSPENDED, True, False),
        (S.SETTLED, False, False),
    ],
)
def test_which_heads_are_granted(state: SubmissionState, aborted: bool, granted: bool):
    """A blocked head is neither granted nor jumped (LED-031, LED-032)."""
    assert claimable(state, aborted) is granted


def test_fresh_means_nothing_happened_yet():
    """Ready, never claimed, not aborted."""
    assert fresh(S.READY, 0, False)
    assert not fresh(S.READY, 1, False)
    assert not fresh(S.READY, 0, True)
    assert not fresh(S.INPUT_APPLIED, 0, False)


@pytest.mark.parametrize(
    ("decisions", "woken"),
    [
        ({}, False),
        ({"c1": Decision.APPROVED}, False),
        ({"c1": Decision.APPROVED, "c2": Decision.APPROVED}, True),
        ({"c2": Decision.DENIED}, True),
        ({"c1": Decision.APPROVED, "other": Decision.DENIED}, False),
    ],
)
def test_wake_rule(decisions: dict[str, Decision], woken: bool):
    """All listed decided, or one listed denied (APP-001, APP-002)."""
    assert wakes(["c1", "c2"], decisions) is woken


def test_only_ready_rows_that_never_ran_and_are_of_one_kind_join():
    """Whatever else stands behind a host stays where it is."""
    for state in S:
        assert joins(state, 0, own_kind=True) == (state is S.READY)
    assert not joins(S.READY, 1, own_kind=True)
    assert not joins(S.READY, 0, own_kind=False)


def test_joined_rows_go_back_or_settle_and_nothing_else():
    """Taken input is never claimed, aborted by a suspension or marked unknown on its own."""
    for state in (S.JOINING, S.JOINED):
        leads = {operation: TRANSITIONS[operation][state] for operation in Operation if state in TRANSITIONS[operation]}
        assert set(leads.values()) <= {S.JOINING, S.JOINED, S.READY, S.SETTLED}
        assert Operation.CLAIM not in leads
        assert leads[Operation.FINALIZE] is S.SETTLED
