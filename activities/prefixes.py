"""Prefixes: what a Thread's log holds up to some place, packed into checkpoints of many records each.

Rules guarded: a long Thread is taken up from a bounded number of rows. A prefix holds the facts themselves, so folding
it is folding the log; it is bound to the log by digest, and where it does not fit or cannot be read, the log is read.
It is written only for Threads that have grown long, between Submissions.
"""

import json
from dataclasses import dataclass, field

from pydantic import JsonValue, TypeAdapter, ValidationError

from thread_objects.agents.transcript import Transcript, facts_of
from thread_objects.contract import limits
from thread_objects.contract.records import AnyPayload, RepairAnnotated, ThreadCreated
from thread_objects.core.canonical import byte_length
from thread_objects.errors import ThreadError
from thread_objects.ports import Checkpoint, Store

RECORDS_MIN = 1_000
"""So many records make the next checkpoint due; reading that many again is cheap."""
PIECE_BYTES_MAX = 990_000
"""Of one checkpoint's facts. As a text inside a text they take at most twice that, and fit a stored value."""
FORMAT = 1

_PAYLOADS: TypeAdapter[list[AnyPayload]] = TypeAdapter(list[AnyPayload])
_SILENT = (ThreadCreated, RepairAnnotated)
"""Facts that no conversation is rebuilt from."""


def read(store: Store, thread_id: str) -> Transcript | None:
    """The transcript as far as checkpoints hold it; None when they hold nothing that can be used."""
    transcript = Transcript()
    try:
        for piece in store.load_checkpoints(thread_id):
            for payload in _unpacked(store, piece):
                transcript.apply(payload)
            transcript.through = piece.sequence
            transcript.held(piece.sequence)
    except (ThreadError, ValueError, KeyError, TypeError):
        return None
    return transcript if transcript.through else None


def due(transcript: Transcript) -> bool:
    """Whether enough has come since the last checkpoint."""
    return transcript.through - transcript.since >= RECORDS_MIN


def save(store: Store, thread_id: str, transcript: Transcript, *, now: int) -> None:
    """Write the recent batches into checkpoints. These are disposable: what fails now is tried again later."""
    try:
        _save(store, thread_id, transcript, now=now)
    except (ThreadError, ValueError):
        return


def _save(store: Store, thread_id: str, transcript: Transcript, *, now: int) -> None:
    chain = store.checkpoint_chain(thread_id)
    end = chain[-1].sequence if chain else 0
    if end < transcript.since:
        # Somebody removed what was there, and what came before `recent` is not at hand: a later cold read writes it.
        transcript.held(transcript.through)
        return
    fresh = [batch for batch in transcript.recent if batch.through > end]
    if fresh and store.digest_at(thread_id, fresh[-1].through) is None:
        fresh.pop()  # only a part of it was read yet
    piece = _Piece(chain[-1].follows if chain else 0, end)
    if fresh and chain:
        piece = _last_piece(store, thread_id, piece)
    for batch in fresh:
        facts = _packed(batch.payloads)
        if piece.facts and piece.size_bytes + byte_length(facts) > PIECE_BYTES_MAX:
            _write(store, thread_id, piece, transcript.retained_at, now=now)
            transcript.held(piece.through)
            piece = _Piece(piece.through, piece.through)
        piece.add(facts, batch.through)
    if fresh:
        _write(store, thread_id, piece, transcript.retained_at, now=now)
    transcript.held(max(end, piece.through))


@dataclass(slots=True)
class _Piece:
    """The facts past `follows` up to `through`, as texts of JSON values without the brackets around them."""

    follows: int
    through: int
    facts: list[str] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, facts: str, through: int) -> None:
        """Add a batch."""
        self.facts.append(facts)
        self.size_bytes += byte_length(facts)
        self.through = through


def _last_piece(store: Store, thread_id: str, last: _Piece) -> _Piece:
    """The last piece, to be written again with more in it, or a new one behind it."""
    found = store.load_checkpoint(thread_id, at_or_before=last.through)
    match found:
        case Checkpoint(sequence=last.through, body={"format": 1, "facts": str(facts)}):
            last.add(facts[1:-1], last.through)
            return last
        case _:
            return _Piece(last.through, last.through)


def _write(store: Store, thread_id: str, piece: _Piece, retained_at: int, *, now: int) -> None:
    digest = store.digest_at(thread_id, piece.through)
    if digest is None:
        return
    facts = f"[{','.join(filter(None, piece.facts))}]" if piece.size_bytes <= PIECE_BYTES_MAX else None
    body: JsonValue = {"format": FORMAT, "facts": facts}
    checkpoint = Checkpoint(thread_id, piece.through, digest, body, follows=piece.follows, retained_at=retained_at)
    store.save_checkpoint(checkpoint, now=now)


def _packed(payloads: list[AnyPayload]) -> str:
    kept: list[AnyPayload] = [payload for payload in payloads if not isinstance(payload, _SILENT)]
    plain = _PAYLOADS.dump_python(kept, mode="json", by_alias=True)
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(plain, separators=(",", ":"))
    return text[1:-1]


def _unpacked(store: Store, piece: Checkpoint) -> list[AnyPayload]:
    """The facts of a piece; of one that was too large to pack, from the log. Raises what does not decode."""
    if not isinstance(piece.body, dict) or piece.body["format"] != FORMAT:
        raise ValueError("not a format of ours")
    facts = piece.body["facts"]
    if isinstance(facts, str):
        try:
            return _PAYLOADS.validate_json(facts)
        except ValidationError:
            # Its parser knows no lone surrogates, which a model may well have said.
            return _PAYLOADS.validate_python(json.loads(facts))
    found: list[AnyPayload] = []
    after = piece.follows
    while after < piece.sequence:
        page = store.records(piece.thread_id, after=after, limit=limits.READ_PAGE_RECORDS_MAX)
        for record in page:
            if record.sequence <= piece.sequence:
                found.extend(facts_of(record))
        after = page[-1].sequence if page else piece.sequence
    return found
