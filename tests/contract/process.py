"""What other processes do in the races: a store of their own on the same database."""

import sys

from storage import StoreLimits, open_store
from tests.contract.world import World


def writer(url: str, name: str, count: int) -> None:
    """Open the database, maybe as the first one, and make `count` writes to a Thread of one's own and a shared one."""
    store = open_store(url, limits=StoreLimits(queue_depth=100_000), synchronous="OFF", pool_size=2)
    world = World(store, url)
    for number in range(count // 4):
        thread = f"thread-{name}"
        world.submit(f"{name}-{number}", thread=thread)
        world.finish(world.begin(thread=thread, attempt=f"{name}-{number}"))
        world.submit(f"{name}-{number}", thread="shared")
    store.close()


if __name__ == "__main__":
    writer(sys.argv[1], sys.argv[2], int(sys.argv[3]))
