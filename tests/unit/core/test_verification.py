"""Verification finds what is wrong with a log and its ledger, and nothing where nothing is."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from thread_objects.contract import ids
from thread_objects.contract.messages import Diagnostic
from thread_objects.contract.records import (
    AbortRequested,
    AnyPayload,
    Batch,
    DeclaredCall,
    ModelResponseRecorded,
    Record,
    RunCompleted,
    SubmissionSettled,
    ThreadCreated,
    ToolCallResolved,
    ToolCallUnknown,
    UserInputRecorded,
)
from thread_objects.contract.reports import Check, Verification
from thread_objects.contract.states import CheckOutcome, Outcome, Resolution, SubmissionState
from thread_objects.core import batches, digests
from thread_objects.core.verification import CHECKS, Bound, CommittedRecord, LedgerRow, LogEnd, verify

THREAD = "t1"


@dataclass
class Log:
    """A Thread's log and ledger as they are stored, written by hand."""

    records: list[CommittedRecord] = field(default_factory=list)
    rows: list[LedgerRow] = field(default_factory=list)
    digest: str = digests.EMPTY_TAIL
    length: int = 0

    def append(self, batch_id: str, *payloads: tuple[str, AnyPayload]) -> "Log":
        """A batch, chained as the store chains it."""
        batch = Batch(
            batch_id=batch_id,
            records=tuple(Record(record_id=rid, created_at=5, deployment_id="d", payload=p) for rid, p in payloads),
        )
        encoded = batches.encode(batch)
        self.digest = digests.chain(self.digest, encoded.text)
        self.length += len(encoded.records)
        for entry in encoded.records:
            self.records.append(
                CommittedRecord(
                    thread_id=THREAD,
                    sequence=len(self.records) + 1,
                    record_id=entry.record.record_id,
                    batch_id=batch_id,
                    kind=entry.record.payload.kind,
                    created_at=entry.record.created_at,
                    deployment_id=entry.record.deployment_id,
                    body=entry.body,
                    digest=self.digest if entry is encoded.records[-1] else None,
                )
            )
        return self

    def created(self) -> "Log":
        """The first record."""
        return self.append(
            ids.thread_created_batch(THREAD), (ids.thread_created_record(THREAD), ThreadCreated(agent_id="a"))
        )

    def row(self, sid: str, state: SubmissionState, outcome: Outcome | None = None) -> "Log":
        """A row at the next place of the queue."""
        place = len(self.rows) + 1
        at = next((record.sequence for record in self.records if record.record_id == ids.input_record(sid)), None)
        self.rows.append(LedgerRow(sid, f"r-{sid}", place, state, outcome, at))
        return self

    def input(self, sid: str) -> "Log":
        """An input becomes canonical."""
        payload = UserInputRecorded(submission_id=sid, run_id=ids.run_id(sid), input="hello")
        return self.append(ids.input_batch(sid), (ids.input_record(sid), payload))

    def respond(self, sid: str, *calls: str, turn: int = 1) -> "Log":
        """A model response with these calls, and the Run's end where it has none: two records in one batch."""
        run = ids.run_id(sid)
        declared = tuple(
            DeclaredCall(tool_call_id=call, tool_name="pay", arguments={}, arguments_digest="x") for call in calls
        )
        response = ModelResponseRecorded(
            run_id=run, turn_id=ids.turn_id(run, turn), turn=turn, messages=[], messages_digest="x", calls=declared
        )
        end = [] if calls else [(ids.run_completed_record(run), RunCompleted(run_id=run, output="done"))]
        return self.append(ids.response_batch(run, turn), (ids.response_record(run, turn), response), *end)

    def unknown(self, sid: str, call: str) -> "Log":
        """A call of this Run may have happened."""
        run = ids.run_id(sid)
        payload = ToolCallUnknown(run_id=run, turn=1, tool_call_id=call, tool_name="pay", reason="lost")
        return self.append(ids.unknown_batch(sid, 1), (ids.tool_unknown_record(run, 1, call), payload))

    def resolve(self, sid: str, call: str) -> "Log":
        """Somebody said what became of it."""
        run = ids.run_id(sid)
        payload = ToolCallResolved(
            run_id=run, turn=1, tool_call_id=call, resolution=Resolution.NEVER_STARTED, author="ann", reason=""
        )
        return self.append(ids.resolution_batch(sid, call), (ids.tool_resolved_record(run, 1, call), payload))

    def abort(self, sid: str) -> "Log":
        """An abort becomes canonical."""
        payload = AbortRequested(submission_id=sid, author="ann", reason="")
        return self.append(ids.abort_batch(sid), (ids.abort_record(sid), payload))

    def settle(self, sid: str, outcome: Outcome = Outcome.COMPLETED, *, again: int = 0) -> "Log":
        """A settlement; `again` numbers one too many."""
        payload = SubmissionSettled(
            submission_id=sid,
            settlement_id=ids.settlement_id(sid),
            receipt_id=f"r-{sid}",
            outcome=outcome,
            diagnostic=Diagnostic(error_tag="X", message="") if outcome is Outcome.FAILED else None,
        )
        mark = f"#{again}" if again else ""
        return self.append(f"{ids.settlement_batch(sid)}{mark}", (f"{ids.settlement_id(sid)}{mark}", payload))

    def run(self, sid: str) -> "Log":
        """A whole Submission."""
        return self.input(sid).respond(sid).settle(sid)

    def verify(self, *, checkpoints: Sequence[Bound] = (), require_all_settled: bool = False) -> Verification:
        """Verify it as it is."""
        return verify(
            THREAD,
            iter(self.rows),
            iter(self.records),
            end=LogEnd(self.length, self.digest),
            checkpoints=checkpoints,
            require_all_settled=require_all_settled,
        )


DONE = (SubmissionState.SETTLED, Outcome.COMPLETED)


def clean() -> Log:
    """Two Submissions done, one at work, one queued."""
    log = Log().created().run("s1").run("s2").input("s3").respond("s3", "c1")
    return (
        log.row("s1", *DONE).row("s2", *DONE).row("s3", SubmissionState.INPUT_APPLIED).row("s4", SubmissionState.READY)
    )


def failed(found: Verification) -> dict[str, str]:
    """The checks that failed, with their reasons."""
    return {check.name: check.reason for check in found.checks if check.outcome is CheckOutcome.FAILED}


def by_name(found: Verification, name: str) -> Check:
    """One check."""
    return next(check for check in found.checks if check.name == name)


def test_a_clean_thread_passes_every_check():
    """ADM-018: all checks are made, in a fixed order, and all of them pass."""
    found = clean().verify()
    assert [check.name for check in found.checks] == list(CHECKS)
    assert {check.outcome for check in found.checks} == {CheckOutcome.PASSED}
    assert (found.ok, found.records, found.submissions) == (True, 11, 4)


def test_an_empty_thread_is_whole():
    """A Thread without a record and without a row has nothing wrong with it."""
    assert Log().verify().ok


@pytest.mark.parametrize("gone", range(11))
def test_a_missing_record_is_a_gap(gone: int):
    """ADM-020: whichever record an archive lost, the sequence tells, and nothing is repaired."""
    log = clean()
    del log.records[gone]
    before = list(log.records)
    found = log.verify()
    assert not found.ok
    assert "sequence-contiguity" in failed(found)
    assert log.records == before


@pytest.mark.parametrize("where", range(11))
def test_a_changed_record_breaks_the_chain_once(where: int):
    """A body that was changed, canonically and decodably, is one finding of the chain and hides no other batch's."""
    log = clean()
    log.records[where] = replace(log.records[where], created_at=6)
    found = log.verify()
    assert by_name(found, "digest-chain").findings == 1
    assert set(failed(found)) == {"digest-chain"}


def test_the_logs_end_is_where_its_thread_says():
    """A log that was cut off at a batch's end is whole in itself; its Thread's own row tells."""
    log = clean()
    log.records.pop()
    assert set(failed(log.verify())) == {"sequence-contiguity", "digest-chain"}
    assert verify(THREAD, log.rows, log.records).ok


def test_a_log_without_digests_skips_its_chain():
    """Without batch digests the chain and what is bound to it are skipped, with the reason, and that is no failure."""
    log = clean()
    log.records = [replace(record, digest=None) for record in log.records]
    found = log.verify(checkpoints=[Bound(1, "x")])
    assert found.ok
    for name in ("digest-chain", "checkpoint-binding"):
        assert by_name(found, name).outcome is CheckOutcome.SKIPPED
        assert by_name(found, name).reason


def test_a_batch_without_its_digest_is_told():
    """One batch that lost its digest among others that have theirs is a broken chain."""
    log = clean()
    log.records[1] = replace(log.records[1], digest=None)
    assert "digest-chain" in failed(log.verify())
    log = clean()
    log.records[-1] = replace(log.records[-1], digest=None)
    assert "digest-chain" in failed(log.verify())


def test_a_checkpoint_is_bound_to_a_digest_of_the_log():
    """A checkpoint holds where its digest is the log's; inside a batch, ahead of the end, or of other content it fails."""
    log = clean()
    digest = {record.sequence: record.digest for record in log.records}
    fine = [Bound(0, digests.EMPTY_TAIL), *(Bound(n, at) for n, at in digest.items() if at is not None)]
    assert log.verify(checkpoints=fine).ok
    for bad in (Bound(12, log.digest), Bound(3, "x"), Bound(4, "x"), Bound(0, "x")):
        assert set(failed(log.verify(checkpoints=[bad]))) == {"checkpoint-binding"}


def test_two_settlements_are_one_too_many():
    """ADM-021: a second settlement record, whatever its id, fails terminal-uniqueness."""
    log = Log().created().run("s1").settle("s1", Outcome.FAILED, again=1).row("s1", *DONE)
    assert "s1" in failed(log.verify())["terminal-uniqueness"]


def test_a_settled_row_needs_its_record():
    """ADM-022: a row that says settled where the log has no settlement disagrees with it."""
    log = Log().created().input("s1").row("s1", *DONE)
    assert "without a settlement record" in failed(log.verify())["ledger-canonical-agreement"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (LedgerRow("s1", "r-s1", 1, SubmissionState.SETTLED, Outcome.FAILED, 2), "its record says completed"),
        (LedgerRow("s1", "r-s1", 1, SubmissionState.INPUT_APPLIED, None, 2), "its record says settled"),
        (LedgerRow("s1", "r-s1", 1, *DONE, 3), "has its input at 3"),
        (LedgerRow("s1", "r-s9", 1, *DONE, 2), "names another receipt"),
        (LedgerRow("s9", "r-s9", 1, SubmissionState.READY, None, None), "which the ledger does not have"),
    ],
)
def test_a_row_that_contradicts_its_records_is_told(row: LedgerRow, told: str):
    """Outcome, state, marker, receipt and existence of a row are each compared with the log."""
    log = Log().created().run("s1")
    log.rows = [row]
    found = by_name(log.verify(), "ledger-canonical-agreement")
    assert any(told in detail for detail in found.details)


@pytest.mark.parametrize(
    "state", [SubmissionState.INPUT_APPLIED, SubmissionState.SUSPENDED, SubmissionState.UNKNOWN, SubmissionState.JOINED]
)
def test_a_consumed_row_needs_its_input(state: SubmissionState):
    """A state that only an input leads to has that input on record."""
    assert "ledger-canonical-agreement" in failed(Log().created().row("s1", state).verify())


def test_the_ledger_has_a_submission_once():
    """A row told twice, or two rows in one place of the queue, are no ledger."""
    log = clean()
    log.rows.append(log.rows[0])
    assert "twice" in failed(log.verify())["ledger-canonical-agreement"]
    log = clean()
    log.rows[3] = replace(log.rows[3], queue_sequence=3)
    assert "same place" in failed(log.verify())["ledger-canonical-agreement"]


def test_inputs_enter_in_queue_order():
    """An input that follows a later one's broke the queue's order, and so did one that was passed over."""
    log = Log().created().run("s2").run("s1").row("s1", *DONE).row("s2", *DONE)
    assert "fifo-input-order" in failed(log.verify())
    log = Log().created().run("s2").row("s1", SubmissionState.READY).row("s2", *DONE)
    assert "passed over" in failed(log.verify())["fifo-input-order"]


def test_a_run_settles_before_those_let_in_behind_it():
    """A Run that was at work when a later input was let in settles first."""
    log = Log().created().input("s1").run("s2").respond("s1").settle("s1").row("s1", *DONE).row("s2", *DONE)
    assert set(failed(log.verify())) == {"fifo-settlement-order"}


def test_work_aborted_in_the_queue_settles_out_of_order():
    """Aborted work without an input record executed nothing, so it is exempt."""
    log = Log().created().input("s1").abort("s2").settle("s2", Outcome.ABORTED).respond("s1").settle("s1")
    log.row("s1", *DONE).row("s2", SubmissionState.SETTLED, Outcome.ABORTED)
    assert log.verify().ok


def parked() -> Log:
    """The first Submission waits for somebody to say what became of its call."""
    return Log().created().input("s1").respond("s1", "c1").unknown("s1", "c1")


def test_a_parked_run_may_be_passed():
    """A Run with an unknown call at the place of the later input settles after it, however long it takes."""
    log = parked().run("s2").resolve("s1", "c1").respond("s1", turn=2).settle("s1").row("s1", *DONE).row("s2", *DONE)
    assert log.verify().ok


@pytest.mark.parametrize("ended", ["resolved", "aborted", "completed"])
def test_a_run_that_is_not_parked_any_more_may_not_be_passed(ended: str):
    """Resolved, with an abort on record, or over: the Run holds its place again when a later input is let in."""
    log = parked()
    if ended == "resolved":
        log.resolve("s1", "c1")
    elif ended == "aborted":
        log.abort("s1")
    else:
        log.respond("s1", turn=2)
    log.run("s2").settle("s1").row("s1", *DONE).row("s2", *DONE)
    assert set(failed(log.verify())) == {"fifo-settlement-order"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("{", "cannot be decoded"),
        ('{"kind":"Nonsense"}', "cannot be decoded"),
        ('{"kind": "RunCompleted", "output": 1, "runId": "r"}', "not canonical"),
        ('{"kind":"RunCompleted","output":1,"runId":"r"}', "holds a RunCompleted"),
        (
            '{"kind":"UserInputRecorded","input":"hello","inputKind":"user","later":1,"runId":"run:s1","submissionId":"s1"}',
            "does not come back",
        ),
    ],
)
def test_a_body_that_does_not_round_trip_is_told(body: str, told: str):
    """Text that is no JSON, no record, not canonical, of another kind, or holds what this version would lose."""
    log = Log().created().input("s1").row("s1", SubmissionState.INPUT_APPLIED)
    if "later" in body:
        body = '{"input":"hello",' + body[len('{"kind":"UserInputRecorded","input":"hello",') :].replace(
            '"later"', '"kind":"UserInputRecorded","later"'
        )
    log.records[1] = replace(log.records[1], body=body)
    assert told in failed(log.verify())["schema-round-trip"]


def test_a_record_from_before_a_new_field_is_fine():
    """A stored record without a member that came later decodes to its default: nothing is lost on the way back."""
    log = Log().created()
    log.records[0] = replace(log.records[0], body='{"agentId":"a","kind":"ThreadCreated"}')
    assert "schema-round-trip" not in failed(log.verify())


def test_an_identity_is_used_once_and_is_the_contents():
    """A record id or a batch id that comes again, another Thread's record, and an id that is not the content's own."""
    for change in (
        {"record_id": ids.input_record("s1")},
        {"batch_id": ids.input_batch("s1")},
        {"thread_id": "t2"},
        {"record_id": "input:other"},
        {"record_id": ""},
    ):
        log = clean()
        log.records[4] = replace(log.records[4], **change)
        assert "record-identity" in failed(log.verify())


def test_all_settled_is_made_only_when_asked():
    """ADM-024: asked for, it fails while anything is owed and on an empty lane; not asked, it is not there."""
    assert "all-settled" not in {check.name for check in clean().verify().checks}
    assert "s3 is input-applied" in failed(clean().verify(require_all_settled=True))["all-settled"]
    assert "no submissions" in failed(Log().created().verify(require_all_settled=True))["all-settled"]
    done = Log().created().run("s1").row("s1", *DONE).verify(require_all_settled=True)
    assert done.ok
    assert done.checks[-1].name == "all-settled"


def test_findings_are_counted_whole_and_told_in_part():
    """A thousand broken records make one bounded answer."""
    log = Log().created()
    log.records = [replace(log.records[0], sequence=n, record_id=f"x{n}" * 300) for n in range(2, 1_002)]
    found = by_name(log.verify(), "record-identity")
    assert found.findings >= 1_000
    assert len(found.model_dump_json()) < 20_000
