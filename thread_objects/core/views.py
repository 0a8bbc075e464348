"""Control views, folded from counts: a lane of any length becomes a view of one size."""

from collections.abc import Sequence
from dataclasses import dataclass

from thread_objects.contract.states import SubmissionState
from thread_objects.contract.views import OpenCall, RowView, ThreadView
from thread_objects.core.ledger import skipped

_QUIET = {SubmissionState.READY, SubmissionState.JOINED, SubmissionState.SUSPENDED}


@dataclass(frozen=True, slots=True)
class Group:
    """The nonterminal rows of a lane in one state, with or without an abort intent."""

    state: SubmissionState
    abort_requested: bool
    count: int
    lowest: int
    """The lowest queue sequence among them."""

    @property
    def parked(self) -> bool:
        """Uncertain work that the head rule steps over."""
        return skipped(self.state, self.abort_requested)

    @property
    def quiet(self) -> bool:
        """Nothing to do for these until the head moves."""
        return self.state in _QUIET and not self.abort_requested


def head_group(groups: Sequence[Group]) -> Group | None:
    """The group whose lowest row is the head."""
    return min((group for group in groups if not group.parked), key=lambda group: group.lowest, default=None)


def fold(
    thread_id: str,
    groups: Sequence[Group],
    head_identity: tuple[str, str] | None = None,
    fault_retry_at: int | None = None,
    open_calls: Sequence[OpenCall] = (),
) -> ThreadView:
    """The view of a Thread. `head_identity` is (submission id, agent id) of the lowest row of `head_group`.

    Followers that merely wait for the head are quiet; rows that somebody must act on, wherever they stand, are busy.
    """
    leading = head_group(groups)
    head = None
    if leading is not None and head_identity is not None:
        submission_id, agent_id = head_identity
        head = RowView(
            submission_id=submission_id,
            queue_sequence=leading.lowest,
            state=leading.state,
            agent_id=agent_id,
            abort_requested=leading.abort_requested,
        )
    followers = [(group, group.count - (group is leading)) for group in groups if not group.parked]
    return ThreadView(
        thread_id=thread_id,
        nonterminal=sum(group.count for group in groups),
        head=head,
        unknown=sum(group.count for group in groups if group.parked),
        quiet=sum(count for group, count in followers if group.quiet),
        busy=sum(count for group, count in followers if not group.quiet),
        fault_retry_at=fault_retry_at,
        open_calls=tuple(open_calls),
    )
