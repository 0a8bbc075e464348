"""Verbs that work on the database itself: no Temporal server, one exit code for each end."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from storage import StoreLimits, open_store
from tests.contract.archived import lived_in
from tests.contract.world import THREAD, World
from thread_objects.cli.exits import Exit

Threads = Callable[..., Result]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A database with a Thread in it."""
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    world = World(open_store(url, limits=StoreLimits(), synchronous="OFF"), url)
    lived_in(world)
    return world


def test_thread_moves_through_a_file(threads: Threads, world: World, tmp_path: Path):
    """Export, check, import; the second import is refused, since the Thread is there."""
    file, other = tmp_path / "thread.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    told = threads("export", THREAD, "-o", str(file), "--json", "--database-url", world.url)
    assert told.exit_code == Exit.OK
    report = json.loads(told.stdout)
    assert (report["threadId"], report["submissions"]) == (THREAD, 6)
    assert json.loads(threads("import", str(file), "--check", "--json").stdout) == report
    assert list(tmp_path.glob(".thread.jsonl*")) == []
    first = threads("import", str(file), "--database-url", other)
    assert first.exit_code == Exit.OK
    assert report["archiveDigest"] in first.stdout
    assert threads("export", THREAD, "--database-url", other).stdout == file.read_text()
    second = threads("import", str(file), "--database-url", other, "--json")
    assert second.exit_code == Exit.REFUSED
    assert json.loads(second.stderr)["fields"]["reason"] == "not-empty"


def test_archive_comes_through_a_pipe(threads: Threads, world: World, tmp_path: Path):
    """`-` is standard input; the object that owns the Thread can be another one."""
    archive = threads("export", THREAD, "--database-url", world.url).stdout
    other = f"sqlite:///{tmp_path / 'other.db'}"
    told = threads("import", "-", "--object", "host", "--database-url", other, "--json", stdin=archive)
    assert json.loads(told.stdout)["objectId"] == "host"


def test_imported_thread_goes_where_this_installation_places_it(
    threads: Threads, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Which object owned a Thread at its source means nothing where the placement is another one."""
    archive = threads("export", THREAD, "--database-url", world.url).stdout
    monkeypatch.setenv("THREADS_PLACEMENT", "hash:1")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    told = threads("import", "-", "--database-url", other, "--json", stdin=archive)
    assert json.loads(told.stdout)["objectId"] == "host-0-of-1"


def test_what_is_not_there_is_said(threads: Threads, world: World, tmp_path: Path):
    """No database named: a setting is missing. No file, no Thread, half an archive: each told, nothing created."""
    assert threads("export", THREAD).exit_code == Exit.USAGE
    missing = f"sqlite:///{tmp_path / 'missing.db'}"
    assert threads("export", THREAD, "--database-url", missing).exit_code == Exit.OUT_OF_REACH
    assert not (tmp_path / "missing.db").exists()
    target = tmp_path / "nobody.jsonl"
    assert threads("export", "nobody", "-o", str(target), "--database-url", world.url).exit_code == Exit.REFUSED
    assert not target.exists()
    assert threads("import", str(tmp_path / "no.jsonl"), "--check").exit_code == Exit.REFUSED
    target.write_text(threads("export", THREAD, "--database-url", world.url).stdout[:-200])
    assert threads("import", str(target), "--check").exit_code == Exit.REFUSED
    nowhere = tmp_path / "no" / "where.jsonl"
    assert threads("export", THREAD, "-o", str(nowhere), "--database-url", world.url).exit_code == Exit.REFUSED


def test_retention_is_counted_before_it_is_done(threads: Threads, world: World):
    """A dry run tells the same figures as the run; what is open is left alone; a second run finds nothing."""
    url = ("--database-url", world.url)
    told = json.loads(threads("retain", "redact", "--days", "0", "--dry-run", "--json", *url).stdout)
    assert (told["dryRun"], told["submissions"]) == (True, 3)
    done = json.loads(threads("retain", "redact", "--days", "0", "--json", *url).stdout)
    assert done == {**told, "dryRun": False}
    again = threads("retain", "delete", "--days", "0", "--thread", THREAD, *url)
    assert again.exit_code == Exit.OK
    assert "records deleted" in again.stdout
    assert threads("retain", "shred", "--days", "0", *url).exit_code == Exit.USAGE
    assert threads("retain", "redact", *url).exit_code == Exit.USAGE


def test_a_work_inventory_is_rebuilt(threads: Threads, world: World):
    """It says how many passes it took; a Thread that is not there is refused."""
    told = threads("rebuild-work", THREAD, "--json", "--database-url", world.url)
    assert json.loads(told.stdout)["threadId"] == THREAD
    assert json.loads(told.stdout)["passes"] >= 1
    assert "passes" in threads("rebuild-work", THREAD, "--database-url", world.url).stdout
    assert threads("rebuild-work", "nobody", "--database-url", world.url).exit_code == Exit.REFUSED


def test_restored_database_is_fenced(threads: Threads, world: World):
    """The verb tells how many Threads and objects it met, and may be repeated."""
    for _ in range(2):
        told = threads("restore-fence", "--json", "--database-url", world.url)
        assert json.loads(told.stdout) == {"threads": 1, "objects": 1}
    assert "objects marked" in threads("restore-fence", "--database-url", world.url).stdout
