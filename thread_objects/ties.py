"""What ties Submissions together, as activities ask for it: a host and the inputs it took, a parent and its children.

Part of the `Store` (see `ports`, whose rules hold here too): every method is one transaction and may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from thread_objects.contract.messages import AbortAnswer, Receipt, Settlement, Submit
from thread_objects.contract.records import Batch
from thread_objects.contract.states import ChildReport, ReservationStatus
from thread_objects.contract.views import ThreadView

if TYPE_CHECKING:
    from thread_objects.admission import AdmissionLookup
    from thread_objects.ports import Claim, Tail


@dataclass(frozen=True, slots=True)
class Joining:
    """A queued input that a Run took: `joining` until its canonical append."""

    submission_id: str
    receipt_id: str
    queue_sequence: int
    input: JsonValue


@dataclass(frozen=True, slots=True)
class Reservation:
    """A child's slice of its parent's budget. `replayed`: it stood like this before the call that answers it."""

    reservation_id: str
    parent_submission_id: str
    parent_call_id: str
    status: ReservationStatus
    allocation: JsonValue
    child_submission_id: str | None = None
    accounting: JsonValue = None
    replayed: bool = False


class Ties(Protocol):
    """Joining, child Submissions and the budget that is held for them."""

    # --- joining -------------------------------------------------------------------------------------------------
    def claim_joining(self, claim: Claim, max_count: int, *, now: int) -> tuple[Joining, ...]:
        """Take the contiguous `ready` rows behind the host, in order, at most `max_count` (>= 1): they are `joining`.

        Only inputs of the host's principal and agent that never ran join; another one, an `admitted` row or a child
        stops the prefix. Settled rows, rows of this host and rows with an abort intent are stepped over.
        """

    def apply_joined(self, claim: Claim, submission_id: str, batch: Batch, *, now: int) -> Claim:
        """Append a joining row's input under the host's claim and mark it `joined`."""

    def mark_joined(self, claim: Claim, submission_id: str, *, position: int | None = None, now: int) -> None:
        """Mark a row `joined` whose input is canonical, with its position. Repeating is a no-op.

        `LedgerError` without a canonical input, for another host's row, or for a position that is not the input's.
        """

    def revert_joining(
        self, submission_id: str, host_submission_id: str, *, token: str | None = None, now: int
    ) -> bool:
        """Give a row back that its host did not consume: `ready` again, without a host. False: nothing changed.

        Another recorded host is a no-op, as is a joined row whose host lives or covers it. A host that is not
        settled needs its current token (`OwnershipLost` otherwise). A canonical input goes back only behind a settled
        host whose responses do not cover it: it is delivered from the log, by a Run of its own.
        """

    def settle_joined(
        self, submission_id: str, host_submission_id: str, *, deployment_id: str, now: int
    ) -> Settlement | None:
        """Publish with authority Joined (the host's outcome and diagnostic, its run id, no result) and finalize.

        None: no later response of the host covers the input, and the row is `ready` again. `LedgerError` when the
        host is not canonically settled, or is another one.
        """

    # --- children ------------------------------------------------------------------------------------------------
    def admit(self, submit: Submit, object_id: str, *, deployment_id: str, now: int) -> Receipt:
        """Admit one input outside a batch: the same rules, the same answer to a known key, no mark.

        With a parent link the Thread is materialised and the row stays `admitted` until `record_lineage`.
        """

    def resolve_admission(self, thread_id: str, principal: str, key: str) -> AdmissionLookup:
        """What became of a key. Never raises for a database that is away: that is `Indeterminate`."""

    def record_lineage(self, submission_id: str, batch: Batch, *, now: int) -> None:
        """Append a child's lineage to its own log, if it is not there, and mark the child ready."""

    def request_abort(
        self, submission_id: str, *, author: str, reason: str, deployment_id: str, now: int
    ) -> AbortAnswer:
        """Store an abort intent outside a batch; the first one stays. `SettlementConflict`, `JoinedToHost`."""

    def reserve_child(
        self, claim: Claim, reservation_id: str, parent_call_id: str, allocation: JsonValue, *, now: int
    ) -> Reservation:
        """Reserve a slice of the parent's budget under its live token. An identical one is answered without.

        `ChildReservationConflict` for another allocation, or a second id of the call.
        """

    def attach_child(self, claim: Claim, reservation_id: str, child_submission_id: str, *, now: int) -> Reservation:
        """Bind the child to its reservation: needs the parent's token and `reserved`; the same child is a no-op."""

    def begin_release(self, reservation_id: str, accounting: JsonValue, *, now: int) -> Reservation:
        """Freeze the accounting, once: `releasePending`. The same again is a no-op, another one conflicts."""

    def release_reservation(self, reservation_id: str, *, now: int) -> Reservation:
        """Give the budget back, once. From `reserved` it conflicts; a replay answers the row."""

    def suspend_for_children(
        self, claim: Claim, batch: Batch | None, children: Sequence[str], *, mark_through: int = 0, now: int
    ) -> tuple[bool, ThreadView, Tail]:
        """Suspend WaitingForChild on these child Submissions. First value False: all are settled already, go on."""

    def record_child_settled(self, submission_id: str, child_submission_id: str, *, now: int) -> ChildReport:
        """Tell a parent that a child settled, which needs the child's canonical settlement (`LedgerError`)."""
