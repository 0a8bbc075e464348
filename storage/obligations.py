"""The obligations of a database, page by page, in the order of its index on unsettled rows.

Rule guarded: a page costs the same whatever the past holds and however many Threads there are. It looks at a bounded
number of rows; what the filters leave out is skipped, and the cursor goes on behind the last row looked at.
"""

import json

from thread_objects.contract import limits
from thread_objects.contract.operations import Obligation, ObligationsPage, ObligationsQuery, Severity
from thread_objects.contract.states import SubmissionState
from thread_objects.core.obligations import OpenRow, obligation
from thread_objects.errors import CorruptRecord, InvalidInput

from . import lanes
from .engine import Row, Transaction
from .submissions import OPEN

_CURSOR_VERSION = 1
_START = ("", "", 0)  # before every row: no id is empty
_SELECT = (
    "SELECT s.object_id, s.thread_id, s.queue_sequence, s.submission_id, s.principal, s.agent_id, s.state,"
    " s.admitted_at, s.ready_at, s.suspended_at, s.suspension_reason, s.abort_at,"
    " CASE WHEN s.state = 'unknown' THEN (SELECT MIN(u.marked_at) FROM unknown_calls u"
    " WHERE u.submission_id = s.submission_id AND u.closed_at IS NULL) END,"
    " EXISTS (SELECT 1 FROM faults f WHERE f.thread_id = s.thread_id)"
    f" FROM submissions s WHERE s.{OPEN}"
)
_ORDER = " ORDER BY s.object_id, s.thread_id, s.queue_sequence LIMIT :limit"
_PAST = " AND (s.object_id, s.thread_id, s.queue_sequence) > (:object_id, :thread_id, :sequence)"
_OF_THREAD = " AND s.object_id = :object_id AND s.thread_id = :thread_id AND s.queue_sequence > :sequence"


def page(tx: Transaction, query: ObligationsQuery, *, now: int) -> ObligationsPage:
    """One page."""
    most = _looked_at_most(query)
    rows = _rows(tx, query, most)
    found: list[Obligation] = []
    for looked_at, row in enumerate(rows, start=1):
        owed = obligation(_open_row(row), query, now)
        if owed is not None:
            found.append(owed)
        if len(found) == query.limit and looked_at < len(rows):
            return ObligationsPage(obligations=tuple(found), next_after=_cursor(row))
    more = len(rows) == most
    return ObligationsPage(obligations=tuple(found), next_after=_cursor(rows[-1]) if more else None)


def _looked_at_most(query: ObligationsQuery) -> int:
    """Without a filter every row is an obligation: one more than the page holds tells whether there are more."""
    filters = (query.agent_id, query.principal, *query.blocked_on, query.severity_min is not Severity.OK)
    return limits.OBLIGATIONS_SCAN_MAX if any(filters) else min(query.limit + 1, limits.OBLIGATIONS_SCAN_MAX)


def _rows(tx: Transaction, query: ObligationsQuery, most: int) -> list[Row]:
    place = None if query.after is None else _place(query.after)
    params: dict[str, object] = {"limit": most}
    if query.thread_id is not None:
        lane = lanes.look(tx, query.thread_id)
        if lane is None:
            return []
        if place is not None and place[:2] != (lane.object_id, lane.thread_id):
            raise InvalidInput(what="after: this cursor is of another listing")
        sequence = 0 if place is None else place[2]
        params |= {"object_id": lane.object_id, "thread_id": lane.thread_id, "sequence": sequence}
        return list(tx.all(_SELECT + _OF_THREAD + _ORDER, params))
    object_id, thread_id, sequence = place or _START
    params |= {"object_id": object_id, "thread_id": thread_id, "sequence": sequence}
    return list(tx.all(_SELECT + _PAST + _ORDER, params))


def _open_row(row: Row) -> OpenRow:
    (_, thread_id, sequence, submission_id, principal, agent_id, state, *rest) = row
    (admitted_at, ready_at, suspended_at, reason, abort_at, unknown_since, faulted) = rest
    try:
        known = SubmissionState(state)
    except ValueError as error:
        raise CorruptRecord(thread_id=thread_id, decoder="submission-state") from error
    return OpenRow(
        thread_id=thread_id,
        submission_id=submission_id,
        principal=principal,
        agent_id=agent_id,
        queue_sequence=sequence,
        state=known,
        admitted_at=admitted_at,
        ready_at=ready_at,
        suspended_at=suspended_at,
        suspension_reason=reason,
        unknown_since=unknown_since,
        abort_requested=abort_at is not None,
        faulted=bool(faulted),
    )


def _cursor(row: Row) -> str:
    return json.dumps([_CURSOR_VERSION, row[0], row[1], row[2]], separators=(",", ":"))


def _place(cursor: str) -> tuple[str, str, int]:
    try:
        version, object_id, thread_id, sequence = json.loads(cursor)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(what="after: no cursor of this listing") from error
    if (version, type(object_id), type(thread_id), type(sequence)) != (_CURSOR_VERSION, str, str, int):
        raise InvalidInput(what="after: no cursor of this listing")
    return object_id, thread_id, min(sequence, limits.SERIAL_MAX)
