"""The examples, served and used as their docstrings say."""

import json
import os
import signal
import time
from pathlib import Path

from tests.workflow.command import BOUND_S, all_gone, threads
from tests.workflow.test_dev import dev
from thread_objects.cli.exits import Exit


def entries(books: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in books.read_text().splitlines()] if books.exists() else []


def test_kill_after_payment_is_reconciled_from_the_books(tmp_path: Path):
    """The worker dies when the bank has paid and not answered: paid once, settled, never Unknown (field case F3)."""
    books = tmp_path / "books.jsonl"
    bank = {"EXAMPLE_BANK_BOOKS": str(books), "EXAMPLE_BANK_ANSWER_S": "30"}
    with dev(tmp_path, "--agents", "examples.payments:registry", **bank) as (_process, settings):
        asked = threads(
            *("submit", "invoices", "payments", "Pay 120 for invoice 7", "--key", "i7"), cwd=tmp_path, **settings
        )
        assert asked.returncode == Exit.OK, asked.stderr
        deadline = time.monotonic() + BOUND_S
        while not entries(books):
            assert time.monotonic() < deadline, "the bank was never asked"
            time.sleep(0.05)
        os.kill(int((tmp_path / ".threads" / "worker.pid").read_text()), signal.SIGKILL)
        settled = threads("wait", "invoices", "key:i7", "--timeout", "60", cwd=tmp_path, **settings)
        log = threads("log", "invoices", cwd=tmp_path, **settings)
    assert settled.returncode == Exit.OK, settled.stdout + settled.stderr
    assert "Paid: 120 for invoice 7." in settled.stdout
    assert [(entry["amount"], entry["invoice"]) for entry in entries(books)] == [(120, 7)]
    assert "unknown" not in log.stdout
    assert all_gone(tmp_path)
