"""What each verb asks of the client, prints, and ends with."""

import json
from collections.abc import Callable

import pytest
from pydantic import BaseModel
from typer.testing import Result

from tests.unit.cli import facts
from tests.unit.cli.conftest import ScriptedClient
from thread_objects.cli.exits import Exit
from thread_objects.contract import ids
from thread_objects.contract.messages import Receipt, Settlement, SubmissionStatus
from thread_objects.contract.reports import ObjectReport
from thread_objects.contract.states import Outcome, SubmissionState

Threads = Callable[..., Result]


def test_submit_prints_the_receipt(threads: Threads, client: ScriptedClient):
    """A submit hands over what was typed and shows every identity of the Receipt."""
    result = threads("submit", "orders", "support", "Refund 1001", "--key", "k1", "--principal", "ada")
    assert result.exit_code == Exit.OK
    assert client.asked == [("submit", ("orders", "support", "Refund 1001"), {"key": "k1", "principal": "ada"})]
    for shown in (facts.RECEIPT, facts.SUBMISSION, facts.THREAD, "k1", facts.AT_TEXT):
        assert shown in result.stdout
    assert client.closed


def test_submit_by_signal_claims_no_admission(threads: Threads, client: ScriptedClient):
    """The sender of a signal holds identities only, and is told so."""
    result = threads("submit", "orders", "support", "hello", "--signal")
    assert client.asked[0][0] == "submit_signal"
    assert "not told to who sends by signal" in result.stdout
    assert "sequence" not in result.stdout


def test_submit_reads_standard_input_and_json_values(threads: Threads, client: ScriptedClient):
    """`-` is standard input; with --value the input is the JSON value, not its text."""
    threads("submit", "orders", "support", "-", "--value", stdin='{"order": 1001}')
    assert client.asked[0][1] == ("orders", "support", {"order": 1001})


@pytest.mark.parametrize("text", ["{", "NaN", '{"a": Infinity}', ""])
def test_value_that_is_no_json_is_refused_before_anything_is_sent(threads: Threads, client: ScriptedClient, text: str):
    """Malformed JSON is a typed refusal on one line."""
    result = threads("submit", "orders", "support", text, "--value")
    assert result.exit_code == Exit.REFUSED
    assert "input is not JSON" in result.stderr
    assert client.asked == []


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.COMPLETED, 0), (Outcome.FAILED, 3), (Outcome.ABORTED, 4)])
def test_wait_ends_with_the_code_of_the_outcome(threads: Threads, client: ScriptedClient, outcome: Outcome, code: int):
    """A failure never looks like success: the exit code is the outcome's (field case F34)."""
    client.settlement = facts.settlement(outcome)
    for arguments in (
        ["wait", "orders", facts.SUBMISSION],
        ["submit", "orders", "support", "hello", "--wait"],
        ["wait", "orders", facts.SUBMISSION, "--json"],
    ):
        result = threads(*arguments)
        assert result.exit_code == code
        assert str(outcome) in result.stdout


def test_failed_settlement_shows_its_diagnostic(threads: Threads, client: ScriptedClient):
    """The bounded diagnostic is printed, tag and message (field case F34)."""
    client.settlement = facts.settlement(Outcome.FAILED)
    result = threads("wait", "orders", facts.SUBMISSION)
    assert "ModelError" in result.stdout
    assert "503 from the provider" in result.stdout


def test_wait_hands_on_thread_and_timeout(threads: Threads, client: ScriptedClient):
    """The wait is bounded by what was typed, for ever without it."""
    threads("wait", "orders", facts.SUBMISSION, "--timeout", "1.5")
    threads("wait", "orders", facts.SUBMISSION)
    assert [kwargs for _name, _args, kwargs in client.asked] == [
        {"thread_id": "orders", "timeout": 1.5},
        {"thread_id": "orders", "timeout": None},
    ]


def test_status_shows_what_waits_for_somebody(threads: Threads):
    """A pending approval is shown with its call id and its exact arguments."""
    result = threads("status", "orders", facts.SUBMISSION)
    assert "suspended" in result.stdout
    assert "waits for approval: refund" in result.stdout
    assert facts.CALL in result.stdout
    assert '{"order_id": 1001}' in result.stdout


def test_status_without_a_submission_is_that_of_the_head(threads: Threads, client: ScriptedClient):
    """Who only knows the Thread sees its head."""
    threads("status", "orders")
    assert client.asked == [
        ("report", ("orders",), {}),
        ("status", (facts.SUBMISSION,), {"thread_id": "orders"}),
    ]


def test_status_by_key_proves_absence(threads: Threads, client: ScriptedClient):
    """A key that was never admitted is `NotFound`, which is proof."""
    client.found = None
    result = threads("status", "orders", "--key", "k9")
    assert client.asked[0] == ("find", ("orders", "local", "k9"), {})
    assert result.exit_code == Exit.REFUSED
    assert "k9" in result.stderr


def test_submission_of_another_thread_is_refused(threads: Threads):
    """An id that belongs elsewhere is never shown under this Thread."""
    result = threads("status", "another", facts.SUBMISSION)
    assert result.exit_code == Exit.REFUSED
    assert "belongs to thread orders" in result.stderr


def test_approve_finds_the_only_call_that_waits(threads: Threads, client: ScriptedClient):
    """With one pending call nobody has to copy ids."""
    result = threads("approve", "orders", "--resolver", "ada", "--reason", "fine")
    assert result.exit_code == Exit.OK
    assert client.asked[-1] == (
        "resolve_approval",
        ("orders", facts.SUBMISSION, facts.CALL, "approved"),
        {"resolver": "ada", "reason": "fine"},
    )
    assert "approved" in result.stdout


def test_deny_names_the_call_as_given(threads: Threads, client: ScriptedClient):
    """With all ids given nothing is looked up."""
    threads("deny", "orders", "sub-2", "call_9", "--resolver", "ada")
    assert client.asked == [
        ("resolve_approval", ("orders", "sub-2", "call_9", "denied"), {"resolver": "ada", "reason": ""})
    ]


def test_several_pending_calls_are_never_guessed(threads: Threads, client: ScriptedClient):
    """Where more than one call waits, the operator says which."""
    client.found = facts.status(approvals=(facts.pending("call_1", "pay"), facts.pending("call_2", "ship")))
    result = threads("approve", "orders", facts.SUBMISSION)
    assert result.exit_code == Exit.REFUSED
    assert "call_1 (pay), call_2 (ship)" in result.stderr
    assert [name for name, _args, _kwargs in client.asked] == ["status"]


def test_nothing_pending_is_told(threads: Threads, client: ScriptedClient):
    """An approval of nothing is refused."""
    client.found = facts.status(SubmissionState.INPUT_APPLIED, approvals=())
    result = threads("approve", "orders", facts.SUBMISSION)
    assert result.exit_code == Exit.REFUSED
    assert "waits for approval" in result.stderr


def test_resolve_hands_on_fact_and_result(threads: Threads, client: ScriptedClient):
    """A factual closure carries its result as a JSON value and who said so."""
    client.found = facts.status(SubmissionState.UNKNOWN, approvals=(), unknown_calls=(facts.pending(),))
    threads(
        *("resolve", "orders", facts.SUBMISSION, "completed-with-result"),
        *("--result", '{"refunded": true}', "--author", "ada", "--reason", "seen in the bank's books"),
    )
    assert client.asked[-1] == (
        "resolve_unknown",
        ("orders", facts.SUBMISSION, facts.CALL, "completed-with-result"),
        {
            "result": {"refunded": True},
            "is_failure": False,
            "author": "ada",
            "reason": "seen in the bank's books",
        },
    )


def test_unknown_resolution_is_a_usage_error(threads: Threads, client: ScriptedClient):
    """A word that is no resolution never reaches the server."""
    result = threads("resolve", "orders", facts.SUBMISSION, "perhaps")
    assert result.exit_code == Exit.USAGE
    assert client.asked == []


def test_abort_names_author_and_reason(threads: Threads, client: ScriptedClient):
    """An abort says who asked and why."""
    threads("abort", "orders", facts.SUBMISSION, "--author", "ada", "--reason", "enough")
    assert client.asked == [("abort", ("orders", facts.SUBMISSION), {"author": "ada", "reason": "enough"})]


def test_wake_is_only_a_hint(threads: Threads, client: ScriptedClient):
    """Wake carries nothing but the Thread."""
    assert threads("wake", "orders").exit_code == Exit.OK
    assert client.asked == [("wake", ("orders",), {})]


def test_log_pages_through_everything(threads: Threads, client: ScriptedClient):
    """Without a limit the whole log is printed, page after page until an empty one."""
    result = threads("log", "orders", "--json")
    assert [json.loads(line)["sequence"] for line in result.stdout.splitlines()] == list(range(1, 18))
    assert [kwargs["after"] for _name, _args, kwargs in client.asked] == [0, 17]


@pytest.mark.parametrize("extra", [[], ["--follow"]])
def test_log_begins_and_ends_where_asked(threads: Threads, extra: list[str]):
    """`--after` and `--limit` hold for reading and for following."""
    result = threads("log", "orders", "--json", "--after", "3", "--limit", "2", *extra)
    assert [json.loads(line)["sequence"] for line in result.stdout.splitlines()] == [4, 5]


def test_log_follows_until_a_settlement(threads: Threads, client: ScriptedClient):
    """`--until` follows and hands the Submission on."""
    threads("log", "orders", "--until", facts.SUBMISSION)
    assert client.asked == [("follow", ("orders",), {"after": 0, "until": facts.SUBMISSION})]


def test_report_tells_debts_blockers_and_faults(threads: Threads):
    """The report names what is owed, what blocks it, what was refused and what failed."""
    shown = threads("report", "orders").stdout
    for fact in (
        "owes        2 unsettled",
        "9 of 9 (certified)",
        f"head {facts.SUBMISSION} is suspended",
        "1 parked with an Unknown Outcome",
        f"refund {facts.CALL} of {facts.SUBMISSION} waits for approval",
        "agent 'absent'",
        "CorruptRecord",
        "1,900,000 bytes",
        "publication, digest",
        "digest: timeout",
        "lane digest is parked",
        "caught-up",
    ):
        assert fact in shown


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        (["submit", "orders", "support", "x"], Receipt),
        (["wait", "orders", facts.SUBMISSION], Settlement),
        (["status", "orders", facts.SUBMISSION], SubmissionStatus),
        (["report", "orders"], ObjectReport),
    ],
)
def test_json_is_the_message_itself(threads: Threads, arguments: list[str], model: type[BaseModel]):
    """`--json` prints one line that decodes to the contract's message, in camelCase."""
    lines = threads(*arguments, "--json").stdout.splitlines()
    assert len(lines) == 1
    assert model.model_validate_json(lines[0])
    assert not any("_" in name for name in json.loads(lines[0]))


def test_submission_may_be_named_by_its_key(threads: Threads, client: ScriptedClient):
    """Ids are derived, so `key:KEY` names a Submission without asking anybody."""
    derived = ids.submission_id("orders", "local", "k1")
    client.found = facts.status(submission_id=derived)
    threads("wait", "orders", "key:k1")
    threads("abort", "orders", "key:k1", "--author", "ada")
    threads("approve", "orders", "key:k1", "call_9")
    threads("resolve", "orders", "key:k1", "never-happened", "call_9")
    threads("status", "orders", "key:k1")
    assert [derived in args for _name, args, _kwargs in client.asked] == [True] * 5
    threads("log", "orders", "--until", "key:k1")
    assert client.asked[-1][2]["until"] == derived
