"""Digests and the chain: frozen forms, so that a log written by any version can be checked by any other."""

import hashlib

from thread_objects.contract.records import Batch, Record, RepairAnnotated
from thread_objects.core import digests
from thread_objects.core.batches import encode
from thread_objects.core.canonical import canonical


def batch(*names: str) -> Batch:
    """A batch of annotations."""
    return Batch(
        batch_id="b\u00e4tch\x00",
        records=tuple(
            Record(
                record_id=name, created_at=1_700_000_000_000, deployment_id="d", payload=RepairAnnotated(reason=name)
            )
            for name in names
        ),
    )


def test_empty_tail_is_frozen():
    """The first link of every chain never changes."""
    assert hashlib.sha256(b'"thread-objects/empty-log/1"').hexdigest() == digests.EMPTY_TAIL
    assert digests.EMPTY_TAIL == "429d71be1d4caea961ec9c4df369175f9e3393c078923111a8bc64c97c5813c3"


def test_digest_is_of_canonical_content():
    """64 lowercase hex characters; key order does not matter, content does."""
    assert digests.of_value({"a": 1, "b": 2}) == digests.of_value({"b": 2, "a": 1})
    assert digests.of_value({"a": 1}) != digests.of_value({"a": 2})
    assert digests.of_value([]) == hashlib.sha256(b"[]").hexdigest()


def test_batch_text_is_the_canonical_text_of_the_batch():
    """Composing the text from its payloads is the same as printing the whole."""
    encoded = encode(batch("r1", "r\x00", "\u20ac"))
    whole = {
        "batchId": encoded.batch_id,
        "records": [
            {
                "recordId": entry.record.record_id,
                "family": "thread",
                "schemaVersion": 1,
                "createdAt": entry.record.created_at,
                "deploymentId": entry.record.deployment_id,
                "payload": entry.record.payload.model_dump(by_alias=True),
            }
            for entry in encoded.records
        ],
    }
    assert encoded.text == canonical(whole)
    assert [entry.body for entry in encoded.records] == [canonical(record["payload"]) for record in whole["records"]]


def test_chain_is_the_digest_of_tail_and_batch():
    """Each link covers the one before it."""
    encoded = encode(batch("r1"))
    link = digests.chain(digests.EMPTY_TAIL, encoded.text)
    assert link == digests.of_text(f'{{"batch":{encoded.text},"previousTailDigest":"{digests.EMPTY_TAIL}"}}')
    assert digests.chain(link, encoded.text) != link
    assert link == "b2a939ef12f0efb9ccd59b179182834e4fd9bd90c77b91110f991d2c08e14a28"
