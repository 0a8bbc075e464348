"""A Thread that came from elsewhere is taken up by the workers that are here."""

import asyncio
from pathlib import Path

from storage import StoreLimits, open_store
from tests.contract.world import World
from tests.deployment import connected, running_worker
from tests.scripted import AGENT
from thread_objects.contract.states import Outcome
from thread_objects.database import ThreadDatabase
from thread_objects.settings import Settings


async def test_import_wakes_the_object(settings: Settings, thread_id: str, tmp_path: Path):
    """Queued input settles without anybody sending anything: the mark is found by the sweep, which starts the object."""
    source = World(open_store(f"sqlite:///{tmp_path / 'source.db'}", limits=StoreLimits(), synchronous="OFF"), "")
    receipt = source.submit("k1", "say imported", thread=thread_id, agent=AGENT)
    archive = list(source.store.export(thread_id))
    source.store.close()
    prompt = settings.model_copy(update={"mark_sweep_ms": 100})
    async with running_worker(prompt), connected(prompt) as client:
        with ThreadDatabase.open(prompt) as database:
            await asyncio.to_thread(database.import_thread, archive)
        settlement = await client.wait(receipt, timeout=30)
        assert (settlement.outcome, settlement.result) == (Outcome.COMPLETED, "imported")
