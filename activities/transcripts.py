"""Transcripts kept from one Attempt to the next, so that a follow-up reads only what is new.

Rule guarded: what is kept is a guess until the log confirms it. The last known record is read again with whatever
follows; if it is not where it was, everything is read anew, of a long Thread from its checkpoints.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from pydantic import ValidationError

from thread_objects.agents.transcript import Transcript
from thread_objects.contract import limits
from thread_objects.contract.messages import LogRecord
from thread_objects.errors import CorruptRecord
from thread_objects.ports import Store

from . import prefixes

THREADS_MAX = 1_024
BYTES_MAX = 134_217_728
"""Of memory for all kept transcripts together, as far as it can be told: a Thread of 100 000 records in short texts
takes most of it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    transcript: Transcript
    last_record_id: str
    weight_bytes: int


class Transcripts:
    """A bounded cache, most recently used last. A transcript in use is not in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    def read(self, store: Store, thread_id: str, *, tail: int = 0, retained_at: int = 0, now: int = 0) -> Transcript:
        """The transcript of a Thread up to its log's end. Raises `CorruptRecord` for what does not decode.

        `tail`: the log's end as far as it is known; of a long Thread the checkpoints are looked at first.
        `retained_at`: when retention last took content; what was kept from before is forgotten.
        """
        with self._lock:
            kept = self._kept.pop(thread_id, None)
            self._bytes -= kept.weight_bytes if kept else 0
        if kept is not None and kept.transcript.retained_at == retained_at:
            transcript = kept.transcript
            page = store.records(thread_id, after=transcript.through - 1, limit=limits.READ_PAGE_RECORDS_MAX)
            if page and (page[0].sequence, page[0].record_id) == (transcript.through, kept.last_record_id):
                return _extended(store, thread_id, transcript, page[1:], len(page), now=now)
        found = prefixes.read(store, thread_id) if tail > prefixes.RECORDS_MIN else None
        transcript = found or Transcript()
        transcript.retained_at = retained_at
        page = store.records(thread_id, after=transcript.through, limit=limits.READ_PAGE_RECORDS_MAX)
        return _extended(store, thread_id, transcript, page, len(page), now=now)

    def keep(self, store: Store, thread_id: str, transcript: Transcript, last_record_id: str, *, now: int) -> None:
        """Keep a transcript that ends with this record, which ends its batch."""
        if prefixes.due(transcript):
            prefixes.save(store, thread_id, transcript, now=now)
        kept = _Kept(transcript, last_record_id, transcript.weight_bytes)
        with self._lock:
            replaced = self._kept.pop(thread_id, None)
            self._bytes += kept.weight_bytes - (replaced.weight_bytes if replaced else 0)
            self._kept[thread_id] = kept
            while self._kept and (len(self._kept) > THREADS_MAX or self._bytes > BYTES_MAX):
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.weight_bytes


def _extended(
    store: Store, thread_id: str, transcript: Transcript, page: list[LogRecord], read: int, *, now: int
) -> Transcript:
    while True:
        try:
            transcript.extend(page)
        except (ValidationError, ValueError) as error:
            raise CorruptRecord(thread_id=thread_id, sequence=transcript.through + 1, decoder="transcript") from error
        if prefixes.due(transcript):
            prefixes.save(store, thread_id, transcript, now=now)
        if read < limits.READ_PAGE_RECORDS_MAX:
            return transcript
        page = store.records(thread_id, after=transcript.through, limit=limits.READ_PAGE_RECORDS_MAX)
        read = len(page)
