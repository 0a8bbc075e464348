"""Explanations, verifications and obligations on a terminal."""

from thread_objects.cli.render import Screen
from thread_objects.cli.text import instant, lasting, one_line
from thread_objects.contract import operations as o
from thread_objects.contract.reports import Verification
from thread_objects.contract.states import CheckOutcome, Disposition

_SECOND_MS = 1_000
_STYLES = {
    Disposition.NONE: "green",
    Disposition.DEFERRED: "",
    Disposition.REPAIRED: "yellow",
    Disposition.UNKNOWN: "bold yellow",
}
_LATE = {o.Severity.OK: "", o.Severity.AGING: "yellow", o.Severity.OVERDUE: "bold red"}
_CHECKED = {CheckOutcome.PASSED: "green", CheckOutcome.FAILED: "bold red", CheckOutcome.SKIPPED: "dim"}
_NEXT = {
    Disposition.NONE: "nothing",
    Disposition.DEFERRED: "left to whoever it waits for",
    Disposition.REPAIRED: "recovery repairs it by itself",
    Disposition.UNKNOWN: "parked for somebody to say what happened",
}


class Insight:
    """Writes to a screen what an operator asked."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def explanation(self, found: o.Explanation) -> None:
        """One Submission: what it is, what it waits for, what happens next, and why that is known."""
        screen = self._screen
        screen.line(f"{found.decision}: {found.meaning}", _STYLES[found.disposition])
        owner = found.owner
        owned = owner and (
            f"{owner.attempt_id}, epoch {owner.epoch}, lease {'live' if owner.lease_live else 'over'}"
            f" ({instant(owner.lease_until)})"
        )
        behind = found.behind
        screen.facts(
            [
                ("submission", found.submission_id),
                ("state", f"{found.state}{f' {found.outcome}' if found.outcome else ''}"),
                ("next", f"{found.disposition}: {_NEXT[found.disposition]}"),
                ("agent", found.agent_id),
                ("principal", found.principal),
                ("sequence", found.queue_sequence),
                ("admitted", f"{_age(found.admitted_age_seconds)} ago"),
                ("in this state", _age(found.state_age_seconds)),
                ("owner", owned),
                ("claims", found.claims or None),
                (
                    "behind",
                    behind and f"{behind.count} others, first {behind.head_submission_id} ({behind.head_state})",
                ),
                ("host", found.host_submission_id),
                (
                    "abort",
                    found.abort and f"asked for by {one_line(found.abort.author)} {_age(found.abort.age_seconds)} ago",
                ),
                (
                    "details",
                    ", ".join(f"{name} {one_line(str(value))}" for name, value in found.details.items()),
                ),
                ("retry contract", found.retry_contract if found.retry_contract != "not-needed" else None),
            ],
            indent=2,
        )
        self._calls(found)
        self._evidence(found.evidence)
        self._blocked(found)

    def _calls(self, found: o.Explanation) -> None:
        for call in found.unknown_calls:
            marked = "outcome unknown" if call.marked else "may have happened"
            since = f" for {_age(call.age_seconds)}" if call.age_seconds is not None else ""
            told = ", a resolution is on record" if call.resolved else ""
            self._screen.line(
                f"  {marked}{since}: {one_line(call.tool_name)} {one_line(call.tool_call_id)}"
                f" (turn {call.turn}, {call.tool_class}){told}",
                "yellow",
            )
        for intent in found.unknown_intents:
            self._screen.line(
                f"  resolution stored: {one_line(intent.tool_call_id)} {intent.resolution}"
                f" by {one_line(intent.author)}, {instant(intent.resolved_at)}"
            )
        for approval in found.approvals:
            said = approval.decision or "undecided"
            kept = "" if approval.decision is None else ", canonical" if approval.canonical else ", not canonical yet"
            self._screen.line(
                f"  approval of {one_line(approval.tool_call_id)} (turn {approval.turn}): {said}{kept}", "yellow"
            )

    def _evidence(self, evidence: o.EvidenceView) -> None:
        batch = evidence.pending_batch
        self._screen.title("  evidence")
        self._screen.facts(
            [
                ("log", "exists" if evidence.thread_materialized else "missing"),
                ("input", "recorded" if evidence.input_recorded else "not recorded"),
                ("settlement", evidence.settlement_outcome),
                ("abort", "recorded" if evidence.abort_recorded else None),
                ("pending batch", batch and f"turn {batch.turn}, {batch.call_count} calls"),
                ("open calls", evidence.open_calls_total or None),
                ("delegations", ", ".join(map(one_line, evidence.open_delegations))),
                ("host settled", evidence.host_settlement_outcome),
            ],
            indent=4,
        )

    def _blocked(self, found: o.Explanation) -> None:
        if found.binding_wait is not None:
            self._screen.line(
                f"  no binding for agent {one_line(found.agent_id)!r} since {instant(found.binding_wait.reported_at)}:"
                " a worker with a new registry key gives it one opportunity",
                "yellow",
            )
        if found.fault is not None:
            self._fault(found.fault.error_tag, found.fault.operation, found.fault.retry_at)

    def _fault(self, tag: str, operation: str, retry_at: int) -> None:
        self._screen.line(f"  recovery failed: {tag} in {operation}, tried again {instant(retry_at)}", "red")

    def thread(self, found: o.ThreadExplanation) -> None:
        """A Thread, and a line or two for each unsettled Submission."""
        screen = self._screen
        screen.facts(
            [
                ("thread", found.thread_id),
                ("object", found.object_id if found.object_id != found.thread_id else None),
                ("owes", f"{found.view.nonterminal} unsettled" if found.view.nonterminal else "nothing"),
                ("log", f"{found.tail_sequence:,} records" if found.materialized else "missing"),
                ("epoch", found.epoch),
                ("created", f"{_age(found.created_age_seconds)} ago"),
                ("owner", found.owner_submission_id),
            ]
        )
        if found.fault is not None:
            self._fault(found.fault.error_tag, found.fault.operation, found.fault.retry_at)
        for row in found.submissions:
            screen.line(f"{row.queue_sequence:>5}  {row.submission_id}  {row.state}, {_age(row.admitted_age_seconds)}")
            screen.line(f"       {row.decision}: {row.meaning}", _STYLES[row.disposition])
            if row.binding_wait is not None:
                screen.line(f"       no binding for agent {one_line(row.agent_id)!r}", "yellow")
        for bad in found.unreadable:
            screen.line(f"  {bad.submission_id} cannot be read: {bad.decoder} at sequence {bad.sequence}", "red")
        if found.next_after is not None:
            screen.line(f"more: --after {found.next_after}", "dim")

    def verification(self, found: Verification) -> None:
        """Each check, and the first findings of those that failed."""
        screen = self._screen
        told = f"{found.records:,} records, {found.submissions:,} submissions"
        screen.line(f"{'whole' if found.ok else 'NOT WHOLE'}: {told}", "bold green" if found.ok else "bold red")
        for check in found.checks:
            reason = f": {one_line(check.reason)}" if check.reason and not check.details else ""
            screen.line(f"  {check.outcome:<8} {check.name}{reason}", _CHECKED[check.outcome])
            for detail in check.details:
                screen.line(f"             {one_line(detail)}", "red")
            if check.findings > len(check.details):
                screen.line(f"             and {check.findings - len(check.details):,} more", "red")

    def obligation(self, owed: o.Obligation) -> None:
        """One line."""
        notes = [
            note for note, holds in (("abort asked for", owed.abort_requested), ("faulted", owed.faulted)) if holds
        ]
        told = f"{owed.severity:<8} {owed.blocked_on:<16} {_age(owed.age_seconds):>12}  {one_line(owed.thread_id)}"
        more = f"  ({', '.join(notes)})" if notes else ""
        self._screen.line(
            f"{told}  {owed.submission_id}  {owed.state}, agent {one_line(owed.agent_id)}{more}", _LATE[owed.severity]
        )


def _age(seconds: int | None) -> str:
    return "" if seconds is None else lasting(seconds * _SECOND_MS)
