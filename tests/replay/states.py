"""What a replayed object's state is, so that a replay is compared by more than its commands."""

import json
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory

from tests.replaying import replayer
from thread_objects.contract.reports import ObjectReport
from thread_objects.core.state import MaintenanceState
from workflows import pump, views

FOLDER = Path(__file__).parent / "histories"


async def replayed_state(history: WorkflowHistory) -> dict[str, Any]:
    """Replay a history (raises on any other command) and answer the state the workflow ended in."""
    owners: list[Any] = []
    original = pump.Pump.__init__

    def noting(self: pump.Pump, owner: Any, carried: Any) -> None:
        owners.append(owner)
        original(self, owner, carried)

    pump.Pump.__init__ = noting  # type: ignore[method-assign]
    try:
        await replayer().replay_workflow(history)
    finally:
        pump.Pump.__init__ = original  # type: ignore[method-assign]
    owner = owners[-1]
    return {
        "report": json.loads(views.object_report(owner).model_dump_json(by_alias=True)),
        "maintenance": owner.maintenance.state.to_json(),
        "inbox": [entry.n for entry in owner.inbox.entries],
        "nextMark": owner.pump.next_mark,
        "appliedThrough": owner.pump.applied_through,
    }


def load(path: Path) -> tuple[WorkflowHistory, dict[str, Any]]:
    """A recorded history and the state it ended in."""
    data = json.loads(path.read_text())
    return WorkflowHistory.from_json("recorded", data["history"]), as_of_today(data["state"])


def as_of_today(state: dict[str, Any]) -> dict[str, Any]:
    """A state as today's code would write it: fields that came since at their defaults, fields that went left out."""
    report = ObjectReport.model_validate(state["report"])
    return {
        **state,
        "report": json.loads(report.model_dump_json(by_alias=True)),
        "maintenance": MaintenanceState.from_json(state["maintenance"]).to_json(),
    }
