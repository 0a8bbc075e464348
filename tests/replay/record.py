"""Records a history for each scenario, with the state it ends in: `python -m tests.replay.record NAME [PREFIX]`.

Run it once for each shipped version of the workflow; recorded files are never rewritten, only added to.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory

from tests.deployment import connected, running_worker, settings_for, until
from tests.replay.states import FOLDER, replayed_state
from tests.scripted import AGENT, registry
from tests.temporal_servers import start_dev_server
from thread_objects.agents import Registry
from thread_objects.client import ThreadClient
from thread_objects.contract.states import LanePhase, SubmissionState
from thread_objects.errors import LaneRefused
from thread_objects.extensions import Extensions, Lane, WaveContext

Scenario = Callable[[ThreadClient, str], Awaitable[None]]


async def _state(client: ThreadClient, submission_id: str, state: SubmissionState) -> None:
    async def look() -> bool:
        status = await client.status(submission_id)
        return status is not None and status.state is state

    await until(look)


async def conversation(client: ThreadClient, thread: str) -> None:
    """Updates, signals, tools, a replayed key, a conflict, garbage, a wake."""
    handle = client.temporal.get_workflow_handle(thread)
    for n in range(3):
        receipt = await client.submit(thread, AGENT, f"call look {n}; say {n}", key=f"u{n}")
        pending = await client.submit_signal(thread, AGENT, f"say {n}", key=f"s{n}")
        await client.wait(receipt, timeout=20)
        await client.wait(pending, timeout=20)
    await client.submit(thread, AGENT, "call look 0; say 0", key="u0")
    await handle.signal("nonsense", 1)
    await handle.signal("submit", {"threadId": thread})
    await client.wake(thread)


async def control(client: ThreadClient, thread: str) -> None:
    """An approval, a denial, an abort of running and of queued work, a failing model."""
    first = await client.submit(thread, AGENT, "call refund a; say done", key="a")
    await _state(client, first.submission_id, SubmissionState.SUSPENDED)
    await client.resolve_approval(thread, first.submission_id, "c0", "approved", resolver="me")
    await client.wait(first, timeout=20)
    second = await client.submit(thread, AGENT, "call refund b; say done", key="b")
    await _state(client, second.submission_id, SubmissionState.SUSPENDED)
    await client.resolve_approval(thread, second.submission_id, "c0", "denied", resolver="me")
    await client.wait(second, timeout=20)
    third = await client.submit(thread, AGENT, "hang 30; say never", key="c")
    queued = await client.submit(thread, AGENT, "say queued", key="d")
    await _state(client, third.submission_id, SubmissionState.INPUT_APPLIED)
    await client.abort(thread, queued.submission_id, author="me", reason="no")
    await client.abort(thread, third.submission_id, author="me", reason="no")
    await client.wait(third, timeout=20)
    await client.wait(await client.submit(thread, AGENT, "fail", key="e"), timeout=20)


async def moving(client: ThreadClient, thread: str) -> None:
    """Enough updates to carry the state over into a fresh history."""
    for n in range(8):
        await client.wait(await client.submit(thread, AGENT, f"say {n}", key=f"k{n}"), timeout=20)


async def unbound(client: ThreadClient, thread: str) -> None:
    """A head without a binding is parked."""
    await client.submit(thread, AGENT, "say later", key="k")

    async def parked() -> bool:
        return bool((await client.report(thread)).binding_waits)

    await until(parked)


class Everything:
    """One extension of each kind; its publication fails once."""

    timeout_ms = 5_000
    failing = True

    def invalidate(self, _context: WaveContext) -> None:
        """Nothing to do."""

    def prepare_generation(self, _context: WaveContext, _generation: int) -> None:
        """Fail once."""
        if self.failing:
            self.failing = False
            raise ConnectionError

    def drain(self, _context: WaveContext) -> None:
        """All is published."""

    backfill = drain

    def prepare(self, _context: WaveContext) -> str:
        """One letter."""
        return "letter"

    def deliver(self, context: WaveContext, _prepared: str) -> None:
        """Delivered, with progress of a lane."""
        context.progress("after")

    async def hang(self, _context: WaveContext) -> None:
        """Longer than its allowance."""
        await asyncio.sleep(60)


async def extended(client: ThreadClient, thread: str) -> None:
    """Every kind of wave: hooks, a failing barrier, projection, messages, lanes of both phases, one that is cut."""
    await client.wait(await client.submit(thread, AGENT, "say one", key="1", lanes=["plain"]), timeout=20)
    await client.schedule(thread, "plain", 0, cursor=1)
    await client.schedule(thread, "plain", 0, cursor=1)
    await client.schedule(thread, "hangs", 0)
    with contextlib.suppress(LaneRefused):
        await client.schedule(thread, "nobody has it", 0)
    await client.wait(await client.submit(thread, AGENT, "say two", key="2"), timeout=20)

    async def cut() -> bool:
        report = await client.report(thread)
        return any(failure.lane == "hangs" for failure in report.lane_failures)

    await until(cut)
    await client.schedule(thread, "plain", 0, cursor=2)


_EVERYTHING = Everything()
EXTENSIONS = {
    "extended": Extensions(
        publication=_EVERYTHING,
        projection=_EVERYTHING,
        messages=_EVERYTHING,
        lanes=[
            Lane("plain", _EVERYTHING.drain),
            Lane("after", _EVERYTHING.drain, phase=LanePhase.AFTER_NATIVE),
            Lane("hangs", _EVERYTHING.hang, allowance_ms=300),
        ],
    )
}

SCENARIOS: dict[str, tuple[Scenario, dict[str, int], Registry]] = {
    "conversation": (conversation, {}, registry),
    "control": (control, {}, registry),
    "moving": (moving, {"continue_updates": 5}, registry),
    "unbound": (unbound, {}, Registry([])),
    "extended": (extended, {"continue_updates": 5}, registry),
}


async def record(name: str, prefix: str) -> None:
    """Run one scenario against a dev server of its own and write down all runs of its object."""
    scenario, more, agents = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as folder:
        server = await asyncio.to_thread(start_dev_server, Path(folder))
        try:
            settings = settings_for(server.address, f"sqlite:///{folder}/threads.db", "recording", **more)
            async with running_worker(settings, agents, EXTENSIONS.get(name)), connected(settings) as client:
                await scenario(client, "recorded")

                async def quiet() -> bool:
                    report = await client.report("recorded")
                    failing = {failure.lane for failure in report.lane_failures}
                    due = [row.id for row in report.lanes if row.due_at is not None and row.id not in failing]
                    return not report.attempts and not due

                await until(quiet)
                runs = [run.run_id async for run in client.temporal.list_workflows("WorkflowId = 'recorded'")]
                for number, run_id in enumerate(reversed(runs), 1):
                    handle = client.temporal.get_workflow_handle("recorded", run_id=run_id)
                    await write(await handle.fetch_history(), FOLDER / f"{prefix}-{name}-{number}.json")
        finally:
            server.stop()


def _without_trace(data: dict[str, Any]) -> dict[str, Any]:
    """Stack traces of failures name the machine that they were made on."""
    data.pop("stackTrace", None)
    return data


async def write(history: WorkflowHistory, path: Path) -> None:
    """A history with the state it ends in."""
    without_traces = json.loads(json.dumps(history.to_json_dict()), object_hook=_without_trace)
    state = await replayed_state(WorkflowHistory.from_json("recorded", without_traces))
    path.write_text(json.dumps({"state": state, "history": without_traces}, indent=0) + "\n")


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else "all"
    for scenario_name in SCENARIOS if wanted == "all" else [wanted]:
        asyncio.run(record(scenario_name, sys.argv[2] if len(sys.argv) > 2 else "v1"))
