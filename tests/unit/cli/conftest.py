"""A scripted client in the place of `ThreadClient`, and a way to run the command line over it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from typer.testing import CliRunner, Result

from tests.unit.cli import facts
from thread_objects.cli import session
from thread_objects.cli.app import app
from thread_objects.contract.messages import LogRecord, Receipt, Settlement, SubmissionStatus
from thread_objects.settings import Settings


@dataclass
class ScriptedClient:
    """Answers from fields; an exception in place of an answer is raised. Remembers what it was asked."""

    settlement: Settlement | Exception = field(default_factory=facts.settlement)
    found: SubmissionStatus | None = field(default_factory=facts.status)
    object_report: Any = field(default_factory=facts.report)
    records: list[LogRecord] = field(default_factory=facts.records)
    explanation: Any = field(default_factory=facts.explanation)
    verification: Any = field(default_factory=facts.verification)
    pages: dict[str | None, Any] = field(default_factory=facts.obligations)
    failure: Exception | None = None
    asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    settings: Settings | None = None
    closed: bool = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    def _take(self, name: str, answer: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked.append((name, args, kwargs))
        if self.failure is not None:
            raise self.failure
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def submit(self, *args: Any, **kwargs: Any) -> Receipt:
        return self._take("submit", facts.receipt(), *args, **kwargs)

    async def submit_signal(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("submit_signal", facts.pending_receipt(), *args, **kwargs)

    async def wait(self, *args: Any, **kwargs: Any) -> Settlement:
        return self._take("wait", self.settlement, *args, **kwargs)

    async def status(self, *args: Any, **kwargs: Any) -> SubmissionStatus | None:
        return self._take("status", self.found, *args, **kwargs)

    async def find(self, *args: Any, **kwargs: Any) -> SubmissionStatus | None:
        return self._take("find", self.found, *args, **kwargs)

    async def report(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("report", self.object_report, *args, **kwargs)

    async def abort(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("abort", facts.abort_answer(), *args, **kwargs)

    async def resolve_approval(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("resolve_approval", facts.approval_answer(), *args, **kwargs)

    async def resolve_unknown(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("resolve_unknown", facts.unknown_answer(), *args, **kwargs)

    async def wake(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("wake", facts.alarm(), *args, **kwargs)

    async def explain(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("explain", self.explanation, *args, **kwargs)

    async def explain_thread(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("explain_thread", facts.thread_explanation(), *args, **kwargs)

    async def verify(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("verify", self.verification, *args, **kwargs)

    async def retry(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("retry", facts.retry_answer(), *args, **kwargs)

    async def scan_obligations(self, *args: Any, **kwargs: Any) -> Any:
        return self._take("scan_obligations", self.pages[kwargs["after"]], *args, **kwargs)

    async def log(self, thread: str, *, after: int = 0, limit: int = 256) -> list[LogRecord]:
        self._take("log", None, thread, after=after, limit=limit)
        return [record for record in self.records if record.sequence > after][:limit]

    async def follow(self, thread: str, *, after: int = 0, until: str | None = None) -> AsyncIterator[LogRecord]:
        self._take("follow", None, thread, after=after, until=until)
        for record in self.records:
            if record.sequence > after:
                yield record


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> ScriptedClient:
    """The client that every verb meets."""
    scripted = ScriptedClient()

    class Connector:
        @staticmethod
        async def connect(settings: Settings) -> ScriptedClient:
            scripted.settings = settings
            return scripted

    monkeypatch.setattr(session, "ThreadClient", Connector)
    return scripted


@pytest.fixture
def threads(client: ScriptedClient) -> Callable[..., Result]:
    """Run `threads ...` in this process."""
    runner = CliRunner()

    def run(*arguments: str, stdin: str | None = None) -> Result:
        result = runner.invoke(app, list(arguments), input=stdin)
        unexpected = result.exception if not isinstance(result.exception, SystemExit) else None
        assert unexpected is None, repr(unexpected)
        return result

    return run
