"""Who may import whom."""

import subprocess
import sys

from tests.architecture.tree import DEPLOYMENT, ROOT, imports, sources, where

CORE_MAY_IMPORT = ("thread_objects.contract", "thread_objects.core", "rfc8785")


def test_import_layers_hold():
    """The contracts of import-linter in pyproject.toml are kept, on the sources as they are now."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


def test_core_imports_only_the_standard_library_contract_and_rfc8785():
    """`thread_objects.core` stays free of everything that does something."""
    strangers = [
        f"{where(path, node)} imports {module}"
        for path in sources("thread_objects/core")
        for node, module, level in imports(path)
        if level == 0
        and module.split(".")[0] not in sys.stdlib_module_names
        and not any(module == allowed or module.startswith(f"{allowed}.") for allowed in CORE_MAY_IMPORT)
    ]
    assert strangers == []


def test_deployment_imports_itself_relatively():
    """`workflows`, `activities` and `storage` never name themselves, so that the wheel can carry them elsewhere."""
    absolute = [
        f"{where(path, node)} imports {module}"
        for folder in DEPLOYMENT
        for path in sources(folder)
        for node, module, level in imports(path)
        if level == 0 and module.split(".")[0] in DEPLOYMENT
    ]
    assert absolute == []


def test_deployment_never_reaches_across_its_folders():
    """A relative import that climbs out of its folder would work in the wheel and not in a checkout."""
    climbing = []
    for folder in DEPLOYMENT:
        for path in sources(folder):
            depth = len(path.relative_to(ROOT).parts) - 1
            climbing += [where(path, node) for node, _module, level in imports(path) if level > depth]
    assert climbing == []


def test_public_face_never_names_the_deployment_in_an_import():
    """Only `thread_objects._runtime` knows where the deployment is, and it loads it by name."""
    named = [
        f"{where(path, node)} imports {module}"
        for path in sources("thread_objects")
        for node, module, level in imports(path)
        if level == 0 and module.split(".")[0] in {*DEPLOYMENT, "worker"}
    ]
    assert named == []
