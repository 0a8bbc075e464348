"""What is verified: committed records as they are stored, and the rows of the ledger."""

from dataclasses import dataclass

from thread_objects.contract.states import Outcome, SubmissionState


@dataclass(frozen=True, slots=True)
class CommittedRecord:
    """A record of the log. `body` is its payload's canonical text as stored.

    `digest` is the tail digest after its batch; it stands on the batch's last record, elsewhere it is None.
    """

    thread_id: str
    sequence: int
    record_id: str
    batch_id: str
    kind: str
    created_at: int
    deployment_id: str
    body: str
    digest: str | None
    schema_version: int = 1
    family: str = "thread"


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A Submission as the ledger has it, control data only.

    `input_applied` is the sequence of its input record once the row was marked; `outcome` that of a settled row.
    """

    submission_id: str
    receipt_id: str
    queue_sequence: int
    state: SubmissionState
    outcome: Outcome | None = None
    input_applied: int | None = None
    redacted: bool = False
    """Retention took its content, and maybe its records with it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A checkpoint, by the place in the log that it speaks of."""

    sequence: int
    digest: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the Thread's own row says that the log ends, or begins."""

    sequence: int
    digest: str
