"""Verbs about one Submission: submit, wait, status, abort."""

from typing import Annotated

import typer

from thread_objects.cli.arguments import (
    AsJson,
    MaybeSubmission,
    Principal,
    Reason,
    Submission,
    Thread,
    Timeout,
    read_input,
    submission_of,
)
from thread_objects.cli.exits import BY_OUTCOME, Exit
from thread_objects.cli.render import Screen
from thread_objects.cli.session import Connection, connected, perform, whoami
from thread_objects.client import ThreadClient
from thread_objects.contract.messages import PendingReceipt, SubmissionStatus
from thread_objects.errors import InvalidInput, NotFound


@connected
def submit(
    thread: Thread,
    agent: Annotated[str, typer.Argument(help="The agent's id, as its binding names it.", show_default=False)],
    text: Annotated[
        str, typer.Argument(metavar="INPUT", help="The input; `-` reads standard input.", show_default=False)
    ],
    *,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key never makes a second Submission.")
    ] = None,
    principal: Principal = "local",
    value: Annotated[bool, typer.Option("--value", help="INPUT is a JSON value, not a prompt.")] = False,
    signal: Annotated[bool, typer.Option("--signal", help="Do not wait for admission.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Then wait for the Settlement and end with its code.")] = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Hand one input to a Thread, which is created if need be. Prints the Receipt."""

    async def action(client: ThreadClient) -> Exit | None:
        send = client.submit_signal if signal else client.submit
        receipt = await send(thread, agent, read_input(text, as_value=value), key=key, principal=principal)
        screen = Screen()
        screen.json(receipt) if as_json else screen.receipt(receipt)
        return await _settled(client, receipt, thread, timeout, as_json=as_json) if wait else None

    perform(connection, action, as_json=as_json)


@connected
def wait(
    thread: Thread, submission: Submission, *, timeout: Timeout = None, as_json: AsJson = False, connection: Connection
) -> None:
    """Wait for the Settlement. Ends with 0, 3 or 4 by its outcome, with 6 when the time is over."""

    async def action(client: ThreadClient) -> Exit | None:
        return await _settled(client, submission_of(thread, submission), thread, timeout, as_json=as_json)

    perform(connection, action, as_json=as_json)


async def _settled(
    client: ThreadClient, submission: str | PendingReceipt, thread: str, timeout_s: float | None, *, as_json: bool
) -> Exit:
    settlement = await client.wait(submission, thread_id=thread, timeout=timeout_s)
    screen = Screen()
    screen.json(settlement) if as_json else screen.settlement(settlement)
    return BY_OUTCOME[settlement.outcome]


@connected
def status(
    thread: Thread,
    submission: MaybeSubmission = None,
    *,
    key: Annotated[str | None, typer.Option(help="Find it by its idempotency key.", show_default=False)] = None,
    principal: Principal = "local",
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Where a Submission stands, and which calls wait for somebody."""

    async def action(client: ThreadClient) -> None:
        if key is not None:
            found = await client.find(thread, principal, key)
            if found is None:
                raise NotFound(what="submission with key", id=key)
        else:
            found = await standing(client, thread, submission)
        screen = Screen()
        screen.json(found) if as_json else screen.status(found)

    perform(connection, action, as_json=as_json)


@connected
def abort(
    thread: Thread,
    submission: Submission,
    *,
    author: Annotated[str | None, typer.Option(help="Who asks; the login name by default.", show_default=False)] = None,
    reason: Reason = "",
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Ask for a Submission to be aborted. The first request wins; asking again is safe."""

    async def action(client: ThreadClient) -> None:
        answer = await client.abort(thread, submission_of(thread, submission), author=author or whoami(), reason=reason)
        Screen().answer(answer, as_json=as_json)

    perform(connection, action, as_json=as_json)


async def standing(client: ThreadClient, thread: str, submission: str | None) -> SubmissionStatus:
    """The status of this Submission, or of the Thread's head; `NotFound` where there is none."""
    if submission is None:
        report = await client.report(thread)
        head = next((view.head for view in report.threads if view.thread_id == thread), None)
        if head is None:
            raise NotFound("nothing is unsettled ahead on this thread: name the submission", what="head", id=thread)
        submission = head.submission_id
    submission = submission_of(thread, submission)
    found = await client.status(submission, thread_id=thread)
    if found is None:
        raise NotFound(what="submission", id=submission)
    if found.thread_id != thread:
        raise InvalidInput(f"submission {submission} belongs to thread {found.thread_id}", what="submission")
    return found
