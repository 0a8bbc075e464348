"""The commits of one claim: appended under its epoch, and folded into what is known of the Thread.

Rule guarded: what is known is what is committed. Once somebody else's records came between ours, what is known is
not whole and is not kept.
"""

import asyncio
from collections.abc import Callable

from thread_objects import failpoints
from thread_objects.agents.transcript import RunLog, Transcript
from thread_objects.clock import Clock
from thread_objects.contract import limits
from thread_objects.contract.records import Batch
from thread_objects.core.batches import abort_requested
from thread_objects.errors import StoreUnavailable
from thread_objects.ports import AbortIntent, Claim, Store, Tail

PATIENCE_S = 15.0
"""How long a fact that must not be lost waits for a store that is away."""
CONFIRMED_MS = 1_000
"""How long the store's word that the claim stands is good enough to start an `uncertain` handler on."""
PAUSE_S = 0.1
PAUSE_MAX_S = 2.0


class Commits:
    """Appends for one claim. Used on one thread only: the one with the Attempt's event loop."""

    def __init__(self, store: Store, clock: Clock, claim: Claim, transcript: Transcript, *, deployment_id: str) -> None:
        self._store = store
        self._clock = clock
        self.claim = claim
        self.transcript = transcript
        self.deployment_id = deployment_id
        self.held_at = claim.lease_until - limits.LEASE_MS
        """When the store last said that the claim stands."""
        self.whole = True
        """Whether the transcript holds everything up to our last record."""
        self.last_record_id = ""

    def now(self) -> int:
        """The instant of whatever is committed next."""
        return self._clock.now()

    def append(self, batch: Batch) -> None:
        """Append under the claim, and fold what was appended."""
        now = self.now()
        self.took(self._store.append(self.claim, batch, now=now), batch)
        self.held_at = now

    def join(self, submission_id: str, batch: Batch) -> None:
        """Append what ends with a joining input, mark its row, and fold what was appended."""
        now = self.now()
        self.took(self._store.apply_joined(self.claim, submission_id, batch, now=now).tail, batch)
        self.held_at = now

    async def patiently(self, batch: Batch, append: Callable[[Batch], None] | None = None) -> None:
        """Append, waiting for a store that is away: what is committed here cannot be had again."""
        pause, waited = PAUSE_S, 0.0
        while True:
            try:
                (append or self.append)(batch)
            except StoreUnavailable:
                if waited >= PATIENCE_S:
                    raise
                await asyncio.sleep(pause)
                waited += pause
                pause = min(PAUSE_MAX_S, pause * 2)
            else:
                return

    def request_abort(self, run: RunLog, intent: AbortIntent) -> None:
        """Make the abort canonical, before anything is interrupted for it."""
        if run.abort:
            return
        failpoints.hit("abort:before-canonical-append")
        self.append(
            abort_requested(
                self.claim.submission_id,
                intent.author,
                intent.reason,
                deployment_id=self.deployment_id,
                now=self.now(),
            )
        )
        failpoints.hit("abort:after-canonical-append")

    def renew(self) -> None:
        """Extend the lease."""
        now = self.now()
        self.claim = self._store.renew(self.claim, now=now).at(self.claim.tail)
        self.held_at = now

    def confirm(self) -> None:
        """Make sure that the claim stands, unless it was said a moment ago. Raises what `renew` raises.

        A store that is away says nothing, so the lease decides.
        """
        now = self.now()
        if now - self.held_at <= CONFIRMED_MS:
            return
        try:
            self.renew()
        except StoreUnavailable:
            if now >= self.claim.lease_until:
                raise

    def took(self, tail: Tail, batch: Batch) -> None:
        """This batch is committed, and the log ends here."""
        self.claim = self.claim.at(tail)
        self.fold(batch)
        self.whole = self.whole and tail.sequence == self.transcript.through

    def fold(self, batch: Batch) -> None:
        """Fold in a batch that is committed, or is about to be in the same transaction as the end of the claim."""
        through = self.transcript.through + len(batch.records)
        self.transcript.take(batch.batch_id, [record.payload for record in batch.records], through)
        self.last_record_id = batch.records[-1].record_id
