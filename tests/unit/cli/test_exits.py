"""Errors at the edge: one line, one code, no traceback."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

from tests.unit.cli import facts
from tests.unit.cli.conftest import ScriptedClient
from thread_objects import errors
from thread_objects.cli.exits import Exit, exit_of

Threads = Callable[..., Result]

VALUES: dict[str, Any] = {"maximum": 10, "actual": 11, "actual_epoch": 3, "attempted": 2, "waited_ms": 1_500}


def made(kind: type[errors.ThreadError]) -> errors.ThreadError:
    """An error of this class with some value in each of its fields."""
    return kind(**{name: VALUES.get(name, "something") for name in kind.field_names()})


EXPECTED = {
    "ConfigError": Exit.USAGE,
    "BindingError": Exit.USAGE,
    "WaitTimeout": Exit.NOT_YET,
    "WaitCancelled": Exit.NOT_YET,
    "StreamEnded": Exit.NOT_YET,
    "ServerUnavailable": Exit.OUT_OF_REACH,
    "StoreUnavailable": Exit.OUT_OF_REACH,
    "Busy": Exit.OUT_OF_REACH,
}


@pytest.mark.parametrize("kind", errors.error_classes().values(), ids=lambda kind: kind.code)
def test_every_typed_error_is_one_line_and_its_code(threads: Threads, client: ScriptedClient, kind: Any):
    """Each class of the tree ends the command with its documented code and one line on stderr."""
    client.failure = made(kind)
    result = threads("report", "orders")
    assert result.exit_code == EXPECTED.get(kind.code, Exit.REFUSED) == exit_of(client.failure)
    assert result.stdout == ""
    assert result.stderr.startswith("threads: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_json_errors_are_json(threads: Threads, client: ScriptedClient):
    """With --json the refusal arrives with its stable code and fields."""
    client.failure = errors.SettlementConflict(submission_id=facts.SUBMISSION, existing_outcome="completed")
    result = threads("abort", "orders", facts.SUBMISSION, "--json")
    told = json.loads(result.stderr)
    assert result.exit_code == Exit.REFUSED
    assert told["code"] == "SettlementConflict"
    assert told["fields"] == {"submission_id": facts.SUBMISSION, "existing_outcome": "completed"}


def test_server_out_of_reach_names_the_address(threads: Threads, client: ScriptedClient):
    """The line says which server, in plain words."""
    client.failure = errors.ServerUnavailable(address="127.0.0.1:7233", reason="connection refused")
    result = threads("report", "orders")
    assert result.stderr == "threads: cannot reach the Temporal server at 127.0.0.1:7233: connection refused\n"


def test_error_text_cannot_spread_over_lines(threads: Threads, client: ScriptedClient):
    """A foreign message with newlines and escape sequences stays one harmless line."""
    client.failure = errors.StoreUnavailable(reason="gone\n\x1b[2J\nreally")
    result = threads("report", "orders")
    assert result.stderr == "threads: cannot reach the database: gone \\u001b[2J really\n"


def test_ctrl_c_ends_with_130_and_says_nothing(threads: Threads, client: ScriptedClient):
    """Ctrl-C detaches; it is no error."""

    async def interrupted(*_args: Any, **_kwargs: Any) -> None:
        raise KeyboardInterrupt

    client.wait = interrupted  # type: ignore[assignment,method-assign]
    result = threads("wait", "orders", facts.SUBMISSION)
    assert result.exit_code == Exit.INTERRUPTED
    assert result.stderr == ""


def test_options_reach_the_settings(threads: Threads, client: ScriptedClient):
    """Connection options stand behind every verb and win over the settings."""
    options = {
        "address": "127.0.0.1:1234",
        "namespace": "other",
        "profile": "cloud",
        "database_url": "sqlite:///x.db",
        "task_queue": "q",
    }
    threads("report", "orders", *(f"--{name.replace('_', '-')}={value}" for name, value in options.items()))
    assert client.settings is not None
    assert {name: getattr(client.settings, name) for name in options} == options


def test_patience_of_the_settings_wins(threads: Threads, client: ScriptedClient, monkeypatch: pytest.MonkeyPatch):
    """A command gives up sooner than a program, unless the settings say how long to try."""
    threads("report", "orders")
    assert client.settings is not None
    assert client.settings.connect_timeout_s == 3.0
    monkeypatch.setenv("THREADS_CONNECT_TIMEOUT_S", "42")
    threads("report", "orders")
    assert client.settings.connect_timeout_s == 42.0


def test_bad_setting_is_a_usage_error(threads: Threads, monkeypatch: pytest.MonkeyPatch):
    """A setting outside its bound is named, and nothing is opened."""
    monkeypatch.setenv("THREADS_ATTEMPTS", "0")
    result = threads("report", "orders")
    assert result.exit_code == Exit.USAGE
    assert "attempts" in result.stderr


@pytest.mark.parametrize("arguments", [["nonsense"], ["submit", "orders"], ["log", "orders", "--after", "-1"]])
def test_wrong_usage_ends_with_2(threads: Threads, arguments: list[str]):
    """Wrong arguments never reach a server."""
    assert threads(*arguments).exit_code == Exit.USAGE


def test_help_names_every_exit_code(threads: Threads):
    """The table of exit codes is in the help."""
    shown = threads("--help").stdout
    assert all(f"{code.value} " in shown for code in Exit)
