"""The verbs of the `threads` command."""

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Durable threads for AI agents on Temporal.")
