"""kill -9 around a seam: queued input is delivered exactly once, by whichever Run, and settled with it."""

import asyncio

import pytest

from tests.crash.conftest import Stage
from tests.deployment import until
from tests.scripted import AGENT
from thread_objects.contract.states import Outcome


@pytest.mark.parametrize("failpoint", ["join:after-claim", "join:before-append", "join:after-append"])
async def test_kill_around_a_seam_delivers_the_input_once(stage: Stage, failpoint: str) -> None:
    """EVI-028, JOIN-015: the batch is not repeated, the input is canonical once, both are settled."""
    stage.worker.start(THREADS_FAILPOINT=failpoint)
    script = f"call look a@{stage.ledger} & slow 2; say done"
    host = await stage.client.submit(stage.thread, AGENT, script, key="host")
    await until(lambda: stage.effects() == ["a"])
    queued = await stage.client.submit(stage.thread, AGENT, "say joined", key="queued")
    await asyncio.to_thread(stage.worker.died)
    await asyncio.to_thread(stage.worker.start)
    ended = [await stage.client.wait(receipt, timeout=30) for receipt in (host, queued)]
    assert [settlement.outcome for settlement in ended] == [Outcome.COMPLETED] * 2
    assert (ended[0].result, ended[1].result, ended[1].run_id) == ("joined", None, ended[0].run_id)
    log = await stage.log()
    inputs = [record.payload["submissionId"] for record in log if record.kind == "UserInputRecorded"]
    assert inputs == [host.submission_id, queued.submission_id]
    kinds = [record.kind for record in log]
    assert (kinds.count("ModelResponseRecorded"), kinds.count("SubmissionSettled")) == (2, 2)
    assert stage.effects() == ["a"]
