"""Offsets: where a reader of a log stands. Opaque to clients, which hand them back unread."""

_PREFIX = "o1."


def offset_of(sequence: int) -> str:
    """The offset right after this sequence."""
    return f"{_PREFIX}{sequence:x}"


def sequence_of(offset: str) -> int:
    """The sequence an offset stands after. Raises `ValueError` for what no log ever handed out."""
    digits = offset.removeprefix(_PREFIX)
    if digits == offset or not digits or digits.strip("0123456789abcdef"):
        raise ValueError("not an offset of a log")
    return int(digits, 16)
