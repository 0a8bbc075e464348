"""Digests: SHA-256, 64 lowercase hex characters, over canonical JSON; and the chain that binds a log.

Rule guarded: a batch's digest covers everything before it, so that no earlier record can change unseen.
"""

import hashlib
from typing import Any

from thread_objects.core.canonical import PERSISTED, Bounds, canonical


def of_text(text: str) -> str:
    """The digest of a text that is canonical already."""
    return hashlib.sha256(text.encode()).hexdigest()


def of_value(value: Any, bounds: Bounds = PERSISTED) -> str:
    """The digest of a JSON value. Key order does not matter. Raises `Unpersistable`."""
    return of_text(canonical(value, bounds))


EMPTY_TAIL = of_text('"thread-objects/empty-log/1"')
"""The tail digest of a log without records: the first link of every chain."""


def chain(previous: str, batch: str) -> str:
    """The tail digest after a batch: over {batch, previousTailDigest}, of the batch's canonical text."""
    return of_text(f'{{"batch":{batch},"previousTailDigest":"{previous}"}}')
