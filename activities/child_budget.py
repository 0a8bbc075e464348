"""Gives back what was held for children. History authorises it, so it needs no claim; each step is done once.

Rule guarded: accounting is frozen before the budget is free again, so a crash in between leaves it held.
"""

from thread_objects import failpoints
from thread_objects.contract.wire import Json
from thread_objects.core.recovery import ZERO_CONSUMED, DelegationView
from thread_objects.core.recovery.delegation import NOT_ADMITTED, RELEASE_PENDING, RESERVED
from thread_objects.errors import ChildReservationConflict
from thread_objects.ports import Store

from .watch import Watch


def childless(view: DelegationView) -> bool:
    """Nobody ever was, or will be, the child of this reservation."""
    never = not view.requested or view.admission == NOT_ADMITTED
    return view.status == RESERVED and view.child is None and not view.started and never


class ChildBudget:
    """The reservations of one Thread's Submissions."""

    def __init__(self, store: Store, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    def settle(self, view: DelegationView) -> bool:
        """Finish a canonical join, or a release that was begun. False when history says neither."""
        if view.reservation is None:
            return False
        if view.status == RELEASE_PENDING:
            return self._free(view.reservation.reservation_id)
        if view.status != RESERVED or not view.joined or view.call is None:
            return False
        return self.release(view.reservation.reservation_id, view.call.accounting)

    def release(self, reservation_id: str, accounting: Json = ZERO_CONSUMED) -> bool:
        """Freeze this accounting and give the budget back. False when another one is frozen."""
        now = self._watch.repairing("begin release")
        try:
            self._store.begin_release(reservation_id, accounting, now=now)
        except ChildReservationConflict:
            return False
        failpoints.hit("subagent:after-release-pending")
        return self._free(reservation_id)

    def _free(self, reservation_id: str) -> bool:
        self._store.release_reservation(reservation_id, now=self._watch.repairing("release reservation"))
        failpoints.hit("subagent:after-release")
        return True
