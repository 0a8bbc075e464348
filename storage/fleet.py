"""The fleet: worker processes that said they live, and the order of deployments."""

from .engine import Transaction


def deployment_order(tx: Transaction, registry_key: str, *, now: int) -> int:
    """The integer of a registry key: allocated once, larger for each new key."""
    key = {"registry_key": registry_key}
    row = tx.one("SELECT number FROM deployments WHERE registry_key = :registry_key", key)
    if row is None:
        # Two first workers of two keys collide on the number; the loser runs again and takes the next.
        tx.run(
            "INSERT INTO deployments (registry_key, number, first_seen_at)"
            " SELECT :registry_key, COALESCE(MAX(number), 0) + 1, :now FROM deployments",
            {**key, "now": now},
        )
        row = tx.one("SELECT number FROM deployments WHERE registry_key = :registry_key", key)
    return int(row[0]) if row is not None else 0


def seen(tx: Transaction, worker: str, *, host: str, pid: int, now: int) -> None:
    """A worker lives."""
    tx.run(
        "INSERT INTO workers (worker, host, pid, seen_at) VALUES (:worker, :host, :pid, :now)"
        " ON CONFLICT (worker) DO UPDATE SET host = :host, pid = :pid, seen_at = :now",
        {"worker": worker, "host": host, "pid": pid, "now": now},
    )


def gone(tx: Transaction, worker: str) -> None:
    """A worker ended in good order."""
    tx.run("DELETE FROM workers WHERE worker = :worker", {"worker": worker})


def silent_since(tx: Transaction, instant: int) -> list[tuple[str, str, int]]:
    """Workers not seen since an instant, the longest silent first."""
    rows = tx.all(
        "SELECT worker, host, pid FROM workers WHERE seen_at < :instant ORDER BY seen_at, worker",
        {"instant": instant},
    )
    return [(worker, host, pid) for worker, host, pid in rows]
