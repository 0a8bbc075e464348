"""A Thread with work in every state that an archive must carry, and archives changed on purpose."""

import hashlib
from collections.abc import Callable
from typing import Any

from tests.contract.world import World, call
from thread_objects.contract.states import Decision, Outcome, ResolutionKind
from thread_objects.core.archive.lines import LINE
from thread_objects.core.canonical import canonical, parse


def lived_in(world: World) -> dict[str, str]:
    """Submission ids by what became of them: settled, failed, aborted, unknown, suspended, queued."""
    found = {"settled": world.run_through("settled").submission_id}
    found["failed"] = world.submit("failed", {"text": "\x00\ud800 \U0001f600", "big": 2**70}).submission_id
    claim = world.result(world.respond(world.begin(attempt="a2"), calls=[call("c1")]), "c1", value={"of": [1.5, None]})
    world.finish(claim, Outcome.FAILED)
    found["aborted"] = world.submit("aborted").submission_id
    world.abort(found["aborted"], reason="not needed")
    found["unknown"] = world.submit("unknown").submission_id
    claim = world.respond(world.begin(attempt="a3"), calls=[call("lost"), call("other")])
    world.lose(claim, "lost", "other")
    world.resolve(found["unknown"], "lost", ResolutionKind.COMPLETED_WITH_RESULT, result={"paid": True})
    found["suspended"] = world.submit("suspended").submission_id
    claim = world.respond(world.begin(attempt="a4"), calls=[call("ask"), call("also")])
    world.suspend(claim, "ask", "also")
    world.answer_approval(found["suspended"], "ask", Decision.APPROVED)
    found["queued"] = world.submit("queued", {"later": ["on", "\x1a"]}).submission_id
    return found


def sealed(lines: list[Any]) -> list[str]:
    """Lines with a trailer that fits them: what somebody writes who knows the format."""
    body = [line if isinstance(line, str) else canonical(line, LINE) + "\n" for line in lines[:-1]]
    trailer = lines[-1] if isinstance(lines[-1], dict) else parse(lines[-1])
    counts = {"submissions": 0, "approvals": 0, "unknownCalls": 0, "resolutions": 0, "reservations": 0, "records": 0}
    names = {"submission": "submissions", "approval": "approvals", "unknown-call": "unknownCalls"}
    names |= {"resolution": "resolutions", "reservation": "reservations", "record": "records"}
    for line in body:
        name = names.get(parse(line).get("type"))
        if name is not None:
            counts[name] += 1
    digest = hashlib.sha256("".join(body).encode()).hexdigest()
    return [*body, canonical({**trailer, "counts": counts, "archiveDigest": digest}, LINE) + "\n"]


def changed(archive: list[str], change: Callable[[list[Any]], None]) -> list[str]:
    """The archive with its parsed lines changed and sealed anew."""
    lines = [parse(line) for line in archive]
    change(lines)
    return sealed(lines)


def of_type(lines: list[Any], kind: str) -> list[Any]:
    """The lines of one type."""
    return [line for line in lines if line["type"] == kind]
