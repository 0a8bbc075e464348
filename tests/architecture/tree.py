"""The checkout as the architecture tests see it: tracked files, parsed sources."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = {".git", ".venv", ".threads", ".hypothesis", "__pycache__", "build", "dist"}
DEPLOYMENT = ("workflows", "activities", "storage")


@cache
def tracked() -> tuple[Path, ...]:
    """Files that are, or are about to be, in the repository; where git cannot say, all that no tool has made."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.CalledProcessError):
        return tuple(_walk(ROOT))
    return tuple(path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file())


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in MADE and not path.name.endswith("_cache"):
            yield from _walk(path)
        elif path.is_file() and path.suffix != ".pyc":
            yield path


def sources(*folders: str) -> list[Path]:
    """The tracked Python files under these folders (or these files), never none."""
    roots = [ROOT / folder for folder in folders]
    found = [p for p in tracked() if p.suffix == ".py" and any(p == root or root in p.parents for root in roots)]
    assert found, f"nothing tracked under {folders}"
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(), filename=str(path))


def where(path: Path, node: ast.AST) -> str:
    """`file:line` for a finding."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def imports(path: Path) -> list[tuple[ast.stmt, str, int]]:
    """Every import of a file as (node, module, level); `from a import b` counts as `a`."""
    found: list[tuple[ast.stmt, str, int]] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [(node, alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node, node.module or "", node.level))
    return found
