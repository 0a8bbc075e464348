"""Extensions on a real server: publication, projection, messages, lanes, recovery events, as one scripted set."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.deployment import connected, running_worker, until
from tests.replaying import replay_current
from tests.scripted import AGENT
from thread_objects.client import ThreadClient
from thread_objects.extensions import Due, Extensions, WaveContext
from thread_objects.settings import Settings


@dataclass
class Script:
    """What the waves do: `told` in order; a `plan` by wave name answers or raises, one entry per call."""

    told: list[str] = field(default_factory=list)
    plan: dict[str, list[Any]] = field(default_factory=dict)
    timeout_ms: int = 20_000

    def act(self, name: str) -> Any:
        self.told.append(name)
        planned = self.plan.get(name)
        answer = planned.pop(0) if planned else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def count(self, name: str) -> int:
        return self.told.count(name)


class Publishing(Script):
    """A publication, a projection and a message driver in one."""

    async def invalidate(self, _context: WaveContext) -> None:
        self.act("invalidate")

    def prepare_generation(self, _context: WaveContext, generation: int) -> None:
        self.act(f"prepare {generation}")

    async def drain(self, _context: WaveContext) -> Due:
        return self.act("drain")

    def backfill(self, context: WaveContext) -> Due:
        due = self.act("backfill")
        return None if due is None else context.now + due

    def prepare(self, _context: WaveContext) -> str:
        self.act("prepare")
        return "letter"

    async def deliver(self, _context: WaveContext, prepared: str) -> Due:
        return self.act(f"deliver {prepared}")


@asynccontextmanager
async def served(settings: Settings, extensions: Extensions) -> AsyncIterator[ThreadClient]:
    """A worker with these extensions, and a client."""
    async with running_worker(settings, extensions=extensions), connected(settings) as client:
        yield client


async def rows(client: ThreadClient, thread: str) -> dict[str, Any]:
    return {row.id: row for row in (await client.report(thread)).lanes}


async def at_rest(client: ThreadClient, thread: str) -> Any:
    """Wait until nothing runs and nothing is due."""

    async def look() -> Any:
        report = await client.report(thread)
        quiet = not report.attempts and report.alarm.maintenance is None
        return report if quiet and report.generation.processed >= report.generation.dirty else None

    return await until(look)


async def test_a_required_publication_runs_before_native_work(settings: Settings, thread_id: str) -> None:
    """The barrier drains before the Attempt claims; after the mutation itself invalidate and drain ran (LAN-028)."""
    script = Publishing()
    async with served(settings, Extensions(publication=script)) as client:
        receipt = await client.submit(thread_id, AGENT, "say done", key="k")
        assert (await client.wait(receipt, timeout=20)).result == "done"
        report = await at_rest(client, thread_id)
        assert script.told[:2] == ["invalidate", "drain"]
        assert [word.split()[0] for word in script.told[2:4]] == ["prepare", "drain"]
        assert report.installed.publication
        await replay_current(client.temporal, thread_id)
