"""A placement of the tests: the Threads `{host}.{name}` live on `{host}`."""


def by_prefix(thread_id: str) -> str:
    """Everything before the last dot."""
    return thread_id.rpartition(".")[0] or thread_id
