"""kill -9 around an import and around retention: each transaction is there whole, or not at all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from storage import StoreLimits, open_store
from tests.architecture.tree import ROOT
from tests.contract.archived import lived_in
from tests.contract.world import THREAD, World
from thread_objects.contract.activities import ReadRequest
from thread_objects.contract.retention import RetentionPolicy
from thread_objects.database import ThreadDatabase

POLICY = RetentionPolicy(mode="delete", before=2**52)


OPENED = """
import sys
from pathlib import Path
from storage import StoreLimits, open_store
store = open_store(sys.argv[1], limits=StoreLimits(), pool_size=1)
"""
IMPORT = """
from thread_objects.archives import ArchiveFile
store.import_thread(ArchiveFile(Path(sys.argv[2])), now=1)
"""
RETAIN = """
from thread_objects.contract.retention import RetentionCursor, RetentionPolicy
cursor = RetentionCursor()
while cursor is not None:
    cursor = store.retain(RetentionPolicy(mode="delete", before=2**52), cursor, now=1).cursor
"""


def killed(failpoint: str, program: str, *arguments: str) -> None:
    """Run a program that dies at a failpoint."""
    ran = subprocess.run(
        [sys.executable, "-c", OPENED + program, *arguments],
        cwd=ROOT,
        env={**os.environ, "THREADS_FAILPOINT": failpoint},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()


@pytest.mark.parametrize(
    ("database_kind", "failpoint", "there"),
    [
        ("postgresql", "import:before-commit", False),
        ("sqlite", "import:after", True),
    ],
    indirect=["database_kind"],
)
def test_kill_around_an_import_leaves_all_or_nothing(world: World, tmp_path: Path, failpoint: str, there: bool):
    """What was cut off is imported again; what was done is refused as there already, and is whole."""
    source = World(open_store(f"sqlite:///{tmp_path / 'source.db'}", limits=StoreLimits(), synchronous="OFF"), "")
    lived_in(source)
    file = tmp_path / "thread.jsonl"
    ThreadDatabase(source.store).export_file(THREAD, file)
    source.store.close()
    killed(failpoint, IMPORT, world.url, str(file))
    counted = world.store._database.read(lambda tx: tx.one("SELECT COUNT(*) FROM threads", {}))
    assert counted == (int(there),)
    database = ThreadDatabase(world.store)
    if not there:
        database.import_thread(file)
    assert "".join(database.export(THREAD)) == file.read_text()


@pytest.mark.parametrize(
    ("database_kind", "failpoint", "submissions", "base"),
    [
        ("postgresql", "retention:before-redact-commit", 2, 0),
        ("sqlite", "retention:before-delete-commit", 0, 0),
    ],
    indirect=["database_kind"],
)
def test_kill_in_retention_leaves_whole_submissions(world: World, failpoint: str, submissions: int, base: int):
    """A Submission has its content or none of it, a log begins at a batch; the next run finishes the work."""
    sids = [world.run_through(key).submission_id for key in ("k1", "k2")]
    killed(failpoint, RETAIN, world.url)

    def whole() -> int:
        found = [world.store.read(ReadRequest(submission_id=sid)).status for sid in sids]
        kept = [status for status in found if not status.settlement.redacted]
        assert all(status.settlement.result == "done" for status in kept)
        return len(kept)

    assert whole() == submissions
    assert len(world.store.records(THREAD, after=0, limit=99)) == 9 - base
    with ThreadDatabase.open(database_url=world.url) as database:
        assert database.retain(POLICY).deleted == 9
    assert whole() == 0
