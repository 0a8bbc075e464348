"""Transcripts kept from one Attempt to the next, so that a follow-up reads only what is new.

Rule guarded: what is kept is a guess until the log confirms it. The last known record is read again with whatever
follows; if it is not where it was, everything is read anew.
"""

import threading
from collections import OrderedDict

from pydantic import ValidationError

from thread_objects.agents.transcript import Transcript
from thread_objects.contract import limits
from thread_objects.contract.messages import LogRecord
from thread_objects.errors import CorruptRecord
from thread_objects.ports import Store

THREADS_MAX = 64
RECORDS_MAX = 50_000
"""Records of all kept transcripts together."""


class Transcripts:
    """A bounded cache, most recently used last. A transcript in use is not in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[Transcript, str]] = OrderedDict()
        self._records = 0

    def read(self, store: Store, thread_id: str) -> Transcript:
        """The transcript of a Thread up to its log's end. Raises `CorruptRecord` for what does not decode."""
        with self._lock:
            kept = self._kept.pop(thread_id, None)
            self._records -= kept[0].through if kept else 0
        if kept is not None:
            transcript, last_record_id = kept
            page = store.records(thread_id, after=transcript.through - 1, limit=limits.READ_PAGE_RECORDS_MAX)
            if page and (page[0].sequence, page[0].record_id) == (transcript.through, last_record_id):
                return _extended(store, thread_id, transcript, page[1:], len(page))
        page = store.records(thread_id, after=0, limit=limits.READ_PAGE_RECORDS_MAX)
        return _extended(store, thread_id, Transcript(), page, len(page))

    def keep(self, thread_id: str, transcript: Transcript, last_record_id: str) -> None:
        """Keep a transcript that ends with this record."""
        with self._lock:
            replaced = self._kept.pop(thread_id, None)
            self._records += transcript.through - (replaced[0].through if replaced else 0)
            self._kept[thread_id] = (transcript, last_record_id)
            while self._kept and (len(self._kept) > THREADS_MAX or self._records > RECORDS_MAX):
                _, (dropped, _) = self._kept.popitem(last=False)
                self._records -= dropped.through


def _extended(store: Store, thread_id: str, transcript: Transcript, page: list[LogRecord], read: int) -> Transcript:
    while True:
        try:
            transcript.extend(page)
        except (ValidationError, ValueError) as error:
            raise CorruptRecord(thread_id=thread_id, sequence=transcript.through + 1, decoder="transcript") from error
        if read < limits.READ_PAGE_RECORDS_MAX:
            return transcript
        page = store.records(thread_id, after=transcript.through, limit=limits.READ_PAGE_RECORDS_MAX)
        read = len(page)
