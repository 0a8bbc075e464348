"""Checkpoints: bound to the log, derived, disposable."""

import pytest

from tests.contract.world import THREAD, World
from thread_objects.core.digests import EMPTY_TAIL
from thread_objects.errors import CheckpointRejected, InvalidInput, ThreadNotMaterialized
from thread_objects.ports import CHECKPOINT_VERSION, Checkpoint


def bound(world: World, sequence: int, body: object = "view") -> Checkpoint:
    """A checkpoint with the digest that the log has there."""
    digest = world.store.digest_at(THREAD, sequence)
    assert digest is not None
    return Checkpoint(THREAD, sequence, digest, body)


def test_checkpoint_that_does_not_fit_the_log_is_refused(world: World):
    """Ahead of the tail, another digest, no batch's end, another version: refused, nothing kept (LOG-014)."""
    world.run_through("k1")
    tail = world.store.tail(THREAD)
    digest = tail.digest
    for given, reason in (
        (Checkpoint(THREAD, tail.sequence, "0" * 64, 1), "digest-mismatch"),
        (Checkpoint(THREAD, 2, digest, 1), "digest-mismatch"),
        (Checkpoint(THREAD, tail.sequence + 1, digest, 1), "ahead-of-tail"),
        (Checkpoint(THREAD, tail.sequence, digest, 1, CHECKPOINT_VERSION + 1), "unsupported-version"),
    ):
        with pytest.raises(CheckpointRejected) as refused:
            world.store.save_checkpoint(given, now=world.now)
        assert (refused.value.thread_id, refused.value.reason) == (THREAD, reason)
    with pytest.raises(InvalidInput):
        world.store.save_checkpoint(Checkpoint(THREAD, tail.sequence, digest, float("nan")), now=world.now)
    with pytest.raises(ThreadNotMaterialized):
        world.store.save_checkpoint(Checkpoint("nobody", 0, EMPTY_TAIL, 1), now=world.now)
    assert world.store.load_checkpoint(THREAD, at_or_before=99) is None


def test_checkpoint_is_found_at_or_before_a_place(world: World):
    """The newest one that is not past the asked place; a log that grew on changes nothing (LOG-015)."""
    world.submit("k1")
    claim = world.begin()
    saved = bound(world, 3, {"turns": [1, 2**70], "said": "\x00\ud800"})
    world.store.save_checkpoint(saved, now=world.now)
    world.finish(claim)
    world.run_through("k2")
    assert world.store.tail(THREAD).sequence == 9
    assert world.store.load_checkpoint(THREAD, at_or_before=9) == saved
    assert world.store.load_checkpoint(THREAD, at_or_before=2) is None


def test_newest_checkpoints_stay(world: World):
    """Two of a Thread are kept; the same place saved again holds the newer body."""
    for key in ("k1", "k2", "k3"):
        world.run_through(key)
        world.store.save_checkpoint(bound(world, world.store.tail(THREAD).sequence, key), now=world.now)
    world.store.save_checkpoint(bound(world, 13, "again"), now=world.now)
    found = {at: world.store.load_checkpoint(THREAD, at_or_before=at) for at in (5, 9, 13)}
    assert found[5] is None
    assert [found[9].body, found[13].body] == ["k2", "again"]


@pytest.mark.parametrize("damage", ["digest = '0'", "version = 9", "body = '{'"])
def test_stored_checkpoint_that_does_not_fit_is_passed_over(world: World, damage: str):
    """What is derived may be lost: the older one that fits is given, and nothing fails."""
    for key in ("k1", "k2"):
        world.run_through(key)
        world.store.save_checkpoint(bound(world, world.store.tail(THREAD).sequence, key), now=world.now)
    world.store._database.write(lambda tx: tx.run(f"UPDATE checkpoints SET {damage} WHERE sequence = 9", {}))
    assert world.store.load_checkpoint(THREAD, at_or_before=9).body == "k1"
