"""A workflow task's payloads are walked through only where a codec or an external storage has something to do."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.bridge import worker as bridge
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.converter import DataConverter, PayloadCodec

from workflows.payloads import leave_out_idle_walks


class Reversed(PayloadCodec):
    """Turns every payload's bytes round."""

    async def encode(self, payloads: Any) -> list[Payload]:
        """Turned round."""
        return [Payload(metadata=payload.metadata, data=payload.data[::-1]) for payload in payloads]

    decode = encode


def activation() -> WorkflowActivation:
    """One signal with one payload."""
    task = WorkflowActivation()
    task.jobs.add().signal_workflow.input.append(Payload(metadata={"encoding": b"json/plain"}, data=b"12"))
    return task


async def decoded(converter: DataConverter) -> bytes:
    """What a workflow would get of that payload."""
    task = activation()
    metrics = await bridge.decode_activation(task, converter, decode_headers=True, storage_concurrency_limit=1)
    assert metrics.payload_count == 0
    return task.jobs[0].signal_workflow.input[0].data


async def test_nothing_is_walked_where_nothing_is_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a codec the SDK's visitor is not even made; with one the SDK's own walk decodes."""
    for name in ("decode_activation", "encode_completion"):
        monkeypatch.setattr(bridge, name, getattr(getattr(bridge, name), "__wrapped__", getattr(bridge, name)))
    plain, coded = DataConverter(), DataConverter(payload_codec=Reversed())
    assert await decoded(plain) == b"12"
    assert leave_out_idle_walks()
    assert leave_out_idle_walks()
    made: list[object] = []
    visitor = bridge.CommandAwarePayloadVisitor
    monkeypatch.setattr(bridge, "CommandAwarePayloadVisitor", lambda **given: made.append(given) or visitor(**given))
    assert await decoded(plain) == b"12"
    assert made == []
    assert await decoded(replace(coded)) == b"21"
    assert made


def test_another_sdk_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the SDK is not built as expected nothing is replaced."""
    before = bridge.encode_completion
    monkeypatch.setattr(bridge, "temporalio", SimpleNamespace(), raising=False)
    assert not leave_out_idle_walks()
    assert bridge.encode_completion is before
