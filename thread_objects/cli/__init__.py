"""The `threads` command."""


def main() -> None:
    """Run the command line."""
    from thread_objects.cli.app import app  # noqa: PLC0415  # the tether and the tests need no command line

    app()
