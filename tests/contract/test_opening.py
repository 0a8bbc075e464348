"""Opening: migrated once, checked each time, refused when it cannot be right."""

import signal
import threading
from pathlib import Path

import psycopg
import pytest
from alembic import op
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlmodel import SQLModel

import storage.tables
from storage import StoreLimits, open_reader, open_store
from storage.migrating import HEAD
from tests.contract.world import THREAD, World
from tests.postgres_server import PostgresServer
from thread_objects.errors import ConfigError, LedgerError, StoreUnavailable

MIGRATIONS = Path(storage.tables.__file__).parent / "migrations"


def engine_of(url: str):
    """SQLAlchemy's engine for a database under test."""
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def test_newest_script_is_the_revision_the_code_expects():
    """The constant that a start compares with is the head of the scripts."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_migrated_schema_is_the_declared_one(world: World):
    """Tables, columns and indexes of the migrations are those of the models."""
    engine = engine_of(world.url)
    with engine.connect() as connection:
        differences = compare_metadata(
            MigrationContext.configure(connection, opts={"compare_type": True}), SQLModel.metadata
        )
    engine.dispose()
    assert differences == []


def test_constraints_are_in_the_database(world: World):
    """States, outcomes and whole ownership are checked by the database itself, on both."""
    world.run_through("k1")
    world.submit("k2")
    claim = world.begin()
    for damage in (
        "UPDATE submissions SET state = 'running'",
        "UPDATE submissions SET outcome = 'completed' WHERE state <> 'settled'",
        "UPDATE submissions SET state = 'suspended' WHERE state <> 'settled'",
        "UPDATE submissions SET state = 'joined' WHERE state <> 'settled'",
        "UPDATE submissions SET thread_id = 'nobody'",
        "UPDATE submissions SET queue_sequence = 1",
        "UPDATE submissions SET idempotency_key = 'k1'",
        "UPDATE threads SET owner_token = NULL",
        "UPDATE threads SET tail_sequence = -1",
        "UPDATE records SET record_id = 'same'",
        "UPDATE records SET thread_id = 'nobody'",
        "UPDATE records SET sequence = 0 WHERE sequence = 1",
    ):
        with pytest.raises(LedgerError):
            world.store._database.write(lambda tx, damage=damage: tx.run(damage, {}))
    assert world.store.renew(claim, now=world.now).token == claim.token


def test_reopening_keeps_everything(database_url: str):
    """A second open migrates nothing and finds what the first one left; what is closed serves nobody."""
    for round_number in range(3):
        store = open_store(database_url, limits=StoreLimits(), synchronous="OFF")
        world = World(store, database_url, arrivals=round_number * 100)
        assert world.run_through(f"k{round_number}").queue_sequence == round_number + 1
        store.close()
        store.close()
        with pytest.raises(StoreUnavailable):
            world.submit("late")
        with pytest.raises(StoreUnavailable):
            store.view(THREAD)


def test_openings_at_once_migrate_once(database_url: str):
    """Many threads open a fresh database together; all succeed."""
    opened: list[object] = []

    def job() -> None:
        try:
            store = open_store(database_url, limits=StoreLimits(), pool_size=1)
            opened.append(store.view(THREAD).nonterminal)
            store.close()
        except Exception as error:
            opened.append(error)

    threads = [threading.Thread(target=job) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert opened == [0] * 6


def test_interrupted_migration_leaves_nothing_behind(database_url: str, monkeypatch: pytest.MonkeyPatch):
    """A start that dies in the middle of a migration is followed by one that succeeds."""
    create_index = op.create_index

    def fail(*args: object, **kwargs: object) -> None:
        if args[0] == "workers_seen":
            raise KeyboardInterrupt
        create_index(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(op, "create_index", fail)
        with pytest.raises(KeyboardInterrupt):
            open_store(database_url, limits=StoreLimits())
    reader = open_reader(database_url)
    with pytest.raises(StoreUnavailable):
        reader.status("sub-1")
    reader.close()
    store = open_store(database_url, limits=StoreLimits())
    assert store.view(THREAD).nonterminal == 0
    store.close()


def test_newer_schema_is_refused(world: World):
    """A database that a newer version migrated is not touched by an older one."""
    world.store._database.write(lambda tx: tx.run("UPDATE alembic_version SET version_num = '9999'", {}))
    with pytest.raises(ConfigError) as refused:
        open_store(world.url, limits=StoreLimits())
    assert refused.value.setting == "database"


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"queue_depth": 0}, "queue_depth"),
        ({"queue_depth": 100_001}, "queue_depth"),
        ({"input_bytes": 0}, "input_bytes"),
        ({"input_bytes": 2_000_001}, "input_bytes"),
        ({"database_bytes": 10_000_000_001}, "database_bytes"),
        ({"database_bytes": 2.5}, "database_bytes"),
        ({"queue_depth": True}, "queue_depth"),
    ],
)
def test_limit_out_of_bounds_opens_nothing(limits: dict[str, int], setting: str):
    """A bound violated at start is a configuration error that names the setting (LIM-015)."""
    with pytest.raises(ConfigError) as refused:
        StoreLimits(**limits)
    assert refused.value.setting == setting


def test_limits_at_their_bounds_are_accepted():
    """Both ends of each bound are inside."""
    assert StoreLimits(queue_depth=1, input_bytes=1, database_bytes=1).queue_depth == 1
    assert StoreLimits(queue_depth=100_000, input_bytes=2_000_000, database_bytes=10_000_000_000).queue_depth == 100_000


def test_wrong_url_or_setting_opens_nothing(tmp_path: Path):
    """What cannot be right is told before a file is created."""
    path = tmp_path / "threads.db"
    for url, options in (
        ("mysql://localhost/x", {}),
        ("threads.db", {}),
        ("sqlite:///", {}),
        ("sqlite:///:memory:", {}),
        (f"sqlite:///{path}", {"synchronous": "MAYBE"}),
        (f"sqlite:///{path}", {"pool_size": 0}),
    ):
        with pytest.raises(ConfigError):
            open_store(url, limits=StoreLimits(), **options)
    assert list(tmp_path.iterdir()) == []


def test_sqlite_paths_may_hold_any_character(tmp_path: Path):
    """A folder that is not there is made; spaces, percent signs and question marks are part of the name."""
    path = tmp_path / "a folder" / "100% sure?.db"
    store = open_store(f"sqlite:///{tmp_path}/a%20folder/100%25%20sure%3F.db", limits=StoreLimits())
    assert World(store, "").submit("k1").queue_sequence == 1
    store.close()
    assert path.exists()


def test_sqlite_is_durable_by_default(tmp_path: Path):
    """Write-ahead log, full synchronisation, foreign keys: the settings that the promises rest on."""
    store = open_store(f"sqlite:///{tmp_path / 'threads.db'}", limits=StoreLimits())
    pragma = lambda name: store._database.write(lambda tx: tx.one(f"PRAGMA {name}", {}))[0]  # noqa: E731
    assert [pragma(name) for name in ("journal_mode", "synchronous", "foreign_keys")] == ["wal", 2, 1]
    store.close()


def test_file_that_is_no_database_is_unavailable(tmp_path: Path):
    """Something else's file is neither read nor overwritten."""
    path = tmp_path / "threads.db"
    path.write_text("this is a letter to my aunt, and long enough to be looked at\n" * 100)
    with pytest.raises(StoreUnavailable):
        open_store(f"sqlite:///{path}", limits=StoreLimits())
    assert path.read_text().startswith("this is a letter")


def test_server_restart_is_survived():
    """Connections die with the server; calls meanwhile are refused typed, later ones succeed by themselves."""
    with PostgresServer() as server:
        url = server.url()
        store = open_store(url, limits=StoreLimits())
        world = World(store, url)
        world.submit("k1")
        reader = open_reader(url)
        assert reader.find(THREAD, "pat", "k1") is not None
        server.stop(signal.SIGQUIT)
        for operation in (lambda: world.submit("k2"), lambda: reader.wait_for_change(1_000)):
            with pytest.raises(StoreUnavailable) as refused:
                operation()
            assert refused.value.retryable
        server.start()
        assert world.submit("k2").queue_sequence == 2
        assert reader.wait_for_change(1_000)
        assert reader.find(THREAD, "pat", "k2") is not None
        store.close()
        reader.close()


def test_options_of_a_postgres_url_are_kept(postgres: PostgresServer):
    """A schema, or a bound of one's own, in the URL stands beside our bounds."""
    url = postgres.url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA mine")
    store = open_store(f"{url}?options=-c%20search_path%3Dmine%20-c%20lock_timeout%3D123", limits=StoreLimits())
    assert World(store, "").submit("k1").queue_sequence == 1
    shown = store._database.read(
        lambda tx: [tx.one(f"SHOW {name}", {}) for name in ("lock_timeout", "statement_timeout")]
    )
    assert shown == [("123ms",), ("1min",)]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM mine.threads").fetchone() == (1,)
    store.close()
    postgres.drop(url)


def test_wrong_password_is_told_without_the_password(postgres: PostgresServer):
    """A refused connection is unavailable, and no error shows the URL."""
    url = postgres.url().replace("postgres@", "postgres:secret-word@").replace("/t", "/missing-t")
    for opening in (lambda: open_store(url, limits=StoreLimits()), lambda: open_reader(url)):
        with pytest.raises(StoreUnavailable) as refused:
            opening()
        assert "secret-word" not in str(refused.value)
