"""The verbs that look into a Thread: what they ask, print, and end with."""

import json
from collections.abc import Callable

import pytest
from pydantic import BaseModel
from typer.testing import Result

from tests.unit.cli import facts
from tests.unit.cli.conftest import ScriptedClient
from thread_objects.cli.exits import Exit
from thread_objects.contract import ids
from thread_objects.contract.operations import (
    BlockedOn,
    Explanation,
    Obligation,
    RetryAnswer,
    Severity,
    ThreadExplanation,
)
from thread_objects.contract.reports import Verification
from thread_objects.errors import NotFound, OperationDenied, RetryRefused

Threads = Callable[..., Result]


def test_explain_tells_decision_evidence_and_what_blocks(threads: Threads, client: ScriptedClient):
    """The decision in words, its disposition, the open call with its age, the intent apart, fault and missing binding."""
    result = threads("explain", "orders", "key:k1")
    assert result.exit_code == Exit.OK
    sid = ids.submission_id("orders", "local", "k1")
    assert client.asked == [("explain", (sid,), {"thread_id": "orders"})]
    for shown in (
        "AwaitUnknownResolution: an outcome is unknown",
        "unknown: parked",
        "outcome unknown for 1 min 30 s: refund call_0 (turn 1, uncertain)",
        "resolution stored: call_0 never-happened by ada",
        "approval of call-2 (turn 1): approved, not canonical yet",
        "2 others, first sub-head (ready)",
        "att-1, epoch 3, lease over",
        "turn 1, 2 calls",
        "no binding for agent 'support'",
        "a new registry key gives it one opportunity",
        "recovery failed: CorruptRecord in read history",
    ):
        assert shown in result.stdout, result.stdout


def test_explain_without_a_submission_explains_the_thread(threads: Threads, client: ScriptedClient):
    """Its own facts, each Submission's decision, what cannot be read, and where to go on."""
    result = threads("explain", "orders", "--after", "3")
    assert client.asked == [("explain_thread", ("orders",), {"after": 3})]
    for shown in ("host-1", "42 records", "AwaitUnknownResolution", "sub-bad cannot be read", "--after 8"):
        assert shown in result.stdout


@pytest.mark.parametrize(("ok", "code"), [(True, Exit.OK), (False, Exit.FAILED)])
def test_verify_ends_with_its_verdict(threads: Threads, client: ScriptedClient, ok: bool, code: Exit):
    """Whole is 0, a failed check is 3; findings are shown, and how many more there are."""
    client.verification = facts.verification(ok=ok)
    result = threads("verify", "orders", "--all-settled")
    assert result.exit_code == code
    assert client.asked == [("verify", ("orders",), {"require_all_settled": True})]
    assert "digest-chain: no digests" in result.stdout
    assert ("whole" in result.stdout) == ok
    assert ("sequence 2 is followed by 4" in result.stdout) == (not ok)
    assert ("and 2 more" in result.stdout) == (not ok)


def test_verify_takes_a_thread_or_an_archive(threads: Threads, client: ScriptedClient):
    """Neither and both are wrong usage, and nobody is asked."""
    assert threads("verify").exit_code == Exit.USAGE
    assert threads("verify", "orders", "--archive", "a.jsonl").exit_code == Exit.USAGE
    assert client.asked == []


def test_an_archive_that_is_not_there_is_refused(threads: Threads, client: ScriptedClient):
    """A path without a file is a typed refusal on one line, and no server is asked."""
    result = threads("verify", "--archive", "/nowhere/a.jsonl")
    assert result.exit_code == Exit.REFUSED
    assert "No such file" in result.stderr
    assert client.asked == []


def test_obligations_are_listed_page_by_page(threads: Threads, client: ScriptedClient):
    """All pages, one line each, with the filters handed on."""
    result = threads(
        "obligations", "--aging", "5", "--overdue", "50", "--agent", "support", "--principal", "ada",
        "--blocked-on", "unknown", "--blocked-on", "ready-aged", "--severity", "aging",
    )  # fmt: skip
    assert result.exit_code == Exit.OK
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["aging", "overdue", "ok"]
    (_, args, asked), (_, _, second) = client.asked
    assert args == (5, 50)
    assert asked == {
        "thread_id": None,
        "agent": "support",
        "principal": "ada",
        "blocked_on": (BlockedOn.UNKNOWN, BlockedOn.READY_AGED),
        "severity": Severity.AGING,
        "after": None,
        "limit": 100,
    }
    assert second["after"] == "next"


def test_obligations_check_ends_with_three_when_something_is_owed(threads: Threads, client: ScriptedClient):
    """For monitors: --check tells by the exit code; a limit ends the listing; nothing owed is 0."""
    assert threads("obligations", "orders", "--check", "--limit", "1").exit_code == Exit.FAILED
    assert len(client.asked) == 1
    client.pages = {None: facts.obligations()["next"].model_copy(update={"obligations": ()})}
    result = threads("obligations", "--check")
    assert result.exit_code == Exit.OK
    assert "nothing is owed" in result.stdout
    assert threads("obligations", "--aging", "60", "--overdue", "5").exit_code == Exit.USAGE


def test_retry_needs_a_reason(threads: Threads, client: ScriptedClient):
    """ADM-011: without a reason nothing is asked: the command refuses before anybody is."""
    assert threads("retry", "orders", "sub-1").exit_code == Exit.USAGE
    assert threads("retry", "orders", "sub-1", "--reason", "").exit_code == Exit.USAGE
    assert client.asked == []


def test_retry_tells_what_was_executed(threads: Threads, client: ScriptedClient):
    """The decision and what it left behind; a refusal is 5 with the decision's name."""
    result = threads("retry", "orders", "sub-1", "--reason", "looked", "--author", "ada")
    assert result.exit_code == Exit.OK
    assert client.asked == [("retry", ("sub-1",), {"author": "ada", "reason": "looked", "thread_id": "orders"})]
    assert "RepairReadiness" in result.stdout
    assert "repaired" in result.stdout
    client.failure = RetryRefused(submission_id="sub-1", refused_because="settled", decision_tag="NoAction")
    refused = threads("retry", "orders", "sub-1", "--reason", "looked")
    assert refused.exit_code == Exit.REFUSED
    assert "NoAction" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["explain", "orders", "sub-1"], Explanation),
        (["explain", "orders"], ThreadExplanation),
        (["verify", "orders"], Verification),
        (["obligations"], Obligation),
        (["retry", "orders", "sub-1", "--reason", "r"], RetryAnswer),
    ],
)
def test_json_is_one_document_a_line(threads: Threads, arguments: list[str], kind: type[BaseModel]):
    """--json prints the message in the contract's names, and nothing else."""
    lines = threads(*arguments, "--json").stdout.splitlines()
    assert lines
    for line in lines:
        kind.model_validate_json(line)
        assert "_" not in "".join(name for name in json.loads(line) if name != "details")


def test_a_denied_operation_and_an_unknown_id_are_refusals(threads: Threads, client: ScriptedClient):
    """Both end with 5 and one line."""
    for failure in (OperationDenied(operation="explain", reason="not yours"), NotFound(what="submission", id="x")):
        client.failure = failure
        result = threads("explain", "orders", "x")
        assert result.exit_code == Exit.REFUSED
        assert len(result.stderr.splitlines()) == 1


def test_the_callers_name_reaches_the_client(threads: Threads, client: ScriptedClient):
    """Reads tell the authoriser who asks: the login name, where the settings name nobody."""
    threads("explain", "orders")
    assert client.settings is not None
    assert client.settings.caller
