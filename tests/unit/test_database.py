"""ThreadDatabase asks before it reads or writes, whatever it is told to do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storage import StoreLimits, open_store
from tests.contract.archived import lived_in
from tests.contract.world import THREAD, World
from thread_objects import Settings
from thread_objects.authorising import OperationRequest
from thread_objects.contract.operations import Operation
from thread_objects.contract.retention import RetentionPolicy
from thread_objects.database import ThreadDatabase, before
from thread_objects.errors import ConfigError, OperationDenied

POLICY = RetentionPolicy(mode="delete", before=2**52, thread_id=THREAD)
ATTEMPTS: dict[Operation, Callable[[ThreadDatabase, list[str], Path], object]] = {
    Operation.EXPORT: lambda database, _archive, _folder: list(database.export(THREAD)),
    Operation.IMPORT: lambda database, archive, _folder: database.import_thread(archive),
    Operation.RETAIN: lambda database, _archive, _folder: database.retain(POLICY),
    Operation.RESTORE_FENCE: lambda database, _archive, _folder: database.fence_restored(),
    Operation.REBUILD_WORK: lambda database, _archive, _folder: database.rebuild_work(THREAD),
}


@pytest.mark.parametrize("operation", ATTEMPTS)
def test_denied_operation_touches_nothing(operation: Operation, tmp_path: Path):
    """The authoriser learns operation, caller and Thread; what it denies, or fails to answer, does not happen (F25)."""
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    world = World(open_store(url, limits=StoreLimits(), synchronous="OFF"), url)
    lived_in(world)
    archive = list(world.store.export(THREAD))
    world.store.close()
    asked: list[OperationRequest] = []

    def deny(request: OperationRequest) -> str:
        asked.append(request)
        return "not yours"

    for authoriser in (deny, lambda request: 1 / 0):
        settings = Settings(database_url=url, caller="ada")
        with ThreadDatabase.open(settings, authoriser=authoriser) as database:
            with pytest.raises(OperationDenied) as denied:
                ATTEMPTS[operation](database, archive, tmp_path)
            assert denied.value.operation == operation.value
    thread = None if operation is Operation.RESTORE_FENCE else THREAD
    assert asked == [OperationRequest(operation, "ada", thread)]
    with ThreadDatabase.open(database_url=url) as database:
        assert list(database.export(THREAD)) == archive


def test_database_must_be_named():
    """Without a URL there is nothing to work on; days become an instant that never lies before time."""
    with pytest.raises(ConfigError):
        ThreadDatabase.open()
    assert before(10**9) == 0
    assert before(1) < before(0)
