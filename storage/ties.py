"""The store's operations between Submissions: hosts and joined inputs, parents and children. One transaction each."""

from collections.abc import Sequence

from pydantic import JsonValue

from thread_objects.admission import AdmissionLookup, AdmissionRules, Indeterminate
from thread_objects.contract.limits import INDETERMINATE_REASON_CHARS_MAX
from thread_objects.contract.messages import AbortAnswer, Receipt, Settlement, Submit
from thread_objects.contract.records import Batch
from thread_objects.contract.states import ChildReport
from thread_objects.contract.views import ThreadView
from thread_objects.errors import StoreUnavailable
from thread_objects.ports import Claim, Tail
from thread_objects.ties import Joining, Reservation

from . import aborts, admission, children, handing, joining, parents, reads
from .engine import Database
from .limits import StoreLimits

_NO_BATCH = ""
"""What an admission outside any batch names as its source: a repetition answers that it is one."""


class SqlTies:
    """`Ties` on either database."""

    def __init__(self, database: Database, limits: StoreLimits, rules: AdmissionRules | None = None) -> None:
        self._database = database
        self._limits = limits
        self._rules = rules or AdmissionRules()

    # --- joining ---

    def claim_joining(self, claim: Claim, max_count: int, *, now: int) -> tuple[Joining, ...]:  # noqa: ARG002
        """Take queued input behind the host."""
        return self._database.write(lambda tx: joining.claim(tx, claim, max_count))

    def apply_joined(self, claim: Claim, submission_id: str, batch: Batch, *, now: int) -> Claim:  # noqa: ARG002
        """Append a joining input and mark its row."""
        return self._database.write(lambda tx: joining.apply(tx, claim, submission_id, batch))

    def mark_joined(
        self,
        claim: Claim,
        submission_id: str,
        *,
        position: int | None = None,
        now: int,  # noqa: ARG002
    ) -> None:
        """Mark a row joined whose input is canonical."""
        self._database.write(lambda tx: joining.mark(tx, claim, submission_id, position))

    def revert_joining(
        self,
        submission_id: str,
        host_submission_id: str,
        *,
        token: str | None = None,
        now: int,  # noqa: ARG002
    ) -> bool:
        """Give a row back that its host did not consume."""
        return self._database.write(lambda tx: joining.revert(tx, submission_id, host_submission_id, token))

    def settle_joined(
        self, submission_id: str, host_submission_id: str, *, deployment_id: str, now: int
    ) -> Settlement | None:
        """Settle a joined row as its host settled."""
        return self._database.write(
            lambda tx: joining.settle(tx, submission_id, host_submission_id, deployment_id=deployment_id, now=now)
        )

    # --- children ---

    def admit(self, submit: Submit, object_id: str, *, deployment_id: str, now: int) -> Receipt:
        """Admit one input outside a batch."""
        return self._database.write(
            lambda tx: admission.admit(
                tx,
                submit,
                object_id,
                source=_NO_BATCH,
                limits=self._limits,
                rules=self._rules,
                deployment_id=deployment_id,
                now=now,
            )
        )[0]

    def resolve_admission(self, thread_id: str, principal: str, key: str) -> AdmissionLookup:
        """What became of a key."""
        try:
            return self._database.read(lambda tx: reads.resolve_admission(tx, thread_id, principal, key))
        except StoreUnavailable as error:
            return Indeterminate(error.message[:INDETERMINATE_REASON_CHARS_MAX])

    def record_lineage(self, submission_id: str, batch: Batch, *, now: int) -> None:
        """Make a child's lineage canonical, then ready."""
        self._database.write(lambda tx: children.record_lineage(tx, submission_id, batch, now=now))

    def request_abort(
        self, submission_id: str, *, author: str, reason: str, deployment_id: str, now: int
    ) -> AbortAnswer:
        """Store an abort intent outside a batch."""
        return self._database.write(
            lambda tx: aborts.request_by_id(
                tx, submission_id, author=author, reason=reason, deployment_id=deployment_id, now=now
            )
        )

    def reserve_child(
        self, claim: Claim, reservation_id: str, parent_call_id: str, allocation: JsonValue, *, now: int
    ) -> Reservation:
        """Reserve a slice of the parent's budget."""
        return self._database.write(
            lambda tx: children.reserve(tx, claim, reservation_id, parent_call_id, allocation, now=now)
        )

    def attach_child(
        self,
        claim: Claim,
        reservation_id: str,
        child_submission_id: str,
        *,
        now: int,  # noqa: ARG002
    ) -> Reservation:
        """Bind a child to its reservation."""
        return self._database.write(lambda tx: children.attach(tx, claim, reservation_id, child_submission_id))

    def begin_release(self, reservation_id: str, accounting: JsonValue, *, now: int) -> Reservation:  # noqa: ARG002
        """Freeze a reservation's accounting."""
        return self._database.write(lambda tx: children.begin_release(tx, reservation_id, accounting))

    def release_reservation(self, reservation_id: str, *, now: int) -> Reservation:
        """Give a reservation's budget back."""
        return self._database.write(lambda tx: children.release(tx, reservation_id, now=now))

    def suspend_for_children(
        self, claim: Claim, batch: Batch | None, children: Sequence[str], *, mark_through: int = 0, now: int
    ) -> tuple[bool, ThreadView, Tail]:
        """Suspend until these children are settled."""
        return self._database.write(
            lambda tx: handing.suspend_for_children(
                tx, claim, batch, tuple(children), mark_through=mark_through, now=now
            )
        )

    def record_child_settled(
        self,
        submission_id: str,
        child_submission_id: str,
        *,
        now: int,  # noqa: ARG002
    ) -> ChildReport:
        """Tell a parent that a child settled."""
        return self._database.write(lambda tx: parents.report(tx, submission_id, child_submission_id))
