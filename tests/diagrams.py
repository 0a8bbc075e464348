"""The diagrams of docs/maintenance.md, made from the code: `python -m tests.diagrams` writes them anew.

Rows are moved by the due queue itself, Submissions by the ledger's table; phases and stages are read from the source.
An architecture test fails while the document says something else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from thread_objects.core import event_loop, native_step
from thread_objects.core.due_queue import DueQueue, QueueTransaction
from thread_objects.core.due_row import NATIVE, Row, RowState
from thread_objects.core.event_loop import Phase
from thread_objects.core.ledger import TRANSITIONS
from thread_objects.core.native_step import Stage

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "maintenance.md"
_MARKED = re.compile(r"<!-- generated: (?P<name>[a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)

Edges = dict[tuple[str, str], list[str]]

# --- rows of the due queue ----------------------------------------------------------------------------------------------

_NOW = 1_000_000
_ROWS = (
    Row(NATIVE, 3),
    *(Row(NATIVE, 3, _NOW, stalls, None, 0, RowState.PENDING) for stalls in (0, 3, 7)),
    Row(NATIVE, 3, _NOW, 8, None, 0, RowState.PARKED, reported=True),
)
_OPERATIONS: dict[str, Callable[[QueueTransaction, Row], object]] = {
    "due without progress": lambda tx, row: tx.dirty(row.id, _NOW),
    "progress": lambda tx, row: tx.dirty(row.id, _NOW, progress=True),
    "charge": lambda tx, row: tx.claim(row, _NOW),
    "wave done": lambda tx, row: tx.complete(row, None) if row.due_at is not None else None,
    "wave wants more": lambda tx, row: tx.complete(row, _NOW + 1) if row.due_at is not None else None,
}


def _rows() -> Edges:
    edges: Edges = {("[*]", "idle"): ["a host lane"], ("[*]", "pending"): ["registered, or due"]}
    for row in _ROWS:
        for name, operation in _OPERATIONS.items():
            tx = DueQueue([row]).begin()
            operation(tx, row)
            moved = tx.get(row.id)
            if moved is not None and moved != row:
                label = "8th charge" if name == "charge" and moved.state is RowState.PARKED is not row.state else name
                _add(edges, row.state.value, moved.state.value, label)
    return edges


# --- Submissions --------------------------------------------------------------------------------------------------------


def _submissions() -> Edges:
    edges: Edges = {("[*]", "admitted"): ["admit a child"], ("[*]", "ready"): ["admit"]}
    for operation, moves in TRANSITIONS.items():
        for before, after in moves.items():
            if before is not after:
                _add(edges, before.value, after.value, operation.value)
    _add(edges, "settled", "[*]", "")
    return edges


# --- phases and stages, from the source -----------------------------------------------------------------------------------


class _Machine:
    """Which member of an enum a class moves to, from which: read from its guards, calls and assignments."""

    def __init__(self, source: str, owner: str, members: type[Enum]) -> None:
        classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == owner)
        self._methods = {node.name: node for node in next(classes).body if isinstance(node, ast.FunctionDef)}
        self._enum = members.__name__

    def edges(self) -> Edges:
        """Edges, labelled with the method that makes them."""
        found: Edges = {}
        for method in self._methods.values():
            for node in ast.walk(method):
                if isinstance(node, (ast.If, ast.IfExp)):
                    before = self._guard(node.test)
                    body = node.body if isinstance(node, ast.If) else [ast.Expr(node.body)]
                    if before is not None:
                        self._guarded(found, before, method.name, body)
        return found

    def _guarded(self, found: Edges, before: str, name: str, body: list[ast.stmt]) -> None:
        for after in self._assigned(body):
            _add(found, before, after, _words(name))
        for called in self._called(body):
            for after in self._reached(called, set()):
                _add(found, before, after, _words(called))
            if self._answers(called):
                _add(found, before, "[*]", _words(called))

    def _guard(self, test: ast.expr) -> str | None:
        for node in ast.walk(test):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is):
                member = self._member(node.comparators[0])
                if member is not None:
                    return member
        return None

    def _member(self, node: ast.expr) -> str | None:
        named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self._enum
        return node.attr.lower() if named and isinstance(node, ast.Attribute) else None

    def _assigned(self, body: list[ast.stmt]) -> Iterator[str]:
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                    values = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
                    yield from (member for value in values if (member := self._member(value)) is not None)

    def _called(self, body: list[ast.stmt]) -> Iterator[str]:
        for statement in body:
            for node in ast.walk(statement):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in self._methods
                ):
                    yield node.func.attr

    def _reached(self, name: str, seen: set[str]) -> Iterator[str]:
        if name not in seen:
            seen.add(name)
            body = self._methods[name].body
            yield from self._assigned(body)
            for called in self._called(body):
                yield from self._reached(called, seen)

    def _answers(self, name: str) -> bool:
        """It ends the machine: it may return an `Answer`."""
        returns = self._methods[name].returns
        return returns is not None and "Answer" in ast.unparse(returns)


def _words(name: str) -> str:
    return name.strip("_").replace("_", " ")


def _phases() -> Edges:
    edges = _Machine(Path(event_loop.__file__).read_text(), "EventLoop", Phase).edges()
    return {("[*]", "loop"): ["begin"], **edges, ("done", "[*]"): ["finish, or failure rearming"]}


def _stages() -> Edges:
    edges = _Machine(Path(native_step.__file__).read_text(), "NativeSteps", Stage).edges()
    return {("[*]", "barrier"): ["start"], **edges}


# --- the document -----------------------------------------------------------------------------------------------------------

DIAGRAMS: dict[str, Callable[[], Edges]] = {
    "rows": _rows,
    "submissions": _submissions,
    "phases": _phases,
    "native-step": _stages,
}


def _add(edges: Edges, before: str, after: str, label: str) -> None:
    labels = edges.setdefault((before, after), [])
    if label not in labels and label != before.replace("_", " "):
        labels.append(label)


def drawn(name: str) -> str:
    """One diagram as Mermaid text."""
    lines = ["```mermaid", "stateDiagram-v2"]
    names = sorted(
        {state for edge in DIAGRAMS[name]() for state in edge if not state.isidentifier() and state != "[*]"}
    )
    lines += [f'    state "{state}" as {_id(state)}' for state in names]
    for (before, after), labels in DIAGRAMS[name]().items():
        told = f": {', '.join(labels)}" if any(labels) else ""
        lines.append(f"    {_id(before)} --> {_id(after)}{told}")
    return "\n".join([*lines, "```"])


def _id(state: str) -> str:
    return state if state == "[*]" else re.sub(r"\W", "_", state)


def renewed(document: str) -> str:
    """The document with every generated part as the code has it now."""
    return _MARKED.sub(lambda m: f"<!-- generated: {m['name']} -->\n{drawn(m['name'])}\n<!-- end -->", document)


def marked(document: str) -> list[str]:
    """The names of the generated parts, in order."""
    return [match["name"] for match in _MARKED.finditer(document)]


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
