"""Views folded from counts say the same as views folded row by row."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from thread_objects.contract.states import SubmissionState
from thread_objects.core import ledger
from thread_objects.core.views import Group, fold, head_group

S = SubmissionState
OPEN = [state for state in S if state is not S.SETTLED]
QUIET = {S.READY, S.JOINED, S.SUSPENDED}


@dataclass(frozen=True)
class Row:
    """A row of a lane."""

    queue_sequence: int
    state: SubmissionState
    abort_requested: bool


def groups_of(rows: list[Row]) -> list[Group]:
    """The rows as a database would count them."""
    counts = Counter((row.state, row.abort_requested) for row in rows)
    return [
        Group(
            state,
            aborted,
            count,
            min(r.queue_sequence for r in rows if (r.state, r.abort_requested) == (state, aborted)),
        )
        for (state, aborted), count in counts.items()
    ]


@given(st.lists(st.tuples(st.sampled_from(OPEN), st.booleans()), max_size=12))
def test_folded_view_says_what_the_rows_say(states: list[tuple[SubmissionState, bool]]):
    """Head by the head rule; parked, quiet and busy rows each counted once."""
    rows = [Row(number, state, aborted) for number, (state, aborted) in enumerate(states, 1)]
    groups = groups_of(rows)
    first = ledger.head(rows)
    leading = head_group(groups)
    assert (leading.lowest if leading else None) == (first.queue_sequence if first else None)
    view = fold("t", groups, ("sub-1", "agent-1") if first else None, 77)
    parked = [row for row in rows if row.state is S.UNKNOWN and not row.abort_requested]
    followers = [row for row in rows if row not in parked and row is not first]
    quiet = [row for row in followers if row.state in QUIET and not row.abort_requested]
    assert (view.nonterminal, view.unknown) == (len(rows), len(parked))
    assert (view.quiet, view.busy) == (len(quiet), len(followers) - len(quiet))
    assert view.fault_retry_at == 77
    if first is None:
        assert view.head is None
    else:
        assert view.head is not None
        assert (view.head.queue_sequence, view.head.state) == (first.queue_sequence, first.state)
        assert (view.head.abort_requested, view.head.submission_id) == (first.abort_requested, "sub-1")
