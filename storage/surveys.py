"""Control views: what the workflow learns of a lane. Counts and one head, whatever the queue's length.

Rule guarded: a view is one moment. Everything that changes comes from a single statement; what is looked up after it
(ids of a row at its place in the queue) never changes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from thread_objects.contract.limits import DUTY_THREADS_MAX, HOST_PAGE_THREADS
from thread_objects.contract.states import SubmissionState
from thread_objects.contract.views import Page, Survey, ThreadView
from thread_objects.core import views
from thread_objects.core.views import Group

from . import lanes, open_calls
from .engine import Params, Transaction, listed
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

_Groups = defaultdict[str, list[Group]]
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
    groups = _grouped(tx, object_id, "", {"limit": SURVEY_THREADS_MAX + 1})
    threads = sorted(groups)
    truncated = len(threads) > SURVEY_THREADS_MAX
    return _folded(tx, object_id, groups, threads[:SURVEY_THREADS_MAX], truncated=truncated)


def page(tx: Transaction, object_id: str, asked: Page, discover_after: str | None = None) -> Survey:
    """One page of a round over a shared host's Threads with nonterminal rows, in code-point order of their ids.

    Said of each page: all such Threads between its bounds at one moment. Threads that come or go between two pages are
    those of a newer generation. Threads with duties of their own are listed from behind `discover_after`, and from
    the first one where none is left there.
    """
    limit = HOST_PAGE_THREADS
    groups = _behind(tx, object_id, asked.after, asked.origin if asked.wrapped else None, limit + 1)
    found = sorted(groups)
    if len(found) > limit:
        following = asked.model_copy(update={"after": found[limit - 1]})
        return _folded(tx, object_id, groups, found[:limit], following=following, discover_after=discover_after)
    if asked.wrapped or not asked.origin:
        return _folded(tx, object_id, groups, found, discover_after=discover_after)
    room = limit - len(found)
    before = _behind(tx, object_id, None, asked.origin, room + 1)
    first = sorted(before)
    rest = None
    if len(first) > room:
        rest = Page(after=first[room - 1] if room else None, origin=asked.origin, wrapped=True)
    return _folded(
        tx, object_id, {**groups, **before}, sorted(found + first[:room]), following=rest, discover_after=discover_after
    )


def touched(tx: Transaction, object_id: str, thread_ids: Iterable[str]) -> Survey:
    """The Threads of one batch, of this object: what a shared host is answered, however many others it owns."""
    names, params = listed("thread", sorted(set(thread_ids)))
    groups = _grouped(tx, object_id, f" AND thread_id IN {names}", {**params, "limit": len(params)})
    survey = _folded(tx, object_id, groups, sorted(params.values()))
    return survey.model_copy(update={"partial": True})


def _behind(tx: Transaction, object_id: str, after: str | None, until: str | None, limit: int) -> _Groups:
    bounds = (" AND thread_id > :after" if after is not None else "") + (
        " AND thread_id <= :until" if until is not None else ""
    )
    given = {"after": after, "until": until}
    return _grouped(
        tx, object_id, bounds, {"limit": limit, **{name: value for name, value in given.items() if value is not None}}
    )


def _grouped(tx: Transaction, object_id: str, where: str, params: Params) -> _Groups:
    groups: _Groups = defaultdict(list)
    for thread_id, *row in tx.all(
        f"SELECT thread_id, {_GROUPED} FROM submissions WHERE object_id = :object_id AND {OPEN}"
        " AND thread_id IN (SELECT DISTINCT thread_id FROM submissions WHERE object_id = :object_id"
        f" AND {OPEN}{where} ORDER BY thread_id LIMIT :limit) GROUP BY thread_id, state, aborted",
        {**params, "object_id": object_id},
    ):
        groups[thread_id].append(_group(*row))
    return groups


def _folded(
    tx: Transaction,
    object_id: str,
    groups: Mapping[str, list[Group]],
    threads: list[str],
    *,
    truncated: bool = False,
    following: Page | None = None,
    discover_after: str | None = None,
) -> Survey:
    heads = [(thread, head.lowest) for thread in threads if (head := views.head_group(groups[thread])) is not None]
    identities = _identities(tx, heads)
    beside = tx.all(_BESIDE, {"object_id": object_id})
    retries: dict[str, int] = {row[1]: row[2] for row in beside if row[0] == _FAULT}
    duties = sorted(row[1] for row in beside if row[0] == _DUTY)
    behind = [thread for thread in duties if thread > (discover_after or "")] or duties
    calls = open_calls.waiting(tx, object_id) if any(_somebody_waits(groups[thread]) for thread in threads) else {}
    return Survey(
        threads=tuple(
            views.fold(thread, groups[thread], identities.get(thread), retries.get(thread), calls.get(thread, ()))
            for thread in threads
        ),
        truncated=truncated or len(behind) > DUTY_THREADS_MAX,
        duties=tuple(behind[:DUTY_THREADS_MAX]),
        following=following,
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
