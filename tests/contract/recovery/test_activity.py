"""The recover activity: one page, the worker's bindings, the Thread's view."""

from temporalio.testing import ActivityEnvironment

from activities.ledger import LedgerActivities
from activities.recovery import RecoveryActivities
from thread_objects.agents import Registry, ToolPolicy
from thread_objects.contract.activities import ApplyRequest, Item, RecoverRequest, SurveyRequest
from thread_objects.contract.messages import Submit
from thread_objects.contract.states import ResolutionKind, ToolClass
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.core.recovery import CompletedWithResult

from .lab import THREAD, declared
from .proxy import Proxied
from .test_crash_families import FAILURE


class Agent:
    """As much of a binding as recovery asks for."""

    id = "agent"
    digests: dict[str, str] = {}

    def __init__(self, policy: ToolPolicy) -> None:
        self._policy = policy

    def tool(self, _name):
        return self._policy


def activities(lab, policy=None):
    registry = Registry([] if policy is None else [Agent(policy)])
    return RecoveryActivities(
        lab.store, clock=lab.clock, registry=registry, view=RegistryView(key="reg-1", deployment=3)
    )


def run(lab, policy=None, attempt="recovery-1"):
    request = RecoverRequest(object_id=THREAD, thread_id=THREAD, producer_id="producer", attempt_id=attempt)
    return ActivityEnvironment().run(activities(lab, policy).recover, request)


def test_the_tools_reconciler_is_asked(lab):
    """REX-001: the binding's policy says who can be asked."""
    lab.lost(declared("c1"))
    answer = run(lab, ToolPolicy(reconciler=lambda call: CompletedWithResult(call.idempotency_key)))
    assert [d.disposition for d in answer.recovered.decisions] == ["repaired"]
    assert answer.view.thread_id == THREAD
    assert answer.registry.key == "reg-1"


def test_a_worker_without_the_binding_proves_nothing(lab):
    """Whoever could be asked is deployed elsewhere, or comes back."""
    lab.lost(declared("c1"))
    assert [d.disposition for d in run(lab).recovered.decisions] == ["deferred"]
    assert [d.disposition for d in run(lab, ToolPolicy(), "recovery-2").recovered.decisions] == ["unknown"]


def test_a_permission_holds_for_the_operation_it_was_given_for(lab):
    """A tool whose class changed since is another operation."""
    sid = lab.lost(declared("c1"))
    run(lab, ToolPolicy())
    lab.resolve(sid, "c1", ResolutionKind.SAFE_TO_RETRY)
    changed = run(lab, ToolPolicy(tool_class=ToolClass.IDEMPOTENT), "recovery-2")
    assert [d.disposition for d in changed.recovered.decisions] == ["unknown"]
    lab.clock.at += 1
    lab.resolve(sid, "c1", ResolutionKind.SAFE_TO_RETRY)
    same = run(lab, ToolPolicy(), "recovery-3")
    assert [d.disposition for d in same.recovered.decisions] == ["deferred"]


def test_a_survey_of_a_faulted_thread_tells_its_new_rows(lab):
    """SWP-021: in the native scan, and after a batch that brought them; a Thread without a fault pays nothing."""
    store = Proxied(lab.store)
    shell = LedgerActivities(store, clock=lab.clock, worker="w", registry=RegistryView())
    lab.submit("k1")
    look = SurveyRequest(object_id=THREAD)
    assert ActivityEnvironment().run(shell.survey, look).survey.event_sequence == 0
    assert "note_recipients" not in store.calls
    fault = lab.store.record_fault(THREAD, FAILURE, now=lab.clock.now()).fault
    lab.submit("k2")
    seen = ActivityEnvironment().run(shell.survey, look).survey
    assert (seen.event_sequence, seen.threads[0].fault_retry_at) == (2, fault.retry_at)
    submit = Submit(thread_id=THREAD, agent_id="agent", principal="p", key="k3", input="hi")
    batch = ApplyRequest(object_id=THREAD, batch_id="b", mark=9, applied_through=0, items=(Item(n=9, mutation=submit),))
    assert ActivityEnvironment().run(shell.apply_mutations, batch).survey.event_sequence == 3
    assert [event.transition for event in lab.store.recovery_events(THREAD, after=0, limit=9)] == ["created"] * 3


def test_a_sweep_uses_the_workers_bindings(lab):
    """The same recovery as a pass runs, over all Threads of the object."""
    lab.lost(declared("c1"))
    found = activities(lab, ToolPolicy(reconciler=lambda call: CompletedWithResult("x"))).run_recovery(
        THREAD, producer_id="producer", attempt_id="sweep"
    )
    assert [(d.decision, d.disposition) for d in found.reports] == [("MarkUnknown", "repaired")]
    assert ([report.thread_id for report in found.work_reports], found.cursor) == ([THREAD], None)


def test_a_repeated_activity_changes_nothing(lab):
    """Its steps are keyed; the second run finds them done."""
    sid = lab.lost(declared("c1"))
    run(lab, ToolPolicy())
    before = lab.log_length()
    assert [d.decision for d in run(lab, ToolPolicy()).recovered.decisions] == ["AwaitUnknownResolution"]
    assert lab.log_length() == before
    assert lab.state(sid) == "unknown"
