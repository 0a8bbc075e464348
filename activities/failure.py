"""Tells a recovery failure in class names and static names, so that no payload or secret reaches a fault record."""

from collections.abc import Iterator
from typing import Literal

from thread_objects.core.faults import RecoveryFailure
from thread_objects.errors import CorruptRecord, ThreadError

from .watch import RecoveryTimeout, Watch

CAUSES_MAX = 16
ERROR_TAG_CHARS_MAX = 128
OPERATION_CHARS_MAX = 256
READ_TRANSCRIPT = "read transcript"
FOREIGN = "ForeignError"
DEFECT = "Defect"


def recovery_failure(error: Exception, watch: Watch) -> RecoveryFailure:
    """What a fault record keeps of `error`, which ended the step that `watch` names."""
    leaves = list(_leaves(error))
    causes = [_name(cause) for leaf in leaves for cause in _below(leaf, seen=set())]
    if len(leaves) > 1:
        causes = [*map(_name, leaves), *causes]
    reason, error_tag = _verdict(leaves)
    corrupt = next((leaf for leaf in leaves if isinstance(leaf, CorruptRecord)), None)
    return RecoveryFailure(
        phase=watch.phase,
        reason=reason,
        error_tag=error_tag[:ERROR_TAG_CHARS_MAX],
        operation=watch.operation[:OPERATION_CHARS_MAX],
        causes=tuple(causes[:CAUSES_MAX]),
        causes_truncated=len(causes) > CAUSES_MAX,
        decoder="" if corrupt is None else corrupt.decoder,
        sequence=None if corrupt is None else corrupt.sequence,
    )


def _verdict(leaves: list[BaseException]) -> tuple[Literal["failure", "defect", "timeout"], str]:
    """A defect anywhere makes the whole a defect; a timeout beats a typed failure."""
    if any(not isinstance(leaf, ThreadError | RecoveryTimeout) for leaf in leaves):
        return "defect", DEFECT
    if any(isinstance(leaf, RecoveryTimeout) for leaf in leaves):
        return "timeout", RecoveryTimeout.__name__
    return "failure", next(leaf.code for leaf in leaves if isinstance(leaf, ThreadError))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _below(error: BaseException, seen: set[int]) -> Iterator[BaseException]:
    """What led to an error, nearest first. A chain may hold a circle."""
    below = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if below is None or id(below) in seen:
        return
    seen.add(id(below))
    for leaf in _leaves(below):
        yield leaf
        yield from _below(leaf, seen)


def _name(error: BaseException) -> str:
    # Names of the application's own classes might say something about it; ours do not.
    return type(error).__name__ if isinstance(error, ThreadError | RecoveryTimeout) else FOREIGN
