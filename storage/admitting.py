"""Who may be admitted: groups, fences and the worker's own policy, judged for new keys only.

Rule guarded: everything is judged in the admission's own transaction, under the Thread's lock, so that what a judge
saw still holds when the row is written. A judge that fails refuses; it never lets anything pass.
"""

from thread_objects.admission import AdmissionJudge, AdmissionQuestion, AdmissionRules
from thread_objects.contract.limits import POLICY_CODE_CHARS_MAX
from thread_objects.contract.messages import Submit
from thread_objects.core.digests import EMPTY_TAIL
from thread_objects.errors import AdmissionPolicyError
from thread_objects.ports import Tail

from . import lanes
from .engine import Transaction

REFUSED = "refused"
UNAVAILABLE = "unavailable"
OCCUPIED = "occupied"


def judge(tx: Transaction, submit: Submit, lane: lanes.Lane | None, rules: AdmissionRules, *, nonterminal: int) -> None:
    """Raise `AdmissionPolicyError` unless this admission may pass."""
    facts = submit.facts
    question = AdmissionQuestion(
        submit=submit,
        nonterminal=nonterminal,
        queue_last=lane.queue_last if lane is not None else 0,
        tail=lane.tail if lane is not None else Tail(0, EMPTY_TAIL),
    )
    if facts is not None and facts.group is not None and _occupied(tx, submit.thread_id, facts.group):
        raise AdmissionPolicyError(reason=OCCUPIED, policy_code="group")
    if facts is not None and facts.fence is not None:
        if rules.fence is None:
            raise AdmissionPolicyError(reason=REFUSED, policy_code="unsupported-policy")
        _ask(rules.fence, question)
    if rules.policy is not None:
        _ask(rules.policy, question)


def _ask(asked: AdmissionJudge, question: AdmissionQuestion) -> None:
    try:
        asked(question)
    except AdmissionPolicyError as error:
        known = error.reason if error.reason in (REFUSED, UNAVAILABLE, OCCUPIED) else UNAVAILABLE
        raise AdmissionPolicyError(reason=known, policy_code=error.policy_code[:POLICY_CODE_CHARS_MAX]) from error
    except Exception as error:
        raise AdmissionPolicyError(reason=UNAVAILABLE, policy_code="policy-failed") from error


def _occupied(tx: Transaction, thread_id: str, group: str) -> bool:
    return (
        tx.one(
            "SELECT 1 FROM submissions WHERE thread_id = :thread_id AND admission_group = :group"
            " AND admission_group IS NOT NULL AND state <> 'settled'",
            {"thread_id": thread_id, "group": group},
        )
        is not None
    )
