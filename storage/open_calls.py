"""Calls that wait for somebody, as control views show them: undecided approvals and Unknown Outcomes.

Rule guarded: asked only for rows that are suspended or unknown, so that a lane without any pays nothing; and found by
the index of open rows, so that a lane's settled past costs nothing either.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from thread_objects.contract.limits import OPEN_CALLS_MAX
from thread_objects.contract.states import SubmissionState
from thread_objects.contract.views import OpenCall

from .engine import Transaction
from .submissions import OPEN

WAITING_STATES = (SubmissionState.SUSPENDED, SubmissionState.UNKNOWN)

_APPROVALS = (
    "SELECT s.thread_id, s.submission_id, a.tool_call_id, a.tool_name, 'approval', a.requested_at"
    " FROM submissions s JOIN approvals a ON a.submission_id = s.submission_id"
    f" WHERE s.object_id = :object_id AND s.{OPEN} AND s.state = 'suspended' AND a.decision IS NULL"
)
_UNKNOWN = (
    "SELECT s.thread_id, s.submission_id, u.tool_call_id, u.tool_name, 'unknown', u.marked_at"
    " FROM submissions s JOIN unknown_calls u ON u.submission_id = s.submission_id"
    f" WHERE s.object_id = :object_id AND s.{OPEN} AND s.state = 'unknown' AND u.closed_at IS NULL AND NOT EXISTS"
    " (SELECT 1 FROM unknown_resolutions r WHERE r.submission_id = u.submission_id"
    " AND r.tool_call_id = u.tool_call_id AND r.kind <> 'abort-submission')"
)


def waiting(tx: Transaction, object_id: str, thread_id: str | None = None) -> Mapping[str, Sequence[OpenCall]]:
    """Open calls by Thread, oldest first, at most `OPEN_CALLS_MAX` each; of one Thread where it is named."""
    one = "" if thread_id is None else " AND s.thread_id = :thread_id"
    found: defaultdict[str, list[OpenCall]] = defaultdict(list)
    for thread, submission, call, tool, waits_for, since in tx.all(
        f"SELECT * FROM ({_APPROVALS}{one} UNION ALL {_UNKNOWN}{one}) AS calls ORDER BY 6, 2, 3 LIMIT :limit",
        {"object_id": object_id, "thread_id": thread_id, "limit": OPEN_CALLS_MAX * 64},
    ):
        if len(found[thread]) < OPEN_CALLS_MAX:
            found[thread].append(
                OpenCall(submission_id=submission, tool_call_id=call, tool_name=tool, waits_for=waits_for, since=since)
            )
    return found
