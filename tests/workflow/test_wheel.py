"""What `pip install` puts on a machine, and that it works there."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.temporal_servers import DevServer
from thread_objects import ThreadClient
from thread_objects.cli.processes import Tethered
from thread_objects.contract.states import Outcome

AGENTS = """
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from thread_objects import Registry, bind

registry = Registry([bind(Agent(TestModel(custom_output_text="installed and well")), id="greeter")])
"""


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Run to a good end and return what was printed; nothing of this checkout's environment leaks in."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    ran = subprocess.run(
        list(command), cwd=cwd, env=clean | env, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel and sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of a fresh environment that holds the wheel, and the dependencies of this run."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", built["wheel"], cwd=home)
    # Dependencies are looked up where this run has them. A folder named in a .pth file has its own .pth files left
    # alone, so the editable install of this checkout stays out.
    folder = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    folders = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    (folder / "dependencies.pth").write_text("\n".join(folders))
    return home / "bin"


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_wheel_installs_one_top_level_name(built: dict[str, Path]):
    """Nothing but `thread_objects` lands in anybody's site-packages."""
    tops = {name.split("/")[0] for name in names_in(built["wheel"])}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"thread_objects"}


def test_wheel_carries_the_whole_deployment(built: dict[str, Path]):
    """Every file of the deployment, migrations included, is in the wheel at its private place."""
    inside = names_in(built["wheel"])
    for part in ("workflows", "activities", "storage"):
        expected = {
            f"thread_objects/_deploy/{path.relative_to(ROOT)}"
            for path in (ROOT / part).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert expected
        assert expected <= inside
    assert "thread_objects/_deploy/worker.py" in inside
    assert not any("__pycache__" in name for name in inside)


def test_sdist_builds_the_same_wheel(built: dict[str, Path], tmp_path: Path):
    """The source distribution is complete: a wheel made of it holds the same files."""
    with tarfile.open(built["sdist"]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again", cwd=source)
    (again,) = (tmp_path / "again").glob("*.whl")
    assert names_in(again) == names_in(built["wheel"])


def test_installed_package_is_not_this_checkout(installed: Path, tmp_path: Path):
    """The fresh environment finds the package in itself, and no `workflows` anywhere."""
    script = "import importlib.util as u, thread_objects; print(thread_objects.__file__, u.find_spec('workflows'))"
    where, found = run(installed / "python", "-c", script, cwd=tmp_path).split()
    assert Path(where).is_relative_to(installed.parent.resolve())
    assert found == "None"


def test_installed_command_helps(installed: Path, tmp_path: Path):
    """The console script is there and knows the worker."""
    assert "--agents" in run(installed / "threads", "worker", "--help", cwd=tmp_path)


async def test_installed_worker_settles_and_drains(
    installed: Path, dev_server: DevServer, task_queue: str, thread_id: str, tmp_path: Path
):
    """`threads worker` of the wheel settles a Submission of an agent in the working folder, and drains on SIGTERM."""
    (tmp_path / "greeting.py").write_text(AGENTS)
    database = f"sqlite:///{tmp_path / 'threads.db'}"
    worker = Tethered(
        [
            *(str(installed / "threads"), "worker", "--agents", "greeting:registry"),
            *("--address", dev_server.address, "--database-url", database, "--task-queue", task_queue),
        ],
        log=tmp_path / "worker.log",
        cwd=tmp_path,
        env={"PYTHONPATH": None},
    )
    try:
        async with await ThreadClient.connect(address=dev_server.address, task_queue=task_queue) as client:
            receipt = await client.submit(thread_id, "greeter", "hello", key="k1")
            settlement = await client.wait(receipt, timeout=60)
        assert settlement.outcome is Outcome.COMPLETED
        assert settlement.result == "installed and well"
    finally:
        code = worker.stop()
    assert code == 0, worker.log_tail()
