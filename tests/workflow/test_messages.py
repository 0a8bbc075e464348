"""Whatever is sent, the object goes on: bad signals land in the refusal list, bad updates are refused unwritten."""

import asyncio
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue

from tests.deployment import connected, running_worker, until
from tests.scripted import AGENT
from tests.workflow.conftest import Deployed
from thread_objects.contract import limits, names
from thread_objects.errors import (
    AdmissionConflict,
    AdmissionLimitExceeded,
    InvalidInput,
    SignalRefused,
    from_failure,
)
from thread_objects.settings import Settings


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    """A payload as any client in any language might send it."""
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


def submission(thread: str, **changed: Any) -> dict[str, Any]:
    """A well-formed submit message, with changes."""
    return {"threadId": thread, "agentId": AGENT, "principal": "p", "key": "k", "input": "say hi", **changed}


GARBAGE: list[tuple[str, list[Any]]] = [
    (names.SUBMIT, []),
    (names.SUBMIT, [1]),
    (names.SUBMIT, [None]),
    (names.SUBMIT, ["text"]),
    (names.SUBMIT, [{}]),
    (names.SUBMIT, [{"threadId": 5}]),
    (names.SUBMIT, [submission("T"), submission("T")]),
    (names.SUBMIT, [submission("another-thread")]),
    (names.SUBMIT, [submission("T", key="")]),
    (names.SUBMIT, [submission("T", key="x" * 257)]),
    (names.SUBMIT, [raw(b"\xff\xfe")]),
    (names.SUBMIT, [raw(b"{", b"json/plain")]),
    (names.SUBMIT, [raw(b"[" * 100_000)]),
    (names.SUBMIT, [raw(b"\x00\x01", b"binary/plain")]),
    (names.SUBMIT, [raw(b"", b"no/such-encoding")]),
    (names.ABORT, [{"threadId": "T", "submissionId": "s", "author": "", "reason": ""}]),
    (names.RESOLVE_APPROVAL, [{"threadId": "T", "submissionId": "s", "toolCallId": "c", "decision": "maybe"}]),
    (names.RESOLVE_UNKNOWN, [{"threadId": "T"}]),
    (names.WAKE, [5]),
    (names.WAKE, [{"mark": 10**30}]),
    (names.WAKE, [{"mark": -1}]),
    (names.WAKE, [{"registryKey": "k", "deployment": 10**30}]),
    ("no_such_signal", [1, 2, 3]),
]


async def started(deployed: Deployed) -> WorkflowHandle[Any, Any]:
    """An object that is there and at rest."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "say first", key="first")
    await deployed.client.wait(receipt, timeout=20)
    # The outcome is known before the workflow's last task has come round.
    await until(lambda: _at_rest(deployed))
    return deployed.temporal.get_workflow_handle(deployed.thread)


def for_thread(args: list[Any], thread: str) -> list[Any]:
    """The message with the thread's own id in place of T."""
    return [
        {**arg, "threadId": thread} if isinstance(arg, dict) and arg.get("threadId") == "T" else arg for arg in args
    ]


async def test_garbage_signals_are_refused_and_the_object_goes_on(deployed: Deployed) -> None:
    """Wrong types, missing fields, strange encodings, unknown names: an entry each, and no payload in it."""
    handle = await started(deployed)
    for name, args in GARBAGE:
        await handle.signal(name, args=for_thread(args, deployed.thread))
    report = await until(lambda: _refused(deployed, len(GARBAGE)))
    assert report.refused_total == len(GARBAGE)
    assert {entry.code for entry in report.refusals} == {"InvalidInput"}
    assert all(len(entry.digest) == 64 for entry in report.refusals)
    again = await deployed.client.submit(deployed.thread, AGENT, "say still here", key="again")
    assert (await deployed.client.wait(again, timeout=20)).result == "still here"


async def _refused(deployed: Deployed, total: int) -> Any:
    report = await deployed.client.report(deployed.thread)
    return report if report.refused_total >= total else None


async def test_a_signal_of_1_9_megabytes_is_refused_with_its_digest(deployed: Deployed) -> None:
    """Oversize signals are refused at once, whatever is in them."""
    handle = await started(deployed)
    await handle.signal(names.SUBMIT, submission(deployed.thread, input="x" * 1_900_000))
    report = await until(lambda: _refused(deployed, 1))
    assert report.refusals[-1].bytes > 1_900_000
    assert report.refusals[-1].code == "InvalidInput"
    again = await deployed.client.submit(deployed.thread, AGENT, "say still here", key="again")
    assert (await deployed.client.wait(again, timeout=20)).result == "still here"


async def test_the_refusal_list_is_bounded(deployed: Deployed) -> None:
    """The newest 64 are kept, all are counted."""
    handle = await started(deployed)
    await asyncio.gather(*(handle.signal("nonsense", n) for n in range(limits.REFUSALS_MAX + 10)))
    report = await until(lambda: _refused(deployed, limits.REFUSALS_MAX + 10))
    assert len(report.refusals) == limits.REFUSALS_MAX


@pytest.mark.parametrize(("name", "args"), GARBAGE, ids=range(len(GARBAGE)))
async def test_a_malformed_update_is_refused_before_anything_is_written(
    deployed: Deployed, name: str, args: list[Any]
) -> None:
    """The validator's refusal is typed and leaves no event."""
    handle = await started(deployed)
    before = (await handle.describe()).history_length
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(name, args=for_thread(args, deployed.thread))
    assert isinstance(from_failure(refused.value.__cause__), InvalidInput)
    assert (await handle.describe()).history_length == before


async def _at_rest(deployed: Deployed) -> bool:
    report = await deployed.client.report(deployed.thread)
    return report.generation.processed >= report.generation.dirty and not report.attempts


async def test_refusals_of_storage_reach_the_sender_of_a_signal_when_it_waits(deployed: Deployed) -> None:
    """A PendingReceipt shows its refusal: here, the key of another input."""
    await started(deployed)
    pending = await deployed.client.submit_signal(deployed.thread, AGENT, "say other", key="first")
    settlement = await deployed.client.wait(pending, timeout=20)
    assert settlement.result == "first"
    report = await until(lambda: _refused(deployed, 1))
    assert report.refusals[-1].code == AdmissionConflict.code
    assert len(report.refusals[-1].digest) == 64
    assert report.refusals[-1].submission_id == pending.submission_id


async def test_a_refused_signal_raises_at_its_wait(deployed: Deployed) -> None:
    """Deep JSON passes the wire and is refused at admission; the waiter learns it."""
    await started(deployed)
    deep: Any = "x"
    for _ in range(80):
        deep = [deep]
    pending = await deployed.client.submit_signal(deployed.thread, AGENT, deep, key="deep")
    with pytest.raises(SignalRefused) as refused:
        await deployed.client.wait(pending, timeout=20)
    assert refused.value.refused_with == InvalidInput.code


async def test_oversize_input_is_a_typed_refusal_naming_the_limit(deployed: Deployed) -> None:
    """F2: an input of 4 MiB, at once."""
    with pytest.raises(InvalidInput) as refused:
        await deployed.client.submit(deployed.thread, AGENT, "x" * 4_194_304, key="k")
    assert refused.value.limit == "wire-bytes"
    assert refused.value.maximum == limits.UPDATE_BYTES_MAX
    assert refused.value.actual is not None
    assert refused.value.actual > refused.value.maximum


async def test_input_over_the_signal_bound_goes_by_update(deployed: Deployed) -> None:
    """100 KB by `submit_signal` is accepted all the same."""
    pending = await deployed.client.submit_signal(deployed.thread, AGENT, "say ok " + "y" * 100_000, key="k")
    settlement = await deployed.client.wait(pending, timeout=20)
    assert str(settlement.result).startswith("ok yyy")


async def test_queue_depth_is_refused_typed_across_the_wire(settings: Settings, thread_id: str) -> None:
    """LIM-001, LIM-002 through update, validator and activity: the class and its numbers arrive."""
    small = settings.model_copy(update={"queue_depth": 2})
    async with running_worker(small), connected(small) as client:
        first = await client.submit(thread_id, AGENT, "hang 2; say slow", key="k0")
        await client.submit(thread_id, AGENT, "say x", key="k1")
        with pytest.raises(AdmissionLimitExceeded) as refused:
            await client.submit(thread_id, AGENT, "say x", key="k2")
        assert (refused.value.limit, refused.value.actual, refused.value.maximum) == ("queue-depth", 2, 2)
        assert (await client.submit(thread_id, AGENT, "hang 2; say slow", key="k0")).replayed
        assert (await client.wait(first, timeout=30)).result == "slow"


@pytest.mark.parametrize(
    ("thread", "given"),
    [
        ("\N{PILE OF POO}" * 256, "say hi"),
        ("t", "say \ud800"),
        ("t", float("nan")),
        ("t", [1, float("-inf")]),
    ],
    ids=["bytes-of-an-id", "surrogate", "nan", "infinity"],
)
async def test_what_cannot_be_carried_is_refused_typed_and_never_altered(
    deployed: Deployed, thread: str, given: Any
) -> None:
    """LIM-010: numbers that are none, text that is none and ids past the server's bound are invalid input."""
    with pytest.raises(InvalidInput):
        await deployed.client.submit(f"{thread}{deployed.thread}"[: limits.ID_CHARS_MAX], AGENT, given, key="k")
