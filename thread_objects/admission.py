"""Who may be admitted, and what became of a key.

Rule guarded: rules are asked for new keys only, inside the admission's own transaction; absence is proven or it is
not claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thread_objects.contract.messages import AdmissionFacts, Receipt, SubmissionStatus, Submit

if TYPE_CHECKING:
    from thread_objects.ports import Tail


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """Proof of absence: nothing was admitted under the key. Only this permits a new attempt to admit."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The key's Submission, as it stands."""

    receipt: Receipt
    status: SubmissionStatus
    facts: AdmissionFacts | None = None


@dataclass(frozen=True, slots=True)
class Indeterminate:
    """Nobody can say now. The reason has at most 4 096 characters."""

    reason: str


AdmissionLookup = NotAdmitted | Admitted | Indeterminate


@dataclass(frozen=True, slots=True)
class AdmissionQuestion:
    """A new admission as a policy judges it, with the Thread as it stands under its lock."""

    submit: Submit
    nonterminal: int
    queue_last: int
    tail: Tail

    @property
    def facts(self) -> AdmissionFacts:
        """What the admission says besides its input."""
        return self.submit.facts or AdmissionFacts()


AdmissionJudge = Callable[[AdmissionQuestion], None]
"""Lets an admission pass, or raises `AdmissionPolicyError`. Runs inside the transaction: no I/O, no waiting."""


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Who may be admitted. Asked for new keys only: a key that is known answers as the first time.

    `policy` judges every admission, `fence` those that carry one; whatever else than `AdmissionPolicyError` one of
    them raises refuses the admission as `unavailable`. Without `fence` an admission that carries one is refused.
    """

    policy: AdmissionJudge | None = None
    fence: AdmissionJudge | None = None
