"""All checks over one snapshot of a Thread: its ledger's rows first, then its log from the first record on."""

from collections.abc import Iterable

from thread_objects.contract.reports import Verification
from thread_objects.contract.states import CheckOutcome
from thread_objects.core.digests import EMPTY_TAIL
from thread_objects.core.verification.agreement import AgreementChecks, all_settled
from thread_objects.core.verification.chain import ChainChecks
from thread_objects.core.verification.decoding import DecodingChecks
from thread_objects.core.verification.inputs import Bound, CommittedRecord, LedgerRow, LogEnd
from thread_objects.core.verification.order import OrderChecks

CHECKS = (
    "schema-round-trip",
    "record-identity",
    "sequence-contiguity",
    "digest-chain",
    "fifo-input-order",
    "fifo-settlement-order",
    "terminal-uniqueness",
    "ledger-canonical-agreement",
    "checkpoint-binding",
)
"""The checks that are always made, in the order they are told."""


def verify(
    thread_id: str,
    rows: Iterable[LedgerRow],
    records: Iterable[CommittedRecord],
    *,
    base: LogEnd | None = None,
    end: LogEnd | None = None,
    checkpoints: Iterable[Bound] = (),
    require_all_settled: bool = False,
) -> Verification:
    """Check a Thread. Reads `rows` to their end, then `records` in the order of their sequence; writes nothing.

    `end` is what the Thread's own row says of the log's end, where there is one. `base` is where the log begins since
    retention deleted what was before; without it, at the empty log. What `records` raises (a stored
    row that cannot even be read) is raised.
    """
    ledger: dict[str, LedgerRow] = {}
    repeated: list[str] = []
    for row in rows:
        if row.submission_id in ledger:
            repeated.append(row.submission_id)
        ledger[row.submission_id] = row
    chain = ChainChecks(base or LogEnd(0, EMPTY_TAIL), end, checkpoints)
    decoding = DecodingChecks(thread_id)
    order = OrderChecks(ledger)
    agreement = AgreementChecks(ledger, repeated, base=0 if base is None else base.sequence)
    count = 0
    for record in records:
        count += 1
        chain.read(record)
        payload = decoding.read(record)
        if payload is not None:
            order.read(payload)
            agreement.read(record, payload)
    found = (*chain.checks(), *decoding.checks(), *order.checks(), *agreement.checks())
    by_name = {check.name: check for check in found}
    checks = tuple(by_name[name] for name in CHECKS)
    if require_all_settled:
        checks = (*checks, all_settled(ledger))
    return Verification(
        thread_id=thread_id,
        ok=all(check.outcome is not CheckOutcome.FAILED for check in checks),
        records=count,
        submissions=len(ledger),
        checks=checks,
    )
