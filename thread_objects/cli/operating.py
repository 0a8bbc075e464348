"""Verbs of an operator: approve, deny, resolve, wake."""

from typing import Annotated

import typer

from thread_objects.cli.arguments import (
    AsJson,
    MaybeCall,
    MaybeSubmission,
    Reason,
    Submission,
    Thread,
    read_json,
    submission_of,
)
from thread_objects.cli.render import Screen
from thread_objects.cli.session import Connection, connected, perform, whoami
from thread_objects.cli.submissions import standing
from thread_objects.cli.text import one_line
from thread_objects.client import ThreadClient
from thread_objects.contract.messages import Pending
from thread_objects.contract.states import Decision, ResolutionKind
from thread_objects.errors import InvalidInput, NotFound

Resolver = Annotated[str | None, typer.Option(help="Who decides; the login name by default.", show_default=False)]


@connected
def approve(
    thread: Thread,
    submission: MaybeSubmission = None,
    call: MaybeCall = None,
    *,
    resolver: Resolver = None,
    reason: Reason = "",
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Approve a tool call that waits for it. Repeating the same decision is safe."""
    _decide(thread, submission, call, Decision.APPROVED, resolver, reason, as_json, connection)


@connected
def deny(
    thread: Thread,
    submission: MaybeSubmission = None,
    call: MaybeCall = None,
    *,
    resolver: Resolver = None,
    reason: Reason = "",
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Deny a tool call: nothing of its batch runs, and the Submission settles failed."""
    _decide(thread, submission, call, Decision.DENIED, resolver, reason, as_json, connection)


def _decide(
    thread: str,
    submission: str | None,
    call: str | None,
    decision: Decision,
    resolver: str | None,
    reason: str,
    as_json: bool,
    connection: Connection,
) -> None:
    async def action(client: ThreadClient) -> None:
        found_submission = None if submission is None else submission_of(thread, submission)
        found_call = call
        if found_submission is None or found_call is None:
            status = await standing(client, thread, submission)
            found_submission = status.submission_id
            found_call = _only(status.approvals, "waits for approval", found_submission)
        answer = await client.resolve_approval(
            thread, found_submission, found_call, decision, resolver=resolver or whoami(), reason=reason
        )
        Screen().answer(answer, as_json=as_json)

    perform(connection, action, as_json=as_json)


@connected
def resolve(
    thread: Thread,
    submission: Submission,
    resolution: Annotated[ResolutionKind, typer.Argument(help="What is known, or permitted.", show_default=False)],
    call: MaybeCall = None,
    *,
    result: Annotated[
        str | None,
        typer.Option(help="The call's result as JSON, for completed-with-result.", show_default=False),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The result is a failure.")] = False,
    author: Resolver = None,
    reason: Reason = "",
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Close a tool call whose outcome is unknown, or permit that it is run again."""

    async def action(client: ThreadClient) -> None:
        value = None if result is None else read_json(result, "result")
        found = call
        if found is None:
            status = await standing(client, thread, submission)
            found = _only(status.unknown_calls, "has an unknown outcome", submission)
        answer = await client.resolve_unknown(
            thread,
            submission_of(thread, submission),
            found,
            resolution,
            result=value,
            is_failure=failed,
            author=author or whoami(),
            reason=reason,
        )
        Screen().answer(answer, as_json=as_json)

    perform(connection, action, as_json=as_json)


@connected
def wake(thread: Thread, *, as_json: AsJson = False, connection: Connection) -> None:
    """Ask the Thread Object to look again. A hint: it grants nothing and changes nothing."""

    async def action(client: ThreadClient) -> None:
        Screen().answer(await client.wake(thread), as_json=as_json)

    perform(connection, action, as_json=as_json)


def _only(calls: tuple[Pending, ...], what: str, submission: str) -> str:
    match calls:
        case ():
            raise NotFound(f"no call of {submission} {what}", what="tool call", id=submission)
        case (only,):
            return only.tool_call_id
        case _:
            told = ", ".join(f"{call.tool_call_id} ({one_line(call.tool_name)})" for call in calls)
            raise InvalidInput(f"name one of the calls of {submission}: {told}", what="tool call")
