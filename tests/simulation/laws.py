"""What must hold after every step, whatever happened before it. Cheap enough to be asked each time.

When the slot is the minimum of the rows:
- at the end of every pass exactly: `max(now + M, earliest row)`, or empty when no row has a deadline (asked in
  `Shell`, in the stretch of the finish);
- between passes from above: changes keep the earlier of slot and `max(now + M, earliest row)`, so the slot is never
  later than that at the last change, and never empty while a row has a deadline; it may be earlier than the earliest row;
- inside a pass not at all: a wave's completion and a checkpoint leave it alone. It is not empty while native work is
  owed, because a crash may end the pass at any instant.
"""

from __future__ import annotations

from tests.simulation.server import Server
from tests.simulation.shell import Broken, Shell

THREAD_MISSES_PER_THREAD = 2
LANE_MISSES = 6


def check(server: Server) -> None:
    """Raises `Broken` for the first law that does not hold."""
    shell = server.shell
    _generations(shell)
    _floors(shell)
    _slot(shell)
    _fairness(server, shell)
    if not server.open and not server.can_deliver():
        _awake(server, shell)
        if shell.event is None and not shell.inbox and shell.hook is None:
            _at_rest(server, shell)


def _generations(shell: Shell) -> None:
    record = shell.state.record
    if record.processed > record.dirty:
        raise Broken(f"processed {record.processed} is past dirty {record.dirty}")
    if record.dirty > record.processed and shell.state.alarm.deadline is None:
        raise Broken("work is owed and no alarm is armed")


def _floors(shell: Shell) -> None:
    for row in shell.state.queue:
        if row.due_at is not None and row.due_at < row.not_before:
            raise Broken(f"{row.id} is due before its floor: {row}")


def _slot(shell: Shell) -> None:
    if shell.event is not None:
        return
    due_at, slot = shell.state.queue.next(), shell.state.alarm.deadline
    if due_at is None:
        return
    if slot is None:
        raise Broken(f"a row is due at {due_at} and the slot is empty")
    if slot > max(due_at, shell.touched_at + shell.config.floor_ms):
        raise Broken(f"the slot {slot} is later than the earliest row {due_at}")


def _fairness(server: Server, shell: Shell) -> None:
    missed = shell.books.missed
    if not missed:
        return
    threads = len(server.ledger.rows)
    for key, count in missed.items():
        most = THREAD_MISSES_PER_THREAD * threads if key.startswith("thread ") else LANE_MISSES
        if count > most:
            raise Broken(f"{key} was passed over {count} times")


def _awake(server: Server, shell: Shell) -> None:
    """Nothing is in flight towards the workflow: whatever it waits for must be on its way, or have a timer."""
    wanted = shell._wanted()
    if wanted is not None:
        if wanted <= server.now and server.timer is None:
            raise Broken(f"the instant {wanted} has passed and nothing happens")
        if server.timer is None or server.timer[1] > wanted:
            raise Broken(f"{wanted} is waited for and the timer is {server.timer}")
    if shell.event is not None and not server.processes:
        raise Broken("a pass runs and waits for nothing")
    if shell.hook is not None and shell.hook[0] not in server.processes:
        raise Broken("the pump waits for a hook that nobody runs")
    if shell.inbox and shell.retry_at is None and shell.hook is None:
        raise Broken("the inbox waits for nothing")


def _at_rest(server: Server, shell: Shell) -> None:
    record, ledger = shell.state.record, server.ledger
    if record.dirty > record.processed or (ledger.mark is not None and ledger.mark > shell.applied_through):
        # Armed, as checked above; or the sweep will find it.
        return
    owed = ledger.owed(frozenset(wait.submission_id for wait in record.binding_waits))
    owed = [thread for thread in owed if thread not in server.haunted or not ledger.untouched(thread)]
    if owed:
        raise Broken(f"{owed} are owed work, everything is acknowledged, and no mark tells of it")
    for lane, items in ledger.lanes.items():
        row = shell.state.queue.get(lane)
        if items and (row is None or row.due_at is None):
            raise Broken(f"lane {lane} holds {items} and has no deadline")


def note_hungry(server: Server) -> None:
    """Threads that an Attempt would take at once are counted from now on, others no more."""
    shell, ledger = server.shell, server.ledger
    missed = shell.books.missed
    waits = {wait.submission_id for wait in shell.state.record.binding_waits}
    for thread in ledger.rows:
        head = ledger.head(thread)
        hungry = (
            head is not None
            and head.state == "ready"
            and head.sid not in waits
            and thread not in ledger.owners
            and thread not in ledger.faults
            and thread not in ledger.duties
            and len(ledger.rows[thread]) == sum(row.state == "ready" and not row.abort for row in ledger.rows[thread])
        )
        key = f"thread {thread}"
        if not hungry:
            missed.pop(key, None)
        elif key not in missed:
            missed[key] = 0


def check_end(server: Server) -> None:
    """At rest after a calm: every accepted Submission settled (once, says the ledger), and nothing is owed or armed."""
    ledger, state = server.ledger, server.shell.state
    accepted = {key.removeprefix("submit:") for key in ledger.sources if key.startswith("submit:")}
    if set(ledger.settled) != accepted:
        raise Broken(f"never settled: {sorted(accepted - set(ledger.settled))}")
    missed = [name for name, run_at in server.alarms.items() if (name, run_at) not in ledger.delivered]
    left = {
        "alarms that nobody was told of": missed,
        "application alarms": len(server.shell.maintenance.applications),
        "rows": [rows for rows in ledger.rows.values() if rows],
        "duties": ledger.duties,
        "owners": ledger.owners,
        "lane items": [lane for lane, items in ledger.lanes.items() if items],
        "alarm": state.alarm.deadline,
        "row deadline": state.queue.next(),
        "generation": state.record.dirty - state.record.processed,
        "nonterminal": state.record.nonterminal,
    }
    for what, value in left.items():
        if value:
            raise Broken(f"at rest, and still: {what} {value}")
