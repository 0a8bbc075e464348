"""A rig for Attempts: the real SQLite store, scripted models, a clock that is set by hand, and crashes on request."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from activities.attempt import AttemptActivities
from activities.control import Control
from activities.recovery import RecoveryActivities
from activities.supervise import Pace
from storage import StoreLimits, open_store
from thread_objects import failpoints
from thread_objects.agents import Registry
from thread_objects.contract import messages as m
from thread_objects.contract.activities import ApplyRequest, AttemptAnswer, AttemptRequest, Item
from thread_objects.contract.states import Decision, ResolutionKind, SubmissionState
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.core.recovery import Snapshot

PRINCIPAL = "someone"
AGENT = "agent"
Step = ModelResponse | Exception | Callable[[list[ModelMessage]], ModelResponse | Awaitable[ModelResponse]]


class Crash(BaseException):
    """The process is gone."""


class HandClock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.at = 1_700_000_000_000

    def now(self) -> int:
        """The instant set."""
        return self.at


def says(text: str) -> ModelResponse:
    """A final answer."""
    return ModelResponse(parts=[TextPart(text)])


def calls(*named: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> ModelResponse:
    """A tool batch: (tool, call id) or (tool, call id, arguments)."""
    return ModelResponse(parts=[ToolCallPart(n[0], n[2] if len(n) > 2 else {}, tool_call_id=n[1]) for n in named])


def unpaired(messages: Sequence[ModelMessage]) -> list[str]:
    """Call ids that a provider would refuse: calls without exactly one result in the message that follows."""
    found: list[str] = []
    for before, after in zip(messages, [*messages[1:], ModelRequest(parts=[])], strict=True):
        asked = [p.tool_call_id for p in before.parts if isinstance(p, ToolCallPart)]
        told = [p.tool_call_id for p in after.parts if isinstance(p, ToolReturnPart)]
        if isinstance(before, ModelResponse) and sorted(asked) != sorted(told):
            found.extend({*asked} ^ {*told} or asked)
    return found


@dataclass
class Script:
    """A model: for each prompt its steps, one per request of the Run. What it was sent is kept."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    seen: list[list[ModelMessage]] = field(default_factory=list)

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Answer with the step that the conversation has come to."""
        del info
        self.seen.append(list(messages))
        assert unpaired(messages) == []
        done, prompt = 0, ""
        for message in reversed(messages):
            if isinstance(message, ModelResponse):
                done += 1
                continue
            prompts = [str(part.content) for part in message.parts if isinstance(part, UserPromptPart)]
            known = [text for text in prompts if text in self.steps]
            if known:
                prompt = known[-1]
                break
        steps = self.steps[prompt]
        step = steps[min(done, len(steps) - 1)]
        if isinstance(step, Exception):
            raise step
        if not callable(step):
            return ModelResponse(parts=list(step.parts))
        answer = step(messages)
        return await answer if asyncio.iscoroutine(answer) else answer  # type: ignore[return-value]

    @property
    def asked(self) -> int:
        """How often the model was asked."""
        return len(self.seen)


def scripted(script: Script, **more: Any) -> Agent[Any, Any]:
    """An agent on a script."""
    return Agent(FunctionModel(script, model_name="scripted"), **more)


class Rig:
    """A database, a registry, and Attempts one at a time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store: Any = open_store(
            f"sqlite:///{folder}/threads.db", limits=StoreLimits(), synchronous="OFF", pool_size=2
        )
        self.clock = HandClock()
        self.hits: list[str] = []
        self.slept: list[float] = []
        self.ended: list[str] = []
        self.last_attempt = ""
        self._count = 0
        self._crash: tuple[str, int] | None = None
        self._transcripts: Any = None
        self.pace = Pace(abort_poll_ms=20, tool_grace_ms=10_000)
        self.serve()
        monkeypatch.setattr(failpoints, "hit", self._hit)

    # --- the deploy ----------------------------------------------------------------------------------------------

    def serve(self, *bindings: Any, restart: bool = True) -> None:
        """Serve these bindings; a restart forgets what a process remembers."""
        self.registry = Registry(bindings)
        self.view = RegistryView(key=self.registry.key, deployment=1)
        recovery = RecoveryActivities(self.store, clock=self.clock, registry=self.registry, view=self.view)
        self.activities = AttemptActivities(
            self.store,
            clock=self.clock,
            registry=self.registry,
            view=self.view,
            recover=recovery.recover_thread,
            pace=self.pace,
            sleep=self._sleep,
        )
        del restart

    def restart(self) -> None:
        """A new process: nothing remembered."""
        self.serve(*self.registry)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    # --- what clients do -------------------------------------------------------------------------------------------

    def _apply(self, mutation: Any) -> Any:
        self._count += 1
        answer = self.store.apply(
            ApplyRequest(
                object_id=mutation.thread_id,
                batch_id=f"batch-{self._count}",
                mark=self._count,
                applied_through=0,
                items=(Item(n=self._count, mutation=mutation),),
            ),
            worker="worker",
            registry=self.view,
            now=self.clock.now(),
        )
        item = answer.answers[0]
        assert item.refusal is None, item.refusal
        return item

    def submit(self, value: Any, *, thread: str = "thread", agent: str = AGENT, key: str | None = None) -> str:
        """Admit one input; its submission id."""
        key = key or f"key-{self._count}"
        submit = m.Submit(thread_id=thread, agent_id=agent, principal=PRINCIPAL, key=key, input=value)
        return str(self._apply(submit).receipt.submission_id)

    def abort(self, sid: str, *, thread: str = "thread") -> Any:
        """Ask for an abort."""
        return self._apply(m.Abort(thread_id=thread, submission_id=sid, author="operator", reason="enough"))

    def decide(self, sid: str, call: str, decision: Decision, *, thread: str = "thread") -> Any:
        """Answer an approval."""
        return self._apply(
            m.ResolveApproval(
                thread_id=thread,
                submission_id=sid,
                tool_call_id=call,
                decision=decision,
                resolver="operator",
                reason="said so",
            )
        )

    def resolve(self, sid: str, call: str, kind: ResolutionKind, result: Any = None, **more: Any) -> Any:
        """Close an Unknown Outcome."""
        return self._apply(
            m.ResolveUnknown(
                thread_id=more.pop("thread", "thread"),
                submission_id=sid,
                tool_call_id=call,
                resolution=kind,
                result=result,
                author="operator",
                reason="looked",
                **more,
            )
        )

    # --- Attempts ----------------------------------------------------------------------------------------------------

    def attempt(
        self,
        *,
        thread: str = "thread",
        control: Control | None = None,
        yield_in_ms: int = 600_000,
        deadline_in_ms: int = 840_000,
    ) -> AttemptAnswer:
        """One Attempt. It may supersede the leases of every Attempt that crashed."""
        self._count += 1
        self.last_attempt = f"attempt-{self._count}"
        now = self.clock.now()
        request = AttemptRequest(
            object_id=thread,
            thread_id=thread,
            producer_id=f"producer:{thread}",
            attempt_id=self.last_attempt,
            ended_attempts=tuple(self.ended[-16:]),
            applied_through=self._count,
            yield_at=now + yield_in_ms,
            deadline_at=now + deadline_in_ms,
        )
        return self.activities.advance(request, control or Control())

    @contextlib.contextmanager
    def crashing(self, failpoint: str, nth: int = 1) -> Iterator[None]:
        """The process dies at the nth passing of a failpoint; afterwards it is a new one."""
        self._crash = (failpoint, nth)
        with pytest.raises(Crash):
            yield
        self._crash = None
        self.ended.append(self.last_attempt)
        self.restart()

    def _hit(self, name: str) -> None:
        self.hits.append(name)
        if self._crash is not None and self._crash[0] == name:
            self._crash = (name, self._crash[1] - 1)
            if self._crash[1] <= 0:
                raise Crash(name)

    def settle(self, *, thread: str = "thread", attempts_max: int = 20) -> list[str]:
        """Attempts until the Thread has nothing claimable; how each ended."""
        ended: list[str] = []
        for _ in range(attempts_max):
            answer = self.attempt(thread=thread)
            if answer.ended == "idle":
                return ended
            ended.append(answer.ended)
            if answer.ended in ("suspended", "unknown", "unbound", "faulted"):
                return ended
        raise AssertionError(f"does not come to rest: {ended}")

    # --- what is there -----------------------------------------------------------------------------------------------

    def snapshot(self, sid: str) -> Snapshot:
        """The row."""
        found = self.store.snapshot(sid)
        assert found is not None
        return found  # type: ignore[no-any-return]

    def state(self, sid: str) -> SubmissionState:
        """The row's state."""
        return self.snapshot(sid).state

    def settlement(self, sid: str) -> Any:
        """The Settlement."""
        payloads = self.payloads(sid, "SubmissionSettled")
        assert len(payloads) == 1, payloads
        return payloads[0]

    def kinds(self, sid: str) -> list[str]:
        """Kinds of the Submission's records, in order."""
        return [record.kind for record in self.store.run_records(sid)]

    def payloads(self, sid: str, kind: str) -> list[dict[str, Any]]:
        """Payloads of one kind."""
        return [record.payload for record in self.store.run_records(sid) if record.kind == kind]

    def shape(self, sid: str) -> list[str]:
        """The normalised history: record ids without audits."""
        audits = ("RepairAnnotated", "ModelResponseInterrupted")
        return [r.record_id.replace(sid, "*") for r in self.store.run_records(sid) if r.kind not in audits]
