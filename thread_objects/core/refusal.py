"""The one error of the maintenance core. The shell gives it to callers as `DurableAlarmError`."""


class AlarmRefusal(Exception):
    """The slot, the due queue, a lane or an allowance refused; nothing was changed.

    `operation` is a static name ("host dispatch allowance"); the message adds the id it was about.
    """

    def __init__(self, operation: str, message: str = "") -> None:
        self.operation = operation
        self.message = message
        super().__init__(f"{operation}: {message}" if message else operation)

    def told(self) -> str:
        """As a pass report tells it."""
        return f"DurableAlarmError({self})"
