"""A long view in pieces: each goes on from another, and only a gapless row of them counts."""

from tests.contract.test_checkpoints import bound
from tests.contract.world import THREAD, World
from thread_objects.ports import Checkpoint, CheckpointPlace


def piece(world: World, sequence: int, follows: int, body: object = "view") -> Checkpoint:
    """A piece with the digest that the log has there."""
    whole = bound(world, sequence, body)
    return Checkpoint(THREAD, sequence, whole.digest, body, follows=follows)


def settled(world: World, count: int) -> list[int]:
    """The ends of the log after so many settled Submissions."""
    ends = []
    for number in range(count):
        world.run_through(f"k{number}")
        ends.append(world.store.tail(THREAD).sequence)
    return ends


def places(world: World) -> list[tuple[int, int]]:
    """The chain as pairs."""
    return [(place.follows, place.sequence) for place in world.store.checkpoint_chain(THREAD)]


def test_pieces_are_read_in_order(world: World):
    """Each from where the one before it ends, with its body; a Thread without any has an empty chain."""
    a, b, c = settled(world, 3)
    assert world.store.checkpoint_chain(THREAD) == []
    assert world.store.load_checkpoints("nobody") == []
    for sequence, follows in ((a, 0), (b, a), (c, b)):
        world.store.save_checkpoint(piece(world, sequence, follows, {"n": sequence, "said": "\x00\ud800"}), now=1)
    assert world.store.checkpoint_chain(THREAD)[0] == CheckpointPlace(0, a)
    assert places(world) == [(0, a), (a, b), (b, c)]
    loaded = world.store.load_checkpoints(THREAD)
    assert [(found.follows, found.sequence) for found in loaded] == places(world)
    assert loaded[1].body == {"n": b, "said": "\x00\ud800"}


def test_a_piece_takes_the_place_of_those_it_covers(world: World):
    """Written again with more in it, it replaces what lies between; what it goes on from stays."""
    a, b, c, d = settled(world, 4)
    for sequence, follows in ((a, 0), (b, a), (c, b), (d, a)):
        world.store.save_checkpoint(piece(world, sequence, follows), now=1)
    assert places(world) == [(0, a), (a, d)]
    assert [world.store.load_checkpoint(THREAD, at_or_before=at).sequence for at in (b, c, d)] == [a, a, d]


def test_a_row_with_a_gap_does_not_count(world: World):
    """A piece whose predecessor is gone, or does not fit the log, is passed over with all that follow it."""
    a, b, c = settled(world, 3)
    for sequence, follows in ((a, 0), (b, a), (c, b)):
        world.store.save_checkpoint(piece(world, sequence, follows), now=1)
    world.store._database.write(
        lambda tx: tx.run("UPDATE checkpoints SET digest = 'x' WHERE sequence = :sequence", {"sequence": b})
    )
    assert places(world) == [(0, a)]
    world.store._database.write(
        lambda tx: tx.run("DELETE FROM checkpoints WHERE sequence = :sequence", {"sequence": a})
    )
    assert places(world) == []
    assert world.store.load_checkpoints(THREAD) == []


def test_a_piece_that_cannot_be_read_takes_the_chain_with_it(world: World):
    """Half a view is none: whoever asks reads the log instead."""
    a, b = settled(world, 2)
    for sequence, follows in ((a, 0), (b, a)):
        world.store.save_checkpoint(piece(world, sequence, follows), now=1)
    world.store._database.write(lambda tx: tx.run("UPDATE checkpoints SET body = '{' WHERE sequence > 6", {}))
    assert world.store.load_checkpoints(THREAD) == []
