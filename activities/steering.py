"""Steering: queued input that a running Run takes, and that settles with it.

Rules guarded: input joins at a seam only, in queue order, under the live claim, and is canonical before the model reads
it. A Run without queued input pays nothing: whether there is some came with its last append.
"""

from collections.abc import Callable, Sequence

from pydantic import JsonValue

from thread_objects import failpoints
from thread_objects.agents.binding import Completed
from thread_objects.agents.policy import RunPolicy
from thread_objects.agents.transcript import RunLog
from thread_objects.contract.records import Batch
from thread_objects.errors import StoreUnavailable
from thread_objects.ports import Store
from thread_objects.ties import Joining

from .commits import Commits
from .turn_batches import TurnBatches

Prompt = Callable[[JsonValue], object]
"""Raises for an input that this deploy cannot read."""


class Steering:
    """What one claim takes from the queue behind it."""

    def __init__(self, store: Store, commits: Commits, batches: TurnBatches, run: RunLog, policy: RunPolicy) -> None:
        self._store = store
        self._commits = commits
        self._batches = batches
        self._policy = policy
        self._looked = commits.claim.queue_sequence
        """Nothing up to this place in the queue is left to take."""
        self._unsure = False
        """Rows may be taken that nobody told of."""
        self.joins = bool(run.joined)
        """Whether rows may be tied to this Run, which its settlement then has to look after."""

    async def seam(self, prompt: Prompt) -> Sequence[JsonValue]:
        """Take what may join here."""
        if self._commits.claim.tail.queue_last <= self._looked:
            return ()
        taken = self._take(self._policy.steering_per_seam, prompt)
        for one in taken:
            await self._join(one, self._batches.joined(one, self._commits.now()))
        return [one.input for one in taken]

    async def follow_up(self, completed: Completed, prompt: Prompt) -> bool:
        """Take one input instead of ending, if there is one."""
        for one in self._take(1, prompt):
            batch = self._batches.follow_up(completed, one, self._commits.now())
            if batch is None:
                self._give_back([one])
                return False
            await self._join(one, batch)
            return True
        return False

    def _take(self, wanted: int, prompt: Prompt) -> Sequence[Joining]:
        claim = self._commits.claim
        self.joins = True  # from here on, whatever the answer: it may be lost on its way
        try:
            if self._overtakes():
                return ()
            taken = self._store.claim_joining(claim, wanted, now=self._commits.now())
        except StoreUnavailable:
            self._unsure = True
            return ()  # nothing waits for this; what is queued can be asked for at the next seam
        failpoints.hit("join:after-claim")
        if len(taken) < wanted:
            self._looked = claim.tail.queue_last
        for place, one in enumerate(taken):
            if not _readable(one.input, prompt):
                self._give_back(taken[place:])
                self._looked = claim.tail.queue_last
                return taken[:place]
        return taken

    def _overtakes(self) -> bool:
        """Whether what is taken now could stand behind a row whose claim was not answered: that one goes back later."""
        if self._unsure:
            self._unsure = self._store.view(self._commits.claim.thread_id).busy > 0
        return self._unsure

    async def _join(self, one: Joining, batch: Batch) -> None:
        failpoints.hit("join:before-append")
        await self._commits.patiently(batch, lambda appended: self._commits.join(one.submission_id, appended))
        failpoints.hit("join:after-append")

    def _give_back(self, taken: Sequence[Joining]) -> None:
        claim = self._commits.claim
        for one in reversed(taken):
            self._store.revert_joining(
                one.submission_id, claim.submission_id, token=claim.token, now=self._commits.now()
            )


def _readable(value: JsonValue, prompt: Prompt) -> bool:
    try:
        prompt(value)
    except Exception:  # noqa: BLE001 - an adapter is the user's, and says no in its own ways
        return False
    return True
