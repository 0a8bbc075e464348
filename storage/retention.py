"""Retention: takes content from settled work, a bounded piece in each transaction.

Rules guarded. Work that is not settled, or that still owes something (an open unknown call, a held reservation, a
parent or a joined input that is not settled), is never touched. A Submission loses all of its content at once or none.
What proves (identities, outcome, digests, the receipt of a key) stays for ever, so the same key has the same answer and
an audit the same findings. Only what is redacted is deleted, from the beginning of the log, up to a batch's end.
"""

from collections import Counter
from typing import NamedTuple

from thread_objects import failpoints
from thread_objects.contract import ids
from thread_objects.contract.retention import RetentionCursor, RetentionPage, RetentionPolicy
from thread_objects.core import redaction
from thread_objects.core.canonical import RECORD, canonical, parse

from . import checkpoints, lanes
from .engine import Transaction, listed

_THREADS = 64
"""Threads that one transaction looks at for something to do; it works on one of them."""
_ROWS = 32
_RECORDS = 2_048
"""Records after which a transaction takes no further Submission, or no further step through a log."""
_PAGE = 32


class _Row(NamedTuple):
    """A settled Submission that is old enough, and what it may still owe (flags, in the order of `_DUTIES`)."""

    submission_id: str
    queue_sequence: int
    input_applied: int | None
    unknown_call: int
    child: int
    parent: int
    joined: int


_DUTIES = ("unknown-call", "child", "parent", "joined")
_OLD = "s.state = 'settled' AND s.settled_at < :before AND s.redacted_at IS NULL"
_CANDIDATES = (
    "SELECT s.submission_id, s.queue_sequence, s.input_applied,"
    " EXISTS (SELECT 1 FROM unknown_calls u WHERE u.submission_id = s.submission_id AND u.closed_at IS NULL),"
    " EXISTS (SELECT 1 FROM child_reservations c WHERE c.parent_submission_id = s.submission_id"
    " AND c.status <> 'released'),"
    " EXISTS (SELECT 1 FROM submissions p WHERE p.submission_id = s.parent_submission_id AND p.state <> 'settled'),"
    " EXISTS (SELECT 1 FROM submissions j WHERE j.host_submission_id = s.submission_id AND j.state <> 'settled')"
    f" FROM submissions s WHERE s.thread_id = :thread_id AND s.queue_sequence > :after AND {_OLD}"
    " ORDER BY s.queue_sequence LIMIT :limit"
)
_DUE = (
    "SELECT s.thread_id FROM submissions s JOIN threads t ON t.thread_id = s.thread_id"
    " WHERE s.thread_id IN {names} AND s.queue_sequence > 0 AND {what}"
    " ORDER BY s.thread_id, s.queue_sequence LIMIT 1"
)
_DELETABLE = "s.redacted_at IS NOT NULL AND t.tail_sequence > t.base_sequence"


def step(
    tx: Transaction, policy: RetentionPolicy, cursor: RetentionCursor, *, dry_run: bool, now: int
) -> RetentionPage:
    """The next piece of work, and where to go on."""
    if cursor.queue_sequence is not None:
        return _work(tx, policy, cursor.thread_id, cursor.queue_sequence, dry_run=dry_run, now=now)
    if policy.thread_id is not None:
        if cursor.thread_id:
            return RetentionPage(cursor=None)
        return _work(tx, policy, policy.thread_id, 0, dry_run=dry_run, now=now)
    rows = tx.all(
        "SELECT thread_id FROM threads WHERE thread_id > :after ORDER BY thread_id LIMIT :limit",
        {"after": cursor.thread_id, "limit": _THREADS},
    )
    if not rows:
        return RetentionPage(cursor=None)
    page = [row[0] for row in rows]
    names, params = listed("thread", page)
    wanted = [_OLD, _DELETABLE] if policy.mode == "delete" else [_OLD]
    due = [
        found[0]
        for what in wanted
        if (found := tx.one(_DUE.format(names=names, what=what), {**params, "before": policy.before})) is not None
    ]
    if not due:
        return RetentionPage(cursor=RetentionCursor(thread_id=page[-1]))
    return _work(tx, policy, min(due, key=page.index), 0, dry_run=dry_run, now=now)


def _work(
    tx: Transaction, policy: RetentionPolicy, thread_id: str, after: int, *, dry_run: bool, now: int
) -> RetentionPage:
    """Redact some of a Thread's Submissions, or, when all are looked at, delete some of its records."""
    past = RetentionCursor(thread_id=thread_id)
    lane = lanes.look(tx, thread_id) if dry_run else lanes.lock(tx, thread_id)
    if lane is None:
        return RetentionPage(cursor=past)
    if tx.one("SELECT 1 FROM faults WHERE thread_id = :thread_id", {"thread_id": thread_id}) is not None:
        return RetentionPage(cursor=past, kept={"fault": 1})
    if policy.settled_threads_only and _goes_on(tx, policy, lane):
        return RetentionPage(cursor=past)
    rows = [
        _Row(*row)
        for row in tx.all(
            _CANDIDATES,
            {"thread_id": thread_id, "after": after, "before": policy.before, "limit": _ROWS},
        )
    ]
    if not rows:
        return _truncate(tx, policy, lane, past, dry_run=dry_run, now=now)
    kept: Counter[str] = Counter()
    redacted = submissions = 0
    for row in rows:
        after = row.queue_sequence
        reason = _reason(tx, thread_id, row)
        if reason is not None:
            kept[reason] += 1
            continue
        redacted += _count(tx, row) if dry_run else _redact(tx, lane, row, now=now)
        submissions += 1
        if redacted >= _RECORDS:
            break
    if submissions and not dry_run:
        _touched(tx, thread_id, now=now)
        failpoints.hit("retention:before-redact-commit")
    return RetentionPage(
        cursor=RetentionCursor(thread_id=thread_id, queue_sequence=after),
        threads=int(submissions > 0),
        submissions=submissions,
        redacted=redacted,
        kept=dict(kept),
    )


def _goes_on(tx: Transaction, policy: RetentionPolicy, lane: lanes.Lane) -> bool:
    row = tx.one(
        "SELECT 1 FROM submissions WHERE thread_id = :thread_id"
        " AND (settled_at IS NULL OR settled_at >= :before) LIMIT 1",
        {"thread_id": lane.thread_id, "before": policy.before},
    )
    return row is not None


def _reason(tx: Transaction, thread_id: str, row: _Row) -> str | None:
    """Why a Submission keeps its content: it owes something, or nobody can say what of it is content."""
    for duty, owed in zip(_DUTIES, row[3:], strict=True):
        if owed:
            return duty
    kinds = tx.all("SELECT DISTINCT kind FROM records WHERE submission_id = :sid", {"sid": row.submission_id})
    if not all(redaction.redactable(kind) for (kind,) in kinds):
        return "unknown-kind"
    for _, body in _bodies(tx, thread_id, row):
        try:
            if not isinstance(parse(body), dict):
                return "unreadable"
        except ValueError:
            return "unreadable"
    return None


def _bodies(tx: Transaction, thread_id: str, row: _Row) -> list[tuple[int, str]]:
    """The Submission's own records: those of its Run, without inputs that the Run took, and its own input if taken."""
    found: list[tuple[int, str]] = []
    after = 0
    while page := tx.all(
        "SELECT sequence, record_id, kind, body FROM records WHERE submission_id = :sid AND sequence > :after"
        " ORDER BY sequence LIMIT :limit",
        {"sid": row.submission_id, "after": after, "limit": _PAGE},
    ):
        after = page[-1][0]
        own = ids.input_record(row.submission_id)
        found += [
            (sequence, body)
            for sequence, record_id, kind, body in page
            if kind != "UserInputRecorded" or record_id == own
        ]
    taken = tx.one(
        "SELECT sequence, body FROM records WHERE thread_id = :thread_id AND record_id = :record_id"
        " AND (submission_id IS NULL OR submission_id <> :sid)",
        {"thread_id": thread_id, "record_id": ids.input_record(row.submission_id), "sid": row.submission_id},
    )
    return found if taken is None else [*found, (taken[0], taken[1])]


def _count(tx: Transaction, row: _Row) -> int:
    found = tx.one("SELECT COUNT(*) FROM records WHERE submission_id = :sid", {"sid": row.submission_id})
    return int(found[0]) if found is not None else 0


def _redact(tx: Transaction, lane: lanes.Lane, row: _Row, *, now: int) -> int:
    bodies = _bodies(tx, lane.thread_id, row)
    for start in range(0, len(bodies), _PAGE):
        tx.many(
            "UPDATE records SET body = :body WHERE thread_id = :thread_id AND sequence = :sequence",
            [
                {
                    "thread_id": lane.thread_id,
                    "sequence": sequence,
                    "body": canonical(redaction.redact(parse(body), body), RECORD),
                }
                for sequence, body in bodies[start : start + _PAGE]
            ],
        )
    sid = {"sid": row.submission_id}
    tx.run("UPDATE approvals SET reason = '' WHERE submission_id = :sid AND reason <> ''", sid)
    said = tx.all("SELECT tool_call_id, category, result FROM unknown_resolutions WHERE submission_id = :sid", sid)
    for call, category, result in said:
        tx.run(
            "UPDATE unknown_resolutions SET reason = '', result = :result"
            " WHERE submission_id = :sid AND tool_call_id = :call AND category = :category",
            {**sid, "call": call, "category": category, "result": redaction.stand_in(result)},
        )
    tx.run(
        "UPDATE submissions SET redacted_at = :now, input = NULL,"
        " abort_reason = CASE WHEN abort_reason IS NULL THEN NULL ELSE '' END WHERE submission_id = :sid",
        {**sid, "now": now},
    )
    return len(bodies)


def _truncate(
    tx: Transaction, policy: RetentionPolicy, lane: lanes.Lane, past: RetentionCursor, *, dry_run: bool, now: int
) -> RetentionPage:
    """Delete from the log's beginning what is all redacted, up to a batch's end."""
    if policy.mode != "delete" or dry_run:
        return RetentionPage(cursor=past)
    row = tx.one("SELECT base_sequence FROM threads WHERE thread_id = :thread_id", {"thread_id": lane.thread_id})
    base = sequence = int(row[0]) if row is not None else 0
    through, digest = base, None
    known: dict[str, bool] = {}
    taken = False
    more = True
    while more and sequence - base < _RECORDS:
        page = tx.all(
            "SELECT sequence, record_id, kind, submission_id, digest FROM records"
            " WHERE thread_id = :thread_id AND sequence > :after ORDER BY sequence LIMIT :limit",
            {"thread_id": lane.thread_id, "after": sequence, "limit": 8 * _PAGE},
        )
        more = bool(page)
        for sequence, record_id, kind, submission_id, ends in page:
            subject = (
                str(record_id).removeprefix(ids.input_record("")) if kind == "UserInputRecorded" else submission_id
            )
            if subject is not None and not _gone(tx, subject, known):
                more = False
                break
            taken = taken or subject is not None
            if ends is not None and taken:
                through, digest = sequence, ends
    if digest is None:
        return RetentionPage(cursor=past)
    place = {"thread_id": lane.thread_id, "through": through}
    tx.run("DELETE FROM records WHERE thread_id = :thread_id AND sequence <= :through", place)
    tx.run(
        "UPDATE threads SET base_sequence = :through, base_digest = :digest WHERE thread_id = :thread_id",
        {**place, "digest": digest},
    )
    _touched(tx, lane.thread_id, now=now)
    failpoints.hit("retention:before-delete-commit")
    on = RetentionCursor(thread_id=lane.thread_id, queue_sequence=lane.queue_last)
    return RetentionPage(cursor=on if more else past, threads=1, deleted=through - base)


def _gone(tx: Transaction, submission_id: str, known: dict[str, bool]) -> bool:
    if submission_id not in known:
        row = tx.one("SELECT redacted_at FROM submissions WHERE submission_id = :sid", {"sid": submission_id})
        known[submission_id] = row is not None and row[0] is not None
    return known[submission_id]


def _touched(tx: Transaction, thread_id: str, *, now: int) -> None:
    """What was derived from the content goes with it, and what workers hold of it is out of date."""
    checkpoints.drop(tx, thread_id)
    tx.run(
        "UPDATE threads SET retained_at = CASE WHEN retained_at >= :now THEN retained_at + 1 ELSE :now END"
        " WHERE thread_id = :thread_id",
        {"thread_id": thread_id, "now": now},
    )
