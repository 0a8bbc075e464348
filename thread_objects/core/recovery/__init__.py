"""Recovery, the pure part: what the ledger and the log say of a Submission decides what is done with it.

The executor lives with the activities; its fenced claim is the only authority on liveness.
"""

from thread_objects.core.recovery.batches import abort_batch as abort_batch
from thread_objects.core.recovery.batches import aborted_settlement as aborted_settlement
from thread_objects.core.recovery.batches import approval_batches as approval_batches
from thread_objects.core.recovery.batches import closing_batches as closing_batches
from thread_objects.core.recovery.batches import repair_batch as repair_batch
from thread_objects.core.recovery.batches import resolution_batch as resolution_batch
from thread_objects.core.recovery.batches import resolution_batches as resolution_batches
from thread_objects.core.recovery.batches import unknown_batches as unknown_batches
from thread_objects.core.recovery.children import WHOLE_CHARGED as WHOLE_CHARGED
from thread_objects.core.recovery.children import ZERO_CONSUMED as ZERO_CONSUMED
from thread_objects.core.recovery.children import child_submit as child_submit
from thread_objects.core.recovery.children import lineage_batch as lineage_batch
from thread_objects.core.recovery.children import started_batch as started_batch
from thread_objects.core.recovery.children import with_admissions as with_admissions
from thread_objects.core.recovery.classify import APPROVAL_PENDING as APPROVAL_PENDING
from thread_objects.core.recovery.classify import WAITING_FOR_CHILD as WAITING_FOR_CHILD
from thread_objects.core.recovery.classify import classify as classify
from thread_objects.core.recovery.decisions import DECISIONS as DECISIONS
from thread_objects.core.recovery.decisions import Decision as Decision
from thread_objects.core.recovery.decisions import predicted_disposition as predicted_disposition
from thread_objects.core.recovery.decisions import tag as tag
from thread_objects.core.recovery.delegation import DelegationView as DelegationView
from thread_objects.core.recovery.evidence import DelegationCall as DelegationCall
from thread_objects.core.recovery.evidence import Evidence as Evidence
from thread_objects.core.recovery.evidence import OpenCall as OpenCall
from thread_objects.core.recovery.intents import approval_intent as approval_intent
from thread_objects.core.recovery.intents import covered as covered
from thread_objects.core.recovery.intents import undecided as undecided
from thread_objects.core.recovery.intents import unknown_intent as unknown_intent
from thread_objects.core.recovery.reconciled import CompletedWithResult as CompletedWithResult
from thread_objects.core.recovery.reconciled import LostCall as LostCall
from thread_objects.core.recovery.reconciled import NeverStarted as NeverStarted
from thread_objects.core.recovery.reconciled import Reconciled as Reconciled
from thread_objects.core.recovery.reconciled import SafeToRetry as SafeToRetry
from thread_objects.core.recovery.reconciled import Uncertain as Uncertain
from thread_objects.core.recovery.resumption import Permit as Permit
from thread_objects.core.recovery.resumption import Resumption as Resumption
from thread_objects.core.recovery.resumption import resumption as resumption
from thread_objects.core.recovery.snapshot import AbortFact as AbortFact
from thread_objects.core.recovery.snapshot import ApprovalIntent as ApprovalIntent
from thread_objects.core.recovery.snapshot import ChildAttachment as ChildAttachment
from thread_objects.core.recovery.snapshot import ChildReservation as ChildReservation
from thread_objects.core.recovery.snapshot import Ownership as Ownership
from thread_objects.core.recovery.snapshot import Snapshot as Snapshot
from thread_objects.core.recovery.snapshot import Suspension as Suspension
from thread_objects.core.recovery.snapshot import UnknownIntent as UnknownIntent
