"""Receipts, settlements, status and report on a terminal. Values are printed whole: an id is there to be copied."""

import json
from collections.abc import Iterable

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from thread_objects.cli.records import Line, lines_of
from thread_objects.cli.text import instant, lasting, one_line, plain, short
from thread_objects.contract.alarms import AlarmStanding, NamedAlarm
from thread_objects.contract.lanes import Installed
from thread_objects.contract.messages import (
    LogRecord,
    Pending,
    PendingReceipt,
    Receipt,
    Settlement,
    SubmissionStatus,
)
from thread_objects.contract.reports import MaintenancePassReport, ObjectReport
from thread_objects.contract.states import Outcome
from thread_objects.contract.views import ThreadView

WHO_CHARS = 10
LANES_SHOWN = 8
OUTCOME_STYLES = {Outcome.COMPLETED: "bold green", Outcome.FAILED: "bold red", Outcome.ABORTED: "bold yellow"}


class Screen:
    """Where a command writes. Markup in foreign text is never interpreted, and no line is wrapped or cut."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)

    def line(self, text: str, style: str = "") -> None:
        """One line."""
        self._print(Text(text, style=style))

    def title(self, text: str) -> None:
        """A heading, with space above."""
        self.line("")
        self.line(text, "bold")

    def facts(self, pairs: Iterable[tuple[str, object]], *, indent: int = 0) -> None:
        """Aligned `name  value` lines; pairs without a value are left out."""
        told = [(name, str(value)) for name, value in pairs if value is not None and value != ""]
        width = max((len(name) for name, _ in told), default=0)
        for name, value in told:
            text = Text(" " * indent).append(f"{name:<{width}}  ", "dim").append(plain(value))
            self._print(text)

    def happened(self, line: Line, *, before: str = "") -> None:
        """One thing that happened, as `who  what`."""
        text = Text().append(before, "dim").append(f"{line.who:>{WHO_CHARS}}  ", "dim").append(line.what, line.style)
        self._print(text)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
        # What is followed through a pipe or written to a file is read while it happens.
        self._console.file.flush()

    def json(self, model: BaseModel) -> None:
        """A message as one line of JSON, in the contract's names."""
        self._console.file.write(model.model_dump_json(by_alias=True) + "\n")
        self._console.file.flush()

    # --- what commands answer ------------------------------------------------------------------------------------

    def receipt(self, receipt: PendingReceipt) -> None:
        """A Receipt, or what the sender of a signal holds."""
        admitted: list[tuple[str, object]] = [("admitted", "not told to who sends by signal; `threads status` knows")]
        if isinstance(receipt, Receipt):
            admitted = [
                ("sequence", receipt.queue_sequence),
                ("admitted", instant(receipt.admitted_at)),
                ("replayed", "yes, this key was admitted before" if receipt.replayed else None),
            ]
        self.facts(
            [
                ("receipt", receipt.receipt_id),
                ("submission", receipt.submission_id),
                ("thread", receipt.thread_id),
                ("principal", receipt.principal),
                ("key", receipt.key),
                *admitted,
            ]
        )

    def answer(self, answer: BaseModel, *, as_json: bool) -> None:
        """The answer of an operation, field by field."""
        if as_json:
            self.json(answer)
            return
        told = answer.model_dump(mode="json", by_alias=True)
        self.facts((name, instant(value) if name.endswith("At") else value) for name, value in told.items())

    def settlement(self, settlement: Settlement) -> None:
        """How a Submission ended."""
        self.line(str(settlement.outcome), OUTCOME_STYLES[settlement.outcome])
        usage = settlement.usage
        self.facts(
            [
                ("result", None if settlement.result is None else _whole(settlement.result)),
                ("content", "taken by retention" if settlement.redacted else None),
                ("error", settlement.diagnostic and settlement.diagnostic.error_tag),
                ("message", settlement.diagnostic and settlement.diagnostic.message),
                ("finish", settlement.finish_reason),
                ("limit", settlement.policy_limit or settlement.exhausted),
                ("submission", settlement.submission_id),
                ("settlement", settlement.settlement_id),
                ("settled", instant(settlement.settled_at)),
                ("usage", usage and _usage(usage.turns, usage.tool_calls, usage.input_tokens, usage.output_tokens)),
            ],
            indent=2,
        )

    def status(self, status: SubmissionStatus) -> None:
        """Where a Submission stands, and what it waits for."""
        notes = [
            note for note, holds in (("owned", status.owned), ("abort asked for", status.abort_requested)) if holds
        ]
        self.facts(
            [
                ("submission", status.submission_id),
                ("state", ", ".join([str(status.state), *notes])),
                ("agent", status.agent_id),
                ("thread", status.thread_id),
                ("sequence", status.queue_sequence),
                ("key", f"{status.key} (principal {status.principal})"),
                ("admitted", instant(status.admitted_at)),
            ]
        )
        self._pending("waits for approval", status.approvals)
        self._pending("outcome unknown", status.unknown_calls)
        if status.settlement is not None:
            self.settlement(status.settlement)

    def _pending(self, title: str, calls: tuple[Pending, ...]) -> None:
        for call in calls:
            self.line(f"{title}: {one_line(call.tool_name)}", "yellow")
            arguments = None if call.arguments is None else short(call.arguments, 1_000)
            self.facts(
                [
                    ("call", call.tool_call_id),
                    ("arguments", arguments),
                    ("turn", call.turn),
                    ("since", instant(call.since)),
                ],
                indent=2,
            )

    def record(self, record: LogRecord) -> None:
        """A log record, one or more lines."""
        for line in lines_of(record):
            self.happened(line, before=f"{record.sequence:>5}  {instant(record.created_at)}")

    def report(self, report: ObjectReport, *, now: int) -> None:
        """What is owed, what blocks it, and what happens next."""
        generation, alarm = report.generation, report.alarm
        owed = sum(thread.nonterminal for thread in report.threads)
        certified = generation.dirty == generation.processed
        self.facts(
            [
                ("object", report.object_id),
                ("owes", f"{owed} unsettled" if owed else "nothing"),
                ("generation", f"{generation.processed} of {generation.dirty}" + (" (certified)" if certified else "")),
                (
                    "next look",
                    _due(alarm.maintenance, now) if alarm.maintenance is not None else "when something comes",
                ),
                (
                    "alarms",
                    f"{alarm.alarms_total:,} set, the next one {_due(alarm.alarms[0].next_at, now)}"
                    if alarm.alarms
                    else None,
                ),
                ("extensions", _installed(report.installed)),
                ("inbox", f"{report.inbox} waiting, {report.inbox_bytes:,} bytes" if report.inbox else None),
                ("saturated", "yes: updates are answered busy" if report.saturated else None),
                ("applied", f"{report.applied_total:,} mutations, {report.settled_total:,} settled"),
                ("history", f"number {report.run_count}"),
                ("last failure", report.last_failure),
            ]
        )
        for thread in report.threads:
            self._thread(thread, now)
        for attempt in report.attempts:
            self.line(
                f"attempt running on {plain(attempt.thread_id)} for {lasting(max(0, now - attempt.since))}", "green"
            )
        for wait in report.binding_waits:
            told = f"{plain(wait.thread_id)} waits for a worker that binds agent {plain(wait.agent_id)!r}"
            self.line(f"{told} since {instant(wait.reported_at)}", "yellow")
        for fault in report.faults:
            told = f"fault on {plain(fault.thread_id)}: {fault.error_tag} in {fault.operation} ({fault.phase})"
            self.line(f"{told}, attempt {fault.attempts}, again {_due(fault.retry_at, now)}", "red")
        for told, style in _troubled(report, now):
            self.line(told, style)
        for refusal in report.refusals:
            told = f"refused signal {plain(refusal.name)!r}: {refusal.code}, {refusal.bytes:,} bytes"
            self.line(f"{told}, {instant(refusal.at)}, digest {refusal.digest[:16]}", "red")
        if report.passes:
            self.line("last passes", "dim")
            for done in report.passes:
                self.line(f"  {_pass(done)}", "red" if done.failure else "dim")

    def alarm(self, alarm: NamedAlarm, *, now: int) -> None:
        """An application alarm of the list."""
        self.line(f"{plain(alarm.tag)} {plain(alarm.alarm_id)}", "bold")
        self.facts(
            [
                ("runs", instant(alarm.run_at)),
                ("next", "a delivery runs" if alarm.delivering else _due(alarm.next_at, now)),
                ("tried", alarm.attempts or None),
                ("failure", alarm.failure),
                ("payload", None if alarm.payload is None else short(alarm.payload, 1_000)),
            ],
            indent=2,
        )

    def _thread(self, thread: ThreadView, now: int) -> None:
        head = thread.head
        told = f"thread {plain(thread.thread_id)}: {thread.nonterminal} unsettled"
        if head is not None:
            told += f", head {head.submission_id} is {head.state}" + (
                " with an abort asked for" if head.abort_requested else ""
            )
        self.line(told)
        for call in thread.open_calls:
            waits = "waits for approval" if call.waits_for == "approval" else "has an unknown outcome"
            told = f"  {one_line(call.tool_name)} {one_line(call.tool_call_id)} of {call.submission_id} {waits}"
            self.line(f"{told} for {lasting(max(0, now - call.since))}", "yellow")
        if thread.unknown:
            self.line(f"  {thread.unknown} parked with an Unknown Outcome, for an operator to resolve", "yellow")
        if thread.fault_retry_at is not None:
            self.line(f"  faulted, tried again {_due(thread.fault_retry_at, now)}", "red")


def _whole(value: object) -> str:
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _usage(turns: int, tool_calls: int, input_tokens: int | None, output_tokens: int | None) -> str:
    told = f"{_count(turns, 'turn')}, {_count(tool_calls, 'tool call')}"
    if input_tokens is not None or output_tokens is not None:
        told += f", {input_tokens or 0:,} tokens in, {output_tokens or 0:,} out"
    return told


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _due(at: int, now: int) -> str:
    return "now" if at <= now else f"in {lasting(at - now)}"


def _troubled(report: ObjectReport, now: int) -> Iterable[tuple[str, str]]:
    """Lanes whose waves fail, those that were set aside for it, and alarms that nobody took."""
    for failed in report.lane_failures:
        yield f"lane {plain(failed.lane)} failed {instant(failed.at)}: {plain(failed.failure)}", "red"
    for row in report.lanes:
        if row.state == "parked" and row.due_at is not None:
            yield f"lane {plain(row.id)} is parked, again {_due(row.due_at, now)}", "yellow"
    for standing in report.alarm.alarms:
        if standing.failure is not None:
            yield _undelivered(standing, now), "red"


def _installed(installed: Installed) -> str | None:
    """The waves of the workers, as this object learned of them."""
    named = {
        "publication": installed.publication,
        "projection": installed.projection,
        "messages": installed.message_timeout_ms is not None,
        "recovery events": installed.recovery_events,
    }
    lanes = [plain(lane.id) for lane in installed.lanes]
    shown = lanes if len(lanes) <= LANES_SHOWN else [*lanes[:LANES_SHOWN], f"and {len(lanes) - LANES_SHOWN} more lanes"]
    return ", ".join([*(name for name, there in named.items() if there), *shown]) or None


def _undelivered(alarm: AlarmStanding, now: int) -> str:
    told = f"alarm {plain(alarm.tag)} {plain(alarm.alarm_id)}: {plain(alarm.failure or '')}"
    return f"{told}, tried {alarm.attempts:,} times, again {_due(alarm.next_at, now)}"


def _pass(done: MaintenancePassReport) -> str:
    told = f"{instant(done.started_at)}  {done.phase}, {done.recovered} recovered, {done.settled} settled"
    told += (
        f", {done.nonterminal} unsettled, alarm {done.alarm}, took {lasting(max(0, done.ended_at - done.started_at))}"
    )
    return told + (f", failed: {one_line(done.failure)}" if done.failure else "")
