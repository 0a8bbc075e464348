"""Taking up a Run: what the Thread holds, and what a Run that others began permits.

Rule guarded: stored answers are canonical before anything is done on their strength; an open call that nobody has
answered for is not passed.
"""

from collections.abc import Collection

from thread_objects import failpoints
from thread_objects.agents.transcript import RunLog, Transcript
from thread_objects.contract import ids
from thread_objects.contract.records import RunStarted, UserInputRecorded
from thread_objects.core.evidence import evidence_of
from thread_objects.core.recovery import Permit, approval_batches, resolution_batches, resumption
from thread_objects.errors import CorruptRecord, OwnershipLost
from thread_objects.ports import Claim, Store

from .commits import Commits
from .run_journal import Standing
from .transcripts import Transcripts

THREAD_AND_INPUT = 3
"""Records of a Thread whose first input was just made canonical: created, input, run started."""


def is_new_thread(claim: Claim, *, started_now: bool) -> bool:
    """Everything this Thread holds is known without reading it."""
    return started_now and claim.tail.sequence == THREAD_AND_INPUT


def new_transcript(claim: Claim, *, started_at: int, deadline_at: int) -> Transcript:
    """The transcript of a new Thread: its first input and the start of its Run."""
    transcript = Transcript()
    transcript.retained_at = claim.retained_at
    run_id = ids.run_id(claim.submission_id)
    begun = (
        UserInputRecorded(submission_id=claim.submission_id, run_id=run_id, input=claim.input),
        RunStarted(run_id=run_id, started_at=started_at, deadline_at=deadline_at),
    )
    transcript.take(ids.input_batch(claim.submission_id), begun, claim.tail.sequence)
    return transcript


def read_run(transcripts: Transcripts, store: Store, claim: Claim, *, now: int) -> tuple[Transcript, RunLog]:
    """The transcript as the log has it. Raises `CorruptRecord`."""
    transcript = transcripts.read(
        store, claim.thread_id, tail=claim.tail.sequence, retained_at=claim.retained_at, now=now
    )
    return transcript, run_of(transcript, claim.thread_id, claim.submission_id)


def run_of(transcript: Transcript, thread_id: str, submission_id: str) -> RunLog:
    """The Run of a Submission whose input is canonical."""
    run = transcript.run_of(submission_id)
    if run is None:
        raise CorruptRecord(thread_id=thread_id, sequence=None, decoder="input-missing")
    return run


def take_up(store: Store, commits: Commits, run: RunLog, permits: Collection[Permit]) -> Standing | None:
    """Where a Run stands that others began, with stored answers made canonical. None: it may not be advanced."""
    claim = commits.claim
    snapshot = store.snapshot(claim.submission_id)
    if snapshot is None:
        raise OwnershipLost(submission_id=claim.submission_id, actual_epoch=claim.epoch)
    evidence = evidence_of(snapshot, store.run_records(claim.submission_id))
    found = resumption(snapshot, evidence, permits, claim.epoch)
    if found.blocked:
        return None
    standing = Standing(
        turns=len(run.turns),
        permitted=frozenset((call.turn, call.call_id) for call in found.permitted),
        unstarted=frozenset(turn.turn for turn in run.turns if turn.unstarted),
    )
    for batch in approval_batches(snapshot, evidence, commits.now(), deployment_id=commits.deployment_id):
        failpoints.hit("approval:before-decision-append")
        commits.append(batch)
        failpoints.hit("approval:after-decision-append")
    for batch in resolution_batches(snapshot, evidence, commits.now(), deployment_id=commits.deployment_id):
        failpoints.hit("resolve:before-append")
        commits.append(batch)
        failpoints.hit("resolve:after-append")
    return standing
