"""Lives of a lane with joins, drawn at random: whatever happens in whatever order, every input ends exactly once."""

import itertools
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.world import World, state
from thread_objects.contract import ids
from thread_objects.contract.states import Outcome
from thread_objects.errors import LedgerError, ThreadError
from thread_objects.ports import Claim

STEPS = ["submit", "foreign", "respond", "take", "append", "join", "abort", "finish", "fail", "die"]
THREADS = itertools.count()


class Life:
    """One Thread, its owner if it has one, and what was sent to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.thread = f"life-{next(THREADS)}"
        self.sent: list[str] = []
        self.principals: dict[str, str] = {}
        self.claim: Claim | None = None
        self.turn = 0
        self.taken: list[tuple[str, str]] = []

    def step(self, name: str) -> None:
        """One step, where it is possible."""
        if name in ("submit", "foreign"):
            principal = "pat" if name == "submit" else "other"
            receipt = self.world.submit(f"k{len(self.sent)}", thread=self.thread, principal=principal)
            self.sent.append(receipt.submission_id)
            self.principals[receipt.submission_id] = principal
        elif name == "abort":
            if self.sent:
                self.world.abort(self.sent[-1], thread=self.thread)
        elif self.claim is None:
            self.begin()
        else:
            getattr(self, name)(self.claim)

    def begin(self) -> None:
        """A new owner, once recovery has looked at what the last one left."""
        self.recover()
        attempt = f"a{self.world.now}"
        self.world.now += 30_001
        self.claim = self.world.try_begin(thread=self.thread, attempt=attempt)
        if self.claim is not None:
            sid = self.claim.submission_id
            self.turn = sum(r.kind == "ModelResponseRecorded" for r in self.world.store.run_records(sid))

    def respond(self, claim: Claim) -> None:
        """Another response."""
        self.turn += 1
        self.claim = self.world.respond(claim, turn=self.turn)

    def take(self, claim: Claim) -> None:
        """Claimed, and the owner does nothing with it yet."""
        for one in self.world.store.claim_joining(claim, 1, now=self.world.now):
            assert self.principals[one.submission_id] == claim.principal
            self.taken.append((claim.submission_id, one.submission_id))

    def append(self, claim: Claim) -> None:
        """Claimed and appended; the marker is lost."""
        self.claim = self.world.join(claim, mark=False)

    def join(self, claim: Claim) -> None:
        """As a worker does it."""
        self.claim = self.world.join(claim)

    def finish(self, claim: Claim) -> None:
        """Settled with what it took."""
        self.world.finish(claim, joins=True)
        self.claim = None

    def fail(self, claim: Claim) -> None:
        """Settled alone, as recovery settles: what it took is looked after later."""
        self.world.finish(claim, Outcome.FAILED)
        self.claim = None

    def die(self, _: Claim) -> None:
        """The owner is gone."""
        self.claim = None
        self.world.now += 30_001

    def recover(self) -> None:
        """Every joining or joined row is brought to where its host's log says it belongs."""
        store = self.world.store
        for sid in self.sent:
            found = store.snapshot(sid)
            assert found is not None
            host = found.host_submission_id
            if found.state not in ("joining", "joined") or host is None:
                continue
            if state(self.world, host) == "settled":
                if found.state == "joining" and store.revert_joining(sid, host, now=self.world.now):
                    continue
                store.settle_joined(sid, host, deployment_id="", now=self.world.now)
            elif found.state == "joining":
                claim = self.world.claim(thread=self.thread, attempt=f"r{self.world.now}")
                assert claim is not None
                try:
                    store.mark_joined(claim, sid, now=self.world.now)
                except LedgerError:
                    assert store.revert_joining(sid, host, token=claim.token, now=self.world.now)
                store.release(claim, now=self.world.now)

    def drain(self) -> None:
        """Everything that is owed."""
        if self.claim is not None:
            self.die(self.claim)
        for _ in range(3 * len(self.sent) + 3):
            self.begin()
            if self.claim is None:
                for sid in self.sent:
                    self.world.store.publish_queued_abort(sid, now=self.world.now)
            elif self.claim.abort is not None:
                self.world.finish(self.claim, Outcome.ABORTED, joins=True)
                self.claim = None
            else:
                self.respond(self.claim)
                self.finish(self.claim)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(STEPS), min_size=3, max_size=24))
def test_every_input_is_read_once_and_settled_once(world: World, steps: list[str]) -> None:
    """One input record, one settlement, one Receipt each; joined input has its host's outcome and its host's run."""
    life = Life(world)
    for name in steps:
        try:
            life.step(name)
        except ThreadError as error:
            raise AssertionError(f"{name}: {error}") from error
    life.drain()
    assert world.store.view(life.thread).nonterminal == 0
    log = world.store.records(life.thread, after=0, limit=1_024) if life.sent else []
    settled = {r.payload["submissionId"]: r.payload for r in log if r.kind == "SubmissionSettled"}
    inputs = Counter(r.payload["submissionId"] for r in log if r.kind == "UserInputRecorded")
    assert set(settled) == set(life.sent)
    assert Counter(r.kind for r in log)["SubmissionSettled"] == len(life.sent)
    assert set(inputs.values()) <= {1}
    for sid, payload in settled.items():
        if payload["outcome"] == "completed":
            assert inputs[sid] == 1
        host = payload["runId"]
        if host not in (None, ids.run_id(sid)):
            assert settled[host.removeprefix("run:")]["outcome"] == payload["outcome"]
