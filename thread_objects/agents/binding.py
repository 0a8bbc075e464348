"""What an Attempt and an agent say to each other: the binding drives its loop, the journal commits between its steps.

Rule guarded: a binding decides nothing about durability. It asks the journal before each step, hands over every
fact before the next step begins, and stops where the journal raises.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import JsonValue

from thread_objects.agents.policy import ApprovalAnswer, ApprovalQuestion, RunPolicy, ToolPolicy
from thread_objects.agents.transcript import RunLog, Transcript
from thread_objects.contract.records import DeclaredCall


@dataclass(frozen=True, slots=True)
class Response:
    """A model response on its way to the log. `messages`: the request where needed, the response last."""

    turn: int
    messages: list[dict[str, Any]]
    calls: tuple[DeclaredCall, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    state: dict[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """A call's result on its way to the log.

    `part` is what the model reads, without its content, which is `result`; `extra` are further parts that follow
    the batch's results.
    """

    tool_call_id: str
    tool_name: str
    result: JsonValue
    part: dict[str, Any]
    extra: tuple[dict[str, Any], ...] = ()
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class Completed:
    """The Run's end: everything of its last Turn that the journal does not hold yet, and the output."""

    output: JsonValue
    turn: int
    response: Response | None = None
    results: tuple[Result, ...] = ()


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One Submission to advance. `transcript` holds every Run of the Thread, `run` is this one's."""

    thread_id: str
    submission_id: str
    principal: str
    attempt: str
    transcript: Transcript
    run: RunLog


class Stop(BaseException):
    """Ends a drive from the journal's side. Not an error: nothing may catch it as one, so it is no `Exception`."""


class Journal(Protocol):
    """The Attempt, as a binding sees it. Any method may raise `Stop`; the binding lets it pass."""

    def asking(self, turn: int) -> None:
        """The model is about to be asked: a Turn boundary. Policy, abort and yield are looked at here."""

    async def pause(self, delay_ms: int) -> None:
        """Wait before the model is asked again."""

    async def respond(self, response: Response) -> None:
        """Commit a response, before anything acts on it."""

    async def approve(self, turn: int) -> None:
        """Have every approval that the Turn's calls need, before any handler of it starts."""

    def start(self, turn: int, tool_call_id: str) -> None:
        """A handler is about to run. Stops the drive unless that is permitted."""

    def finish(self, tool_call_id: str) -> None:
        """The handler returned, raised, or was cancelled."""

    def settle(self, turn: int, results: Sequence[Result]) -> bool:
        """Commit results while siblings still run. False when the store is away: offer them again later."""

    async def catch_up(self) -> None:
        """Before the Turn's last results: have the log hold whatever `settle` may have committed unseen."""

    async def settle_last(self, turn: int, results: Sequence[Result]) -> None:
        """Commit the Turn's remaining results."""

    async def seam(self, turn: int, prompt: Callable[[JsonValue], object]) -> Sequence[JsonValue]:
        """The Turn is complete and the model is about to be asked again: queued input that joins here, in order.

        It is committed when this returns. `prompt` tells by raising that an input cannot be read: it stays queued.
        """

    async def follow_up(self, completed: "Completed", prompt: Callable[[JsonValue], object]) -> bool:
        """The Run would end with this. True: queued input joined instead, committed with all that the Turn left."""

    async def step(self, tool_call_id: str, name: str, output: JsonValue) -> None:
        """Commit a Step's output."""

    def lost(self, turn: int, tool_call_ids: Sequence[str]) -> None:
        """These `uncertain` calls overran their time: what became of them is unknown. Stops the drive."""


class AgentBinding(Protocol):
    """One agent with one model, under a stable id. `bind` makes one of any pydantic-ai agent."""

    @property
    def id(self) -> str:
        """The agent id that Submissions name."""

    @property
    def digests(self) -> Mapping[str, str]:
        """Digests of definition, model and tools; they change when the code's contract does."""

    @property
    def policy(self) -> RunPolicy:
        """What one Run may spend."""

    def tool(self, name: str) -> ToolPolicy:
        """How calls of this tool are treated; the default policy for tools nobody named."""

    async def answer(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """What the approval policy says at once; None when somebody has to decide."""

    async def run(self, request: RunRequest, journal: Journal) -> Completed:
        """Advance the Run from its last committed fact to its end. Raises what ended it otherwise."""
