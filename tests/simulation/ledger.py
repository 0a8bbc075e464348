"""The SQL side of the simulation: rows, ownership with epochs, faults, marks, and what lanes still hold.

Each method is one transaction. It outlives every crash of the workflow, which is the point of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thread_objects.contract.limits import LEASE_MS
from thread_objects.contract.states import Disposition, SubmissionState
from thread_objects.contract.views import Decided, Fault, Recovered, RowView, Survey, ThreadView
from thread_objects.core.faults import retry_delay_ms

READY, APPLIED, SUSPENDED, UNKNOWN = (
    SubmissionState.READY,
    SubmissionState.INPUT_APPLIED,
    SubmissionState.SUSPENDED,
    SubmissionState.UNKNOWN,
)
WAITING = (SUSPENDED, UNKNOWN)
PAGE_ROWS = 1


class Away(Exception):
    """Storage is out of reach."""


class Fenced(Exception):
    """The epoch of the writer is no longer the Thread's."""


@dataclass(slots=True)
class Row:
    """One nonterminal Submission."""

    sid: str
    sequence: int
    state: SubmissionState = READY
    abort: bool = False

    def view(self) -> RowView:
        return RowView(
            submission_id=self.sid,
            queue_sequence=self.sequence,
            state=self.state,
            agent_id="agent",
            abort_requested=self.abort,
        )

    @property
    def skipped(self) -> bool:
        """Uncertain work that the head rule steps over."""
        return self.state is UNKNOWN and not self.abort


@dataclass(slots=True)
class Owner:
    """Who holds a Thread, for how long, and for which row."""

    attempt_id: str
    epoch: int
    sid: str
    lease_until: int


class Ledger:
    """One object's tables. `commits` counts transactions that changed something."""

    def __init__(self, threads: tuple[str, ...]) -> None:
        self.rows: dict[str, list[Row]] = {thread: [] for thread in threads}
        self.sources: dict[str, str] = {}
        self.settled: dict[str, int] = {}
        self.owners: dict[str, Owner] = {}
        self.epochs: dict[str, int] = dict.fromkeys(threads, 0)
        self.faults: dict[str, tuple[int, int]] = {}
        self.duties: set[str] = set()
        self.mark: int | None = None
        self.lanes: dict[str, int] = {}
        # Application alarms whose handler was reached, by name and instant.
        self.delivered: set[tuple[Any, int]] = set()
        self.sequence = 0
        self.commits = 0
        self.away = False

    # --- reads ----------------------------------------------------------------------------------------------------

    def reach(self) -> None:
        """Every transaction begins with this."""
        if self.away:
            raise Away

    def head(self, thread: str) -> Row | None:
        """The lowest row behind the skipped ones."""
        for row in self.rows[thread]:
            if row.state is not UNKNOWN or row.abort:
                return row
        return None

    def view(self, thread: str) -> ThreadView:
        """The folded view of one Thread."""
        rows = self.rows[thread]
        head = self.head(thread)
        unknown = quiet = busy = 0
        for row in rows:
            if row.skipped:
                unknown += 1
            elif row is not head:
                if row.state in (READY, SUSPENDED) and not row.abort:
                    quiet += 1
                else:
                    busy += 1
        fault = self.faults.get(thread)
        return ThreadView(
            thread_id=thread,
            nonterminal=len(rows),
            head=head and head.view(),
            unknown=unknown,
            quiet=quiet,
            busy=busy,
            fault_retry_at=fault and fault[0],
        )

    def survey(self) -> Survey:
        """All Threads with rows, and those with duties."""
        self.reach()
        threads = tuple(self.view(thread) for thread in sorted(self.rows) if self.rows[thread])
        return Survey(threads=threads, duties=tuple(sorted(self.duties)))

    def find(self, sid: str) -> tuple[str, Row] | None:
        """A nonterminal row and its Thread."""
        for thread, rows in self.rows.items():
            for row in rows:
                if row.sid == sid:
                    return thread, row
        return None

    # --- batches --------------------------------------------------------------------------------------------------

    def apply(self, batch_id: str, mark: int, items: tuple[Item, ...]) -> tuple[ItemAnswer, ...]:
        """One batch: its items in order and its mark, in one transaction."""
        self.reach()
        self.commits += 1
        self.mark = mark
        return tuple(self._apply(f"{batch_id}/{item.n}", item) for item in items)

    def _apply(self, source: str, item: Item) -> ItemAnswer:  # noqa: PLR0911 - one per kind
        key = f"{item.kind}:{item.what}"
        known = self.sources.get(key)
        if known is not None:
            return ItemAnswer(item.n, progress=known == source)
        if item.kind == "submit":
            self.sources[key] = source
            self.sequence += 1
            self.rows[item.thread].append(Row(item.what, self.sequence))
            return ItemAnswer(item.n, progress=True)
        if item.kind == "duty":
            self.sources[key] = source
            self.duties.add(item.thread)
            return ItemAnswer(item.n, progress=True)
        if item.kind == "lane":
            self.sources[key] = source
            self.lanes[item.thread] = self.lanes.get(item.thread, 0) + 1
            return ItemAnswer(item.n, progress=True, lane=item.thread)
        found = self.find(item.what)
        if found is None:
            return ItemAnswer(item.n, refused=True)
        thread, row = found
        if item.kind == "abort":
            self.sources[key] = source
            row.abort = True
            owner = self.owners.get(thread)
            return ItemAnswer(item.n, progress=True, cancel=owner is not None and owner.sid == row.sid)
        if row.state not in WAITING:
            return ItemAnswer(item.n, refused=True)
        row.state = APPLIED
        return ItemAnswer(item.n, progress=True)

    def clear_mark(self, through: int) -> None:
        """Forget a mark that is not newer."""
        self.reach()
        if self.mark is not None and self.mark <= through:
            self.mark = None

    # --- claims ---------------------------------------------------------------------------------------------------

    def _owned(self, thread: str, ended: tuple[str, ...], now: int) -> bool:
        owner = self.owners.get(thread)
        return owner is not None and owner.attempt_id not in ended and owner.lease_until > now

    def begin(self, thread: str, attempt_id: str, ended: tuple[str, ...], now: int) -> Owner | None:
        """Claim the head and make its input canonical. None: nothing claimable, or somebody holds it."""
        self.reach()
        head, owner = self.head(thread), self.owners.get(thread)
        if owner is not None and owner.attempt_id == attempt_id:
            # A head start under the same id: adopted with the claim it has.
            return owner
        if head is None or self._owned(thread, ended, now):
            return None
        if head.state in WAITING and not head.abort:
            return None
        self.commits += 1
        if head.state is READY and not head.abort:
            head.state = APPLIED
        self.epochs[thread] += 1
        owner = Owner(attempt_id, self.epochs[thread], head.sid, now + LEASE_MS)
        self.owners[thread] = owner
        return owner

    def _fence(self, thread: str, epoch: int) -> Owner:
        self.reach()
        owner = self.owners.get(thread)
        if owner is None or owner.epoch != epoch:
            raise Fenced
        self.commits += 1
        return owner

    def turn(self, thread: str, epoch: int, now: int) -> bool:
        """Commit a Turn. True when the owned row has an abort intent."""
        owner = self._fence(thread, epoch)
        owner.lease_until = now + LEASE_MS
        found = self.find(owner.sid)
        return found is not None and found[1].abort

    def leave(self, thread: str, epoch: int, mark_through: int, state: SubmissionState | None = None) -> None:
        """Hand the Thread back; `state` suspends the row or leaves it unknown."""
        owner = self._fence(thread, epoch)
        found = self.find(owner.sid)
        if state is not None and found is not None:
            found[1].state = state
        del self.owners[thread]
        self.clear_mark(mark_through)

    def finish(self, thread: str, epoch: int, mark_through: int) -> str:
        """Settle the owned row."""
        owner = self._fence(thread, epoch)
        self._settle(thread, owner.sid)
        del self.owners[thread]
        self.clear_mark(mark_through)
        return owner.sid

    def _settle(self, thread: str, sid: str) -> None:
        self.rows[thread] = [row for row in self.rows[thread] if row.sid != sid]
        self.settled[sid] = self.settled.get(sid, 0) + 1
        if self.settled[sid] > 1:
            raise AssertionError(f"{sid} was settled twice")

    # --- recovery -------------------------------------------------------------------------------------------------

    def recover(
        self, thread: str, after: int, ended: tuple[str, ...], now: int, *, whole: bool, fails: bool
    ) -> Recovered:
        """Recover a Thread, or one page of it: settle what was aborted, look at everything that is not fresh."""
        self.reach()
        stored = self.faults.get(thread)
        if stored is not None and stored[0] > now:
            return Recovered(thread_id=thread, fault=_fault(thread, stored), retry_at=stored[0])
        if fails:
            attempts = 0 if stored is None else stored[1]
            stored = self.faults[thread] = (now + retry_delay_ms(attempts), attempts + 1)
            self.commits += 1
            return Recovered(thread_id=thread, recovered=1, fault=_fault(thread, stored), retry_at=stored[0])
        aged = [row for row in self.rows[thread] if row.sequence > after and (row.state is not READY or row.abort)]
        page = aged if whole else aged[:PAGE_ROWS]
        more = not whole and len(aged) > PAGE_ROWS
        owner = self.owners.get(thread)
        owned = owner.sid if owner is not None and self._owned(thread, ended, now) else None
        decided = tuple(self._decide(thread, row, owned) for row in page)
        if not more:
            if stored is not None:
                del self.faults[thread]
            self.duties.discard(thread)
        if decided or stored is not None:
            self.commits += 1
        return Recovered(
            thread_id=thread,
            recovered=len(decided),
            repaired=any(told.disposition is Disposition.REPAIRED for told in decided),
            decisions=decided,
            cursor=str(page[-1].sequence) if more else None,
        )

    def _decide(self, thread: str, row: Row, owned: str | None) -> Decided:
        decision, disposition = "ResumeFromTurnBoundary", Disposition.DEFERRED
        if row.sid == owned:
            decision = "AwaitOwner"
        elif row.abort:
            decision, disposition = "SettleAborted", Disposition.REPAIRED
            self.owners.pop(thread, None) if self._owner_of(thread) == row.sid else None
            self._settle(thread, row.sid)
        elif row.state is UNKNOWN:
            decision, disposition = "AwaitUnknownResolution", Disposition.UNKNOWN
        elif row.state is SUSPENDED:
            decision = "AwaitApproval"
        return Decided(submission_id=row.sid, decision=decision, disposition=disposition)

    def _owner_of(self, thread: str) -> str | None:
        owner = self.owners.get(thread)
        return None if owner is None else owner.sid

    # --- lanes ----------------------------------------------------------------------------------------------------

    def serve(self, lane: str, most: int) -> int:
        """One wave of a lane; answers what is left."""
        self.reach()
        self.commits += 1
        self.lanes[lane] = max(0, self.lanes.get(lane, 0) - most)
        return self.lanes[lane]

    def untouched(self, thread: str) -> bool:
        """A head that is ready and that nobody holds: the sweep for late heads finds it."""
        head = self.head(thread)
        return head is not None and head.state is READY and thread not in self.owners

    # --- what the laws ask ----------------------------------------------------------------------------------------

    def owed(self, unbound: frozenset[str]) -> list[str]:
        """Threads that this object must move by itself. `unbound`: rows whose binding wait it holds.

        A fault is no work of its own: a zombie may leave one on a Thread that only waits.
        """
        found = []
        for thread, rows in self.rows.items():
            head = self.head(thread)
            if (
                thread in self.duties
                or any(row.abort for row in rows)
                or (head is not None and head.state not in WAITING and head.sid not in unbound)
            ):
                found.append(thread)
        return found


@dataclass(frozen=True, slots=True)
class Item:
    """One mutation in a batch. `what` names the Submission (or the fact); `thread` is the lane for kind `lane`."""

    n: int
    kind: str
    thread: str
    what: str


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """How one item fared."""

    n: int
    progress: bool = False
    refused: bool = False
    cancel: bool = False
    lane: str | None = None


def _fault(thread: str, stored: tuple[int, int]) -> Fault:
    return Fault(
        thread_id=thread,
        phase="recovery",
        reason="failure",
        error_tag="E",
        operation="read",
        first_failed_at=0,
        last_failed_at=0,
        retry_at=stored[0],
        attempts=stored[1],
    )
