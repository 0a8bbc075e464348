"""Replays histories against the workflow code of this checkout."""

from pathlib import Path

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from thread_objects.converter import data_converter
from workflows import sandbox, thread_object


def replayer() -> Replayer:
    """A replayer with the worker's own sandbox."""
    return Replayer(
        workflows=[thread_object.ThreadObject],
        workflow_runner=sandbox.workflow_runner(),
        data_converter=data_converter,
    )


async def replay_object(client: Client, object_id: str, *, runs_max: int = 40) -> int:
    """Replay all runs of an object, newest first; the number of runs."""
    replayed = 0
    run_id: str | None = None
    async for execution in client.list_workflows(f"WorkflowId = '{object_id}'"):
        run_id = execution.run_id
        history = await client.get_workflow_handle(object_id, run_id=run_id).fetch_history()
        await replayer().replay_workflow(history)
        replayed += 1
        if replayed >= runs_max:
            break
    return replayed


async def replay_current(client: Client, object_id: str) -> WorkflowHistory:
    """Replay the newest run; raises on any difference."""
    history = await client.get_workflow_handle(object_id).fetch_history()
    await replayer().replay_workflow(history)
    return history


def stored(folder: Path) -> list[Path]:
    """Recorded histories, by name."""
    return sorted(folder.glob("*.json"))
