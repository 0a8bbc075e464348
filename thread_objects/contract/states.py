"""States and outcomes. `settled` is the only terminal state; ownership is a separate fact beside the state."""

from enum import StrEnum


class SubmissionState(StrEnum):
    """The eight states of a Submission."""

    ADMITTED = "admitted"
    READY = "ready"
    JOINING = "joining"
    JOINED = "joined"
    INPUT_APPLIED = "input-applied"
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"
    SETTLED = "settled"


class Outcome(StrEnum):
    """The single terminal outcome owed to each Submission."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class ToolClass(StrEnum):
    """What may be done with a call that may have started and left no result."""

    READONLY = "readonly"
    """May be repeated freely."""
    IDEMPOTENT = "idempotent"
    """May be repeated with the same key, which the tool receives."""
    UNCERTAIN = "uncertain"
    """Never repeated after a possible start. The default."""


class CallKind(StrEnum):
    """The execution kind recorded with a call. Nothing is ever classified by a tool's name."""

    ORDINARY = "ordinary"
    DURABLE = "durable"
    DELEGATION = "delegation"
    WORKER = "worker"
    OUTPUT = "output"


class Decision(StrEnum):
    """An answer to an approval request."""

    APPROVED = "approved"
    DENIED = "denied"


class ResolutionKind(StrEnum):
    """How an Unknown Outcome is closed (the first two are facts, the others permissions)."""

    COMPLETED_WITH_RESULT = "completed-with-result"
    NEVER_HAPPENED = "never-happened"
    SAFE_TO_RETRY = "safe-to-retry"
    ABORT_SUBMISSION = "abort-submission"


class Resolution(StrEnum):
    """What a `ToolCallResolved` record says."""

    COMPLETED_WITH_RESULT = "completed-with-result"
    FAILED_WITH_ERROR = "failed-with-error"
    NEVER_STARTED = "never-started"
    SAFE_RETRY = "safe-retry"


class ReservationStatus(StrEnum):
    """Where a child's slice of its parent's budget stands. It is held until `released`."""

    RESERVED = "reserved"
    RELEASE_PENDING = "releasePending"
    RELEASED = "released"


class ChildReport(StrEnum):
    """What a child's settlement did to its parent."""

    WOKEN = "woken"
    STILL_WAITING = "still-waiting"
    NOT_WAITING = "not-waiting"


class Disposition(StrEnum):
    """What recovery left behind for a row."""

    REPAIRED = "repaired"
    DEFERRED = "deferred"
    UNKNOWN = "unknown"
    NONE = "none"


class PassPhase(StrEnum):
    """Whether any native step of a pass was actionable."""

    CAUGHT_UP = "caught-up"
    ACTIONABLE = "actionable"


class AlarmOutcome(StrEnum):
    """What a pass left in the slot."""

    REARMED = "rearmed"
    CLEARED = "cleared"


class CheckOutcome(StrEnum):
    """How a check of a verification ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be made; the reason says why. No failure."""


class LanePhase(StrEnum):
    """When a lane's waves may run: beside native work, or once it is done."""

    CONCURRENT = "concurrent"
    AFTER_NATIVE = "after-native"
