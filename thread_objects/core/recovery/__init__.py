"""Recovery, the pure part: what the ledger and the log say of a Submission decides what is done with it.

The executor lives with the activities; its fenced claim is the only authority on liveness.
"""

from thread_objects.core.recovery.classify import APPROVAL_PENDING as APPROVAL_PENDING
from thread_objects.core.recovery.classify import WAITING_FOR_CHILD as WAITING_FOR_CHILD
from thread_objects.core.recovery.classify import classify as classify
from thread_objects.core.recovery.decisions import DECISIONS as DECISIONS
from thread_objects.core.recovery.decisions import Decision as Decision
from thread_objects.core.recovery.decisions import predicted_disposition as predicted_disposition
from thread_objects.core.recovery.decisions import tag as tag
from thread_objects.core.recovery.evidence import Evidence as Evidence
from thread_objects.core.recovery.evidence import OpenCall as OpenCall
from thread_objects.core.recovery.snapshot import AbortFact as AbortFact
from thread_objects.core.recovery.snapshot import ApprovalIntent as ApprovalIntent
from thread_objects.core.recovery.snapshot import ChildAttachment as ChildAttachment
from thread_objects.core.recovery.snapshot import ChildReservation as ChildReservation
from thread_objects.core.recovery.snapshot import Ownership as Ownership
from thread_objects.core.recovery.snapshot import Snapshot as Snapshot
from thread_objects.core.recovery.snapshot import Suspension as Suspension
from thread_objects.core.recovery.snapshot import UnknownIntent as UnknownIntent
