"""`threads demo`."""


def demo() -> None:
    """Three inputs through a real Temporal server and a real database, start to end, leaving nothing behind."""
