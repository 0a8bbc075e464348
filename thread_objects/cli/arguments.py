"""Arguments that several verbs share, written once."""

import json
import sys
from typing import Annotated, Any

import typer
from pydantic import JsonValue

from thread_objects.contract import ids
from thread_objects.errors import InvalidInput

Thread = Annotated[str, typer.Argument(help="The Thread's id.", show_default=False)]
Submission = Annotated[
    str, typer.Argument(help="The Submission's id, or key:KEY of principal local.", show_default=False)
]
MaybeSubmission = Annotated[
    str | None,
    typer.Argument(
        help="The Submission's id, or key:KEY of principal local; without it the head of the Thread.",
        show_default=False,
    ),
]
MaybeCall = Annotated[
    str | None,
    typer.Argument(help="The tool call's id; not needed where only one call waits.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document per line, in the contract's names.")]
Principal = Annotated[str, typer.Option(help="On whose behalf; keys are unique per Thread and principal.")]
Reason = Annotated[str, typer.Option(help="Recorded with the decision.")]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds to wait at most; for ever without it.", min=0.0, show_default=False)
]


KEY_PREFIX = "key:"
LOCAL = "local"
"""The principal of who sends from the command line and names no other."""


def submission_of(thread: str, named: str) -> str:
    """The Submission's id. Ids are derived from the key, so naming one by its key asks nobody."""
    if named.startswith(KEY_PREFIX):
        return ids.submission_id(thread, LOCAL, named.removeprefix(KEY_PREFIX))
    return named


def read_input(text: str, *, as_value: bool) -> JsonValue:
    """An input as given: `-` reads standard input; as a value it is parsed as JSON, else it is the prompt itself."""
    told = sys.stdin.read() if text == "-" else text
    return read_json(told, "input") if as_value else told


def read_json(text: str, what: str) -> JsonValue:
    """A JSON document; raises `InvalidInput` naming the place. NaN and infinities are no JSON."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON value")

    try:
        value: JsonValue = json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise InvalidInput(f"{what} is not JSON: {error}", what=what) from None
    return value
