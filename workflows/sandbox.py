"""The SDK's sandbox, asking its own code directly.

For every payload of every task the SDK asks the workflow instance in which context it belongs. The sandboxed instance
answers by compiling and executing a line of code inside the sandbox: a fifth of a busy worker's time, for an answer
that comes from the SDK alone. Here that one question goes straight to the SDK's object. Workflow code runs in the
sandbox as ever.
"""

from typing import Any

from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

PASSED_THROUGH = ("thread_objects", "pydantic", "pydantic_core", "rfc8785")
"""Pure, and checked for that by tests. Without them every Thread Object would import (and compile) them anew."""
PARTS = ("crash_points", "deliveries", "failure", "inbox", "passes", "pump", "retries", "timer", "views", "waves")
"""Modules beside the workflow's own, which alone is imported inside the sandbox."""

_ASKED = ("get_serialization_context", "get_external_store_context")


class LeanSandbox(SandboxedWorkflowRunner):
    """As its base; where the SDK is not as expected, exactly its base."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """A sandboxed instance that answers the SDK's own questions without entering the sandbox."""
        instance = super().create_instance(det)
        inside: Any = getattr(instance, "globals_and_locals", {}).get("__temporal_in_sandbox")
        inner = getattr(inside, "instance", None)
        if all(hasattr(inner, name) for name in _ASKED):
            for name in _ASKED:
                setattr(instance, name, getattr(inner, name))
        return instance


def workflow_runner() -> SandboxedWorkflowRunner:
    """The sandbox of a worker and of a replayer."""
    package = __name__.rpartition(".")[0]
    parts = (f"{package}.{name}" for name in PARTS)
    return LeanSandbox(restrictions=SandboxRestrictions.default.with_passthrough_modules(*parts, *PASSED_THROUGH))
