"""A store whose process dies at one of its writes."""

from collections.abc import Callable
from typing import Any

WRITES = frozenset(
    [
        "admit",
        "append",
        "apply_unknown_resolutions",
        "attach_child",
        "begin_release",
        "claim_submission",
        "clear_fault",
        "deny_pending_approvals",
        "finalize",
        "finish",
        "hint_object_of",
        "mark_input_applied",
        "mark_joined",
        "mark_unknown",
        "materialize_and_ready",
        "publish_queued_abort",
        "record_child_settled",
        "record_fault",
        "record_lineage",
        "release",
        "release_reservation",
        "renew",
        "request_abort",
        "revert_joining",
        "settle_joined",
        "suspend",
        "suspend_for_children",
        "wake_suspended",
    ]
)


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """A store whose process dies at its n-th write, before or after the commit. Nothing it does later counts."""

    def __init__(self, store: Any, dies_at: int | None, *, after: bool) -> None:
        self._store = store
        self._dies_at = dies_at
        self._after = after
        self.writes = 0
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)
        return self._write(operation) if name in WRITES else operation

    def _write(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._dead:
                raise Killed
            self.writes += 1
            self._dead = self.writes == self._dies_at
            if self._dead and not self._after:
                raise Killed
            answer = operation(*args, **kwargs)
            if self._dead:
                raise Killed
            return answer

        return call
