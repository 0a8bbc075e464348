"""Write the README's tables from the code: `python .ci/readme.py`. A test fails while they differ.

Descriptions are the docstrings below the fields of `Settings` and the members of `Exit`.
"""

import ast
import re
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from thread_objects.cli import exits
from thread_objects.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def described(module: str, name: str) -> dict[str, str]:
    """The docstring below each assignment in a class body, on one line."""
    tree = ast.parse((ROOT / module).read_text())
    (body,) = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
    told: dict[str, str] = {}
    for node, following in pairwise(body):
        match node, following:
            case (
                ast.Assign(targets=[ast.Name(id=field)]) | ast.AnnAssign(target=ast.Name(id=field)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                told[field] = " ".join(text.split())
            case _:
                pass
    return told


def settings_table() -> str:
    """One row for each setting."""
    told = described("thread_objects/settings.py", "Settings")
    rows = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default: Any = field.default
        shown = "" if default in {None, PydanticUndefined} else f"`{default}`"
        rows.append(f"| `{name}` | {shown} | {told.get(name, '')} |")
    return "\n".join(rows)


def exits_table() -> str:
    """One row for each exit code."""
    told = described("thread_objects/cli/exits.py", "Exit")
    codes: type[IntEnum] = exits.Exit
    rows = ["| Code | Meaning |", "|---|---|", *(f"| {code.value} | {told[code.name]} |" for code in codes)]
    return "\n".join(rows)


def written(readme: str) -> str:
    """The README with its tables as the code has them."""
    for mark, table in (("settings", settings_table()), ("exit-codes", exits_table())):
        pattern = re.compile(rf"<!-- {mark} -->\n.*?<!-- /{mark} -->", re.DOTALL)
        block = f"<!-- {mark} -->\n{table}\n<!-- /{mark} -->"
        readme, found = pattern.subn(block.replace("\\", r"\\"), readme)
        if found != 1:
            raise SystemExit(f"README.md has {found} places for {mark}")
    return readme


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
