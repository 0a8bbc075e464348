"""The lean sandbox is the SDK's sandbox: same answers, same restrictions."""

from typing import Any

import pytest
from temporalio import workflow
from temporalio.bridge import worker as bridge
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from tests.replay.states import FOLDER, load
from tests.replaying import replayer
from workflows.sandbox import LeanSandbox, workflow_runner


async def test_contexts_are_answered_as_the_sdk_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked directly and through the sandbox, the answers are equal; an SDK where they are not is noticed here."""
    compared = []
    plain = SandboxedWorkflowRunner.create_instance

    def create(self: LeanSandbox, det: Any) -> Any:
        instance = lean(self, det)
        direct = instance.get_serialization_context
        assert "get_serialization_context" in vars(instance)

        def both(info: Any) -> Any:
            answer = direct(info)
            assert type(instance).get_serialization_context(instance, info) == answer
            compared.append(answer)
            return answer

        instance.get_serialization_context = both
        return instance

    # A worker that ran in this process has left out the walks that ask (see `workflows.payloads`).
    for name in ("decode_activation", "encode_completion"):
        monkeypatch.setattr(bridge, name, getattr(getattr(bridge, name), "__wrapped__", getattr(bridge, name)))
    lean = LeanSandbox.create_instance
    monkeypatch.setattr(LeanSandbox, "create_instance", create)
    history, _ = load(min(FOLDER.glob("*.json")))
    await replayer().replay_workflow(history)
    assert len(compared) > 10
    assert plain is SandboxedWorkflowRunner.create_instance


@workflow.defn(sandboxed=True)
class Impure:
    """Reads the clock, as no workflow may."""

    @workflow.run
    async def run(self) -> str:
        """Refused."""
        import datetime as dt

        return str(dt.datetime.now())


async def test_workflow_code_is_still_restricted(temporal_client: Client, task_queue: str) -> None:
    """A forbidden call in workflow code is refused by the sandbox."""
    async with Worker(
        temporal_client,
        task_queue=task_queue,
        workflows=[Impure],
        workflow_runner=workflow_runner(),
        workflow_failure_exception_types=[Exception],
    ):
        with pytest.raises(WorkflowFailureError) as refused:
            await temporal_client.execute_workflow(Impure.run, id=task_queue, task_queue=task_queue)
    assert "datetime.now" in str(refused.value.cause)
