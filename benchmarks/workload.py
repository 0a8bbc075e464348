"""What both sides do: the scripted agent, in terms of plain values.

A text asks for a number of tool turns, and in the crash workload for a file that its tools leave traces in:

    hello           no tool turn, the answer at once
    loop N          N turns of two tool calls each, then the answer
    crash N PATH    the same; each tool first appends a line to PATH, then works for 200 ms
"""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

AGENT = "bench"
CALLS_PER_TURN = 2
CRASH_WORK_S = 0.2
ANSWER_CHARS = 200
ANSWER = ("Nothing more to do, and this is what I have to say about it. " * 4)[:ANSWER_CHARS]
"""What every Submission of ours comes back with. The peer's answer is its own, of the same length."""


@dataclass(frozen=True, slots=True)
class Script:
    """A text, read."""

    turns: int
    path: str

    @classmethod
    def of(cls, text: str) -> "Script":
        """Raises `ValueError` for a text that is none of the three."""
        match text.split(maxsplit=2):
            case ["hello"]:
                return cls(0, "")
            case ["loop", turns]:
                return cls(int(turns), "")
            case ["crash", turns, path]:
                return cls(int(turns), path)
        raise ValueError(f"no such workload text: {text!r}")

    def calls(self, turns_done: int) -> list[dict[str, str | int]]:
        """The tool calls of the next turn; none once the answer is due."""
        if turns_done >= self.turns:
            return []
        return [{"n": turns_done, "id": f"c{turns_done}-{index}", "path": self.path} for index in range(CALLS_PER_TURN)]


async def act(n: int, id: str, path: str) -> dict[str, bool | int]:  # noqa: A002 - the argument's name on both sides
    """The tool. Its trace is an effect that cannot be taken back, so a second line of one id is a repeated effect."""
    if path:
        with Path(path).open("a") as traces:
            traces.write(f"{id} {os.getpid()} {time.time()}\n")
        await asyncio.sleep(CRASH_WORK_S)
    return {"ok": True, "n": n}


@dataclass(frozen=True, slots=True)
class Effect:
    """One line of a trace file."""

    call: str
    pid: int
    at: float


def effects(path: Path) -> list[Effect]:
    """The effects so far, in order; a line that is being written is not one yet."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [Effect(call, int(pid), float(at)) for call, pid, at in (line.split() for line in lines)]
