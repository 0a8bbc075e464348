"""Recovery of joined input: consumed input is marked and settles with its host, the rest is delivered again."""

import pytest

from activities.repairs import Repairs
from activities.short_claims import ShortClaims
from activities.unknown_repair import always_supported, no_reconcilers
from activities.watch import Watch
from thread_objects.contract import ids
from thread_objects.core import batches
from thread_objects.core.recovery import decisions as d

from .lab import Lab, declared
from .proxy import Proxied

STEPS = ("host", "take", "append", "mark", "cover", "settle")


class Seam:
    """A host and one input that it takes, step by step; its owner dies after any of them."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def upto(self, last: str, *, lose: bool = True) -> "Seam":
        for step in STEPS[: STEPS.index(last) + 1]:
            getattr(self, f"_{step}")()
        if lose:
            self.lab.pass_lease()
        return self

    def _host(self) -> None:
        self.host = self.lab.submit("k1")
        self.claim = self.lab.respond(self.lab.claim())
        self.guest = self.lab.submit("k2")

    def _take(self) -> None:
        (taken,) = self.lab.store.claim_joining(self.claim, 1, now=self.lab.clock.now())
        assert taken.submission_id == self.guest

    def _append(self) -> None:
        batch = batches.joined_input(
            self.guest, self.host, "hi", "steering", deployment_id="", now=self.lab.clock.now()
        )
        self.claim = self.claim.at(self.lab.store.append(self.claim, batch, now=self.lab.clock.now()))

    def _mark(self) -> None:
        self.lab.store.mark_joined(self.claim, self.guest, now=self.lab.clock.now())

    def _cover(self) -> None:
        self.claim = self.lab.respond(self.claim, turn=2)

    def _settle(self) -> None:
        self.lab.settle(self.claim)

    def found(self, answer) -> list[tuple[str, str]]:
        """Decision and disposition of the joined row."""
        return [(t.decision, t.disposition.value) for t in answer.decisions if t.submission_id == self.guest]


@pytest.mark.parametrize(
    ("last", "decision", "state"),
    [
        ("take", ("RevertJoining", "repaired"), "ready"),
        ("append", ("RepairJoinMarker", "repaired"), "joined"),
        ("mark", ("AwaitHostSettlement", "deferred"), "joined"),
        ("cover", ("AwaitHostSettlement", "deferred"), "joined"),
        ("settle", ("SettleJoinedWithHost", "repaired"), "settled"),
    ],
)
def test_every_step_of_a_join_has_its_repair(lab, last, decision, state):
    """The host's claim, or its settlement, decides; whatever is repaired is repaired once."""
    seam = Seam(lab).upto(last)
    assert seam.found(lab.recover()) == [decision]
    assert lab.state(seam.guest) == state
    again = seam.found(lab.recover(attempt="recovery-2"))
    assert again == ([] if state in ("ready", "settled") else [("AwaitHostSettlement", "deferred")])
    assert lab.kinds(seam.guest).count("SubmissionSettled") == (1 if state == "settled" else 0)


@pytest.mark.parametrize("last", ["take", "append"])
def test_a_living_host_keeps_what_it_took(lab, last):
    """Without its claim nothing is marked and nothing given back."""
    seam = Seam(lab).upto(last, lose=False)
    ((_, disposition),) = seam.found(lab.recover())
    assert (disposition, lab.state(seam.guest)) == ("deferred", "joining")
    assert lab.snapshot(seam.guest).host_submission_id == seam.host


def test_input_found_on_the_second_read_is_marked_not_given_back(lab):
    """The host appended it between the two reads: it is consumed."""
    seam = Seam(lab).upto("take")
    store, seen = lab.store, []

    def late(request, submission_id, *, now):
        if not seen:
            seen.append(seam._append())
            lab.pass_lease()
        return store.claim_submission(request, submission_id, now=lab.clock.now())

    answer = lab.recover(store=Proxied(store, claim_submission=late), timeout_ms=10_000_000)
    assert seam.found(answer) == [("RevertJoining", "repaired")]
    assert lab.state(seam.guest) == "joined"


def test_input_that_the_host_never_answered_goes_back_when_it_settled(lab):
    """It is delivered later, from the log, by a Run of its own."""
    seam = Seam(lab).upto("mark")
    lab.settle(seam.claim)
    assert seam.found(lab.recover()) == [("SettleJoinedWithHost", "repaired")]
    assert (lab.state(seam.guest), lab.snapshot(seam.guest).host_submission_id) == ("ready", None)
    claim = lab.claim("attempt-2")
    assert (claim.submission_id, claim.input) == (seam.guest, "hi")
    assert lab.kinds(seam.guest).count("UserInputRecorded") == 1


@pytest.mark.parametrize("last", ["take", "append"])
def test_behind_a_settled_host_uncovered_input_needs_no_claim(lab, last):
    """A guarded revert without a token."""
    seam = Seam(lab).upto(last)
    lab.settle(seam.claim)
    ((_, disposition),) = seam.found(lab.recover())
    assert (disposition, lab.state(seam.guest)) == ("repaired", "ready")


def test_covered_input_of_a_settled_host_is_not_given_back(lab):
    """It was answered: giving it back would deliver it twice."""
    seam = Seam(lab).upto("append")
    seam._cover()
    lab.settle(seam.claim)
    assert seam.found(lab.recover()) == [("RepairJoinMarker", "deferred")]
    assert lab.state(seam.guest) == "joining"


def test_a_joining_row_without_a_host_is_left_alone(lab):
    """Only another version could have written it."""
    seam = Seam(lab).upto("take")
    claims = ShortClaims(
        lab.store, Watch(lab.clock), producer_id="p", attempt_id="a", ended_attempts=(), deployment_id=""
    )
    repairs = Repairs(claims, reconcilers=no_reconcilers, retry_supported=always_supported, permits=set())
    snapshot = lab.snapshot(seam.guest)
    nobody = type(snapshot)(
        **{
            name: getattr(snapshot, name)
            for name in snapshot.__dataclass_fields__
            if name not in ("host_submission_id", "extra")
        }
    )
    assert repairs.execute(nobody, claims.evidence(nobody), d.RevertJoining()) == "deferred"
    assert lab.state(seam.guest) == "joining"


def test_an_aborted_host_settles_what_it_took_with_itself(lab):
    """Covered input shares the outcome, uncovered input goes back, in the transaction that settles the host."""
    seam = Seam(lab).upto("cover", lose=False)
    third = lab.submit("k3")
    lab.store.claim_joining(seam.claim, 1, now=lab.clock.now())
    lab.respond(seam.claim, declared("c1"), turn=3)
    lab.pass_lease()
    lab.abort(seam.host)
    lab.recover()
    assert [lab.state(sid) for sid in (seam.host, seam.guest, third)] == ["settled", "settled", "ready"]
    outcome = lab.evidence(seam.guest).settlement_outcome
    assert outcome == lab.evidence(seam.host).settlement_outcome == "aborted"


def test_a_repaired_marker_leaves_the_rows_own_audit(lab):
    """Under the host's claim, and named after the row that was repaired."""
    seam = Seam(lab).upto("append")
    lab.recover()
    audits = [record.record_id for record in lab.store.run_records(seam.host) if record.kind == "RepairAnnotated"]
    assert audits == [ids.repair_record(seam.guest, "RepairJoinMarker")]
