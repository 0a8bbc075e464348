"""Control views: what the workflow learns of a lane. Counts and one head, whatever the queue's length.

Rule guarded: a view is one moment. Everything that changes comes from a single statement; what is looked up after it
(ids of a row at its place in the queue) never changes.
"""

from collections import defaultdict
from collections.abc import Iterable

from thread_objects.contract.limits import DUTY_THREADS_MAX
from thread_objects.contract.states import SubmissionState
from thread_objects.contract.views import Survey, ThreadView
from thread_objects.core import views
from thread_objects.core.views import Group

from . import lanes, open_calls
from .engine import Transaction
from .submissions import OPEN

SURVEY_THREADS_MAX = 4_096
"""A survey travels through the workflow's history: about 200 bytes for each Thread."""

_FAULT, _EVENTS, _DUTY = 0, 1, 2
_BESIDE = (
    f"SELECT {_FAULT}, thread_id, retry_at FROM faults WHERE object_id = :object_id UNION ALL"
    f" SELECT {_EVENTS}, '', sequence FROM recovery_event_counters WHERE object_id = :object_id"
    " AND sequence > acknowledged UNION ALL"
    f" SELECT {_DUTY}, w.thread_id, MIN(w.queue_sequence) FROM work_items w JOIN submissions s"
    " ON s.submission_id = w.submission_id WHERE w.object_id = :object_id AND w.owner = 'Child' AND s.state = 'settled'"
    " GROUP BY w.thread_id"
)
"""What stands beside the rows: retries of faults, the last event while one waits, and Threads that have something to
do for settled Submissions. One statement: every survey pays for it, and almost none finds anything.
"""

_GROUPED = "state, CASE WHEN abort_at IS NULL THEN 0 ELSE 1 END AS aborted, COUNT(*), MIN(queue_sequence)"


def view(tx: Transaction, object_id: str, thread_id: str) -> ThreadView:
    """The view of one Thread."""
    groups = [
        _group(*row)
        for row in tx.all(
            f"SELECT {_GROUPED} FROM submissions WHERE object_id = :object_id AND thread_id = :thread_id AND {OPEN}"
            " GROUP BY state, aborted",
            {"object_id": object_id, "thread_id": thread_id},
        )
    ]
    head = views.head_group(groups)
    identity = _identities(tx, [(thread_id, head.lowest)]).get(thread_id) if head is not None else None
    fault = tx.one("SELECT retry_at FROM faults WHERE thread_id = :thread_id", {"thread_id": thread_id})
    calls = open_calls.waiting(tx, object_id, thread_id) if _somebody_waits(groups) else {}
    return views.fold(thread_id, groups, identity, None if fault is None else fault[0], calls.get(thread_id, ()))


def view_of(tx: Transaction, thread_id: str) -> ThreadView:
    """The view of a Thread by its id alone; of one that does not exist, the empty view."""
    lane = lanes.look(tx, thread_id)
    return ThreadView(thread_id=thread_id, nonterminal=0) if lane is None else view(tx, lane.object_id, thread_id)


def survey(tx: Transaction, object_id: str) -> Survey:
    """All Threads of an object with nonterminal rows, in code-point order of their ids."""
    groups: defaultdict[str, list[Group]] = defaultdict(list)
    for thread_id, *row in tx.all(
        f"SELECT thread_id, {_GROUPED} FROM submissions WHERE object_id = :object_id AND {OPEN}"
        " AND thread_id IN (SELECT DISTINCT thread_id FROM submissions WHERE object_id = :object_id"
        f" AND {OPEN} ORDER BY thread_id LIMIT :limit) GROUP BY thread_id, state, aborted",
        {"object_id": object_id, "limit": SURVEY_THREADS_MAX + 1},
    ):
        groups[thread_id].append(_group(*row))
    threads = sorted(groups)
    truncated = len(threads) > SURVEY_THREADS_MAX
    threads = threads[:SURVEY_THREADS_MAX]
    heads = [(thread, head.lowest) for thread in threads if (head := views.head_group(groups[thread])) is not None]
    identities = _identities(tx, heads)
    beside = tx.all(_BESIDE, {"object_id": object_id})
    retries: dict[str, int] = {row[1]: row[2] for row in beside if row[0] == _FAULT}
    duties = sorted(row[1] for row in beside if row[0] == _DUTY)
    calls = open_calls.waiting(tx, object_id) if any(_somebody_waits(groups[thread]) for thread in threads) else {}
    return Survey(
        threads=tuple(
            views.fold(thread, groups[thread], identities.get(thread), retries.get(thread), calls.get(thread, ()))
            for thread in threads
        ),
        truncated=truncated or len(duties) > DUTY_THREADS_MAX,
        duties=tuple(duties[:DUTY_THREADS_MAX]),
        event_sequence=next((row[2] for row in beside if row[0] == _EVENTS), 0),
    )


def _somebody_waits(groups: Iterable[Group]) -> bool:
    return any(group.state in open_calls.WAITING_STATES for group in groups)


def _group(state: str, aborted: int, count: int, lowest: int) -> Group:
    return Group(SubmissionState(state), bool(aborted), count, lowest)


_SELECT_IDENTITY = "SELECT thread_id, submission_id, agent_id FROM submissions WHERE "


def _identities(tx: Transaction, places: list[tuple[str, int]]) -> dict[str, tuple[str, str]]:
    if not places:
        return {}
    if len(places) == 1:
        ((thread_id, sequence),) = places
        rows: Iterable[tuple[str, ...]] = tx.all(
            _SELECT_IDENTITY + "thread_id = :thread_id AND queue_sequence = :sequence",
            {"thread_id": thread_id, "sequence": sequence},
        )
    else:
        pairs = ", ".join(f"(:thread_{index}, :sequence_{index})" for index in range(len(places)))
        params: dict[str, object] = {}
        for index, (thread_id, sequence) in enumerate(places):
            params[f"thread_{index}"] = thread_id
            params[f"sequence_{index}"] = sequence
        rows = tx.all(_SELECT_IDENTITY + f"(thread_id, queue_sequence) IN (VALUES {pairs})", params)
    return {thread_id: (submission_id, agent_id) for thread_id, submission_id, agent_id in rows}
