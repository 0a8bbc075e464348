"""A client speaks plainly to objects it has met, and starts them anew where they are gone."""

from tests.scripted import AGENT
from tests.workflow.conftest import Deployed
from thread_objects import objects


async def test_an_object_that_an_operator_ended_is_started_again(deployed: Deployed) -> None:
    """Design §10: the next submit or signal starts a new run; storage decides what is owed."""
    client, thread = deployed.client, deployed.thread
    first = await client.submit(thread, AGENT, "say one", key="1")
    assert (await client.wait(first, timeout=20)).result == "one"
    await client.temporal.get_workflow_handle(thread).terminate("operator")
    second = await client.submit(thread, AGENT, "say two", key="2")
    assert (await client.wait(second, timeout=20)).result == "two"
    await client.temporal.get_workflow_handle(thread).terminate("operator")
    third = await client.submit_signal(thread, AGENT, "say three", key="3")
    assert (await client.wait(third, timeout=20)).result == "three"
    status = await client.status(third.submission_id)
    assert status is not None
    assert status.queue_sequence == 3


async def test_what_a_client_remembers_is_bounded(deployed: Deployed, monkeypatch) -> None:
    """The objects it spoke to last, at most so many."""
    monkeypatch.setattr(objects, "MET_MAX", 2)
    for n in (0, 1, 2, 0):
        receipt = await deployed.client.submit(f"{deployed.thread}-{n}", AGENT, f"say {n}", key="k")
        assert (await deployed.client.wait(receipt, timeout=20)).result == str(n)
    assert list(deployed.client._objects.objects._met) == [f"{deployed.thread}-2", f"{deployed.thread}-0"]
