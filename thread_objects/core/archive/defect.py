"""What is wrong with an archive, and where."""


class ArchiveDefect(ValueError):
    """An archive that cannot be believed. `reason` is one word, `line` counts from 1 where a line is to blame."""

    def __init__(self, reason: str, told: str, line: int | None = None) -> None:
        super().__init__(told if line is None else f"line {line}: {told}")
        self.reason = reason
        self.line = line
