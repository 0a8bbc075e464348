"""Verification, the pure part: whether a Thread's log and ledger are whole and say the same. Never a repair.

Streams: memory grows by a hundred bytes per record (its identity) and a few hundred per Submission, never by a body.
The rows and records must be of one snapshot; where they come from (a database, an archive) does not matter.
"""

from thread_objects.core.verification.inputs import Bound as Bound
from thread_objects.core.verification.inputs import CommittedRecord as CommittedRecord
from thread_objects.core.verification.inputs import LedgerRow as LedgerRow
from thread_objects.core.verification.inputs import LogEnd as LogEnd
from thread_objects.core.verification.verify import CHECKS as CHECKS
from thread_objects.core.verification.verify import verify as verify
