"""The authoriser is asked first, and only its None allows anything."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from activities.ledger import LedgerActivities
from activities.operating import OperatorActivities
from thread_objects.agents import Registry
from thread_objects.authorising import (
    ALLOWS_ALL,
    Authorisation,
    OperationRequest,
    authorisation,
    load_authoriser,
)
from thread_objects.client import ThreadClient
from thread_objects.contract import ids, limits
from thread_objects.contract.activities import ApplyAnswer, ApplyRequest, Item, ItemAnswer, ReadAnswer, ReadRequest
from thread_objects.contract.messages import Abort, Mutation, PendingReceipt, ResolveApproval, ResolveUnknown, Submit
from thread_objects.contract.operations import InspectRequest, ObligationsQuery, Operation, RetryRequest
from thread_objects.contract.states import Decision, ResolutionKind
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.contract.views import Survey
from thread_objects.errors import ConfigError, OperationDenied
from thread_objects.settings import Settings

MINE, THEIRS = "tenant-a/orders", "tenant-b/orders"
SUBMISSION = ids.submission_id(THEIRS, "bob", "k")


def tenant_a(request: OperationRequest) -> str | None:
    """Allows what is tenant A's, by the Thread's name."""
    mine = request.thread_id is not None and request.thread_id.startswith("tenant-a/")
    return None if mine else "not your tenant's"


class Untouchable:
    """Stands for everything that reads or writes: whoever touches it has failed the test."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was reached before permission was given")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> ThreadClient:
    """A client of tenant A whose server and database may not be touched."""
    settings = Settings(database_url="sqlite:////nowhere/threads.db", caller="ann")
    client = ThreadClient(Untouchable(), settings, authoriser=tenant_a)  # type: ignore[arg-type]
    for part in ("_objects", "_reading", "_inspecting", "_watch", "_awaiting"):
        monkeypatch.setattr(client, part, Untouchable())
    return client


def receipt() -> PendingReceipt:
    """A Receipt of tenant B's, whole."""
    return PendingReceipt(
        thread_id=THEIRS,
        principal="bob",
        key="k",
        submission_id=SUBMISSION,
        receipt_id=ids.receipt_id(THEIRS, "bob", "k"),
        run_id=ids.run_id(SUBMISSION),
    )


async def first(stream: AsyncIterator[Any]) -> Any:
    """The first element."""
    return await anext(stream)


AT_THE_DATABASE = {
    Operation.EXPORT,
    Operation.IMPORT,
    Operation.RETAIN,
    Operation.RESTORE_FENCE,
    Operation.REBUILD_WORK,
}
"""What `ThreadDatabase` asks about; see test_database.py."""


ATTEMPTS: dict[str, tuple[Operation, Callable[[ThreadClient], Awaitable[Any]]]] = {
    "explain": (Operation.EXPLAIN, lambda c: c.explain(SUBMISSION, thread_id=THEIRS)),
    "explain by id alone": (Operation.EXPLAIN, lambda c: c.explain(SUBMISSION)),
    "explain by receipt": (Operation.EXPLAIN, lambda c: c.explain(receipt())),
    "explainThread": (Operation.EXPLAIN_THREAD, lambda c: c.explain_thread(THEIRS)),
    "verify": (Operation.VERIFY, lambda c: c.verify(THEIRS)),
    "retry": (Operation.RETRY, lambda c: c.retry(SUBMISSION, author="ann", reason="r", thread_id=THEIRS)),
    "retry by id alone": (Operation.RETRY, lambda c: c.retry(SUBMISSION, author="ann", reason="r")),
    "wake": (Operation.WAKE, lambda c: c.wake(THEIRS)),
    "scanObligations": (Operation.SCAN_OBLIGATIONS, lambda c: c.scan_obligations(60, 600, thread_id=THEIRS)),
    "scanObligations of all": (Operation.SCAN_OBLIGATIONS, lambda c: c.scan_obligations(60, 600)),
    "observe: log": (Operation.OBSERVE, lambda c: c.log(THEIRS)),
    "observe: follow": (Operation.OBSERVE, lambda c: first(c.follow(THEIRS))),
    "observe: awaitProgress": (Operation.OBSERVE, lambda c: c.await_progress(THEIRS)),
    "awaitSettlement": (Operation.AWAIT_SETTLEMENT, lambda c: c.wait(SUBMISSION, thread_id=THEIRS)),
    "awaitSettlement by id alone": (Operation.AWAIT_SETTLEMENT, lambda c: c.wait(SUBMISSION)),
    "awaitSettlement by receipt": (Operation.AWAIT_SETTLEMENT, lambda c: c.wait(receipt())),
    "abort": (Operation.ABORT, lambda c: c.abort(THEIRS, SUBMISSION, author="ann", reason="r")),
    "resolveUnknown": (
        Operation.RESOLVE_UNKNOWN,
        lambda c: c.resolve_unknown(THEIRS, SUBMISSION, "c", ResolutionKind.NEVER_HAPPENED, author="ann"),
    ),
    "resolveApproval": (
        Operation.RESOLVE_APPROVAL,
        lambda c: c.resolve_approval(THEIRS, SUBMISSION, "c", Decision.APPROVED, resolver="ann"),
    ),
    "status": (Operation.STATUS, lambda c: c.status(SUBMISSION)),
    "find": (Operation.STATUS, lambda c: c.find(THEIRS, "bob", "k")),
    "report": (Operation.REPORT, lambda c: c.report(THEIRS)),
    "object id": (Operation.REPORT, lambda c: c.object_id(THEIRS)),
    "object report": (Operation.REPORT, lambda c: c.object_report(THEIRS)),
    "recovery status": (Operation.EXPLAIN, lambda c: c.recovery_status(THEIRS)),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_another_tenants_ids_are_denied_before_anything_is_touched(client: ThreadClient, attempt: str):
    """F25, ADM-025: every operation of the list, with another tenant's ids, is denied before any read or write."""
    operation, act = ATTEMPTS[attempt]
    with pytest.raises(OperationDenied) as denied:
        await act(client)
    assert denied.value.operation == operation.value
    assert denied.value.reason == "not your tenant's"
    assert denied.value.submission_id in (SUBMISSION, None)


def test_the_list_of_operations_is_whole():
    """Every operation that a client offers is in the list above; export and import are the database's."""
    assert {operation for operation, _ in ATTEMPTS.values()} == set(Operation) - AT_THE_DATABASE


async def test_a_receipt_with_mixed_ids_is_denied(client: ThreadClient):
    """ADM-027: ids of two Receipts make none, whosever they are; nothing is read."""
    mine = {"thread_id": MINE, "principal": "ann", "key": "k"}
    for mixed in (mine, {**mine, "submission_id": "s"}, {"receipt_id": "r"}, {"run_id": "run:x"}):
        with pytest.raises(OperationDenied) as denied:
            await client.wait(receipt().model_copy(update=mixed))
        assert denied.value.operation == "awaitSettlement"
        assert "belong together" in denied.value.reason


async def test_what_is_asked_names_operation_caller_and_ids():
    """The author of a mutation is its caller; a read's is the client's own, or who it acts as."""
    asked: list[OperationRequest] = []

    def note(request: OperationRequest) -> str:
        asked.append(request)
        return "no"

    client = ThreadClient(Untouchable(), Settings(caller="ann"), authoriser=note)  # type: ignore[arg-type]
    for act in (
        client.abort(MINE, "s", author="bob", reason=""),
        client.acting_as("eve").explain("s", thread_id=MINE),
        client.log(MINE),
    ):
        with pytest.raises(OperationDenied):
            await act
    assert asked == [
        OperationRequest(Operation.ABORT, "bob", MINE, "s"),
        OperationRequest(Operation.EXPLAIN, "eve", MINE, "s"),
        OperationRequest(Operation.OBSERVE, "ann", MINE),
    ]


# --- only None allows ------------------------------------------------------------------------------------------------


async def _later_none(_request: OperationRequest) -> str | None:
    await asyncio.sleep(0)
    return None


async def _later_no(_request: OperationRequest) -> str | None:
    await asyncio.sleep(0)
    return "no"


class _Callable:
    async def __call__(self, _request: OperationRequest, /) -> str | None:
        return "no"


class _HandsOver:
    def __call__(self, request: OperationRequest, /) -> Awaitable[str | None]:
        return _later_none(request)


def _raises(error: BaseException) -> Callable[[OperationRequest], str | None]:
    def authoriser(_request: OperationRequest) -> str | None:
        raise error

    return authoriser


SAID: list[tuple[Any, str | None]] = [
    (lambda _: None, None),
    (_later_none, None),
    (_HandsOver(), None),
    (lambda _: "no", "no"),
    (_later_no, "no"),
    (_Callable(), "no"),
    (lambda _: "", "denied"),
    (lambda _: True, "the authoriser answered bool, which allows nothing"),
    (lambda _: False, "the authoriser answered bool, which allows nothing"),
    (lambda _: "x" * 10_000, "x" * limits.DENIAL_CHARS_MAX),
    (_raises(ValueError("secret")), "the authoriser failed (ValueError)"),
    (_raises(StopIteration()), None),
    (_raises(SystemExit(1)), None),
]


@pytest.mark.parametrize(("authoriser", "reason"), SAID)
async def test_only_none_allows(authoriser: Any, reason: str | None):
    """Text denies with itself, bounded; anything else, and every failure, denies without telling what it held."""
    asked = Authorisation(authoriser, timeout_ms=500)
    allows = authoriser in [said for said, _ in SAID[:3]]
    request = OperationRequest(Operation.VERIFY, "ann", MINE)
    (refusal,) = await asyncio.to_thread(asked.refusals, [request])
    if allows:
        await asked.check(Operation.VERIFY, "ann", MINE)
        assert refusal is None
        return
    with pytest.raises(OperationDenied) as denied:
        await asked.check(Operation.VERIFY, "ann", MINE)
    assert refusal is not None
    for found in (denied.value, refusal):
        assert "secret" not in found.message
        assert reason in (None, found.reason)
        assert found.fields["thread_id"] == MINE


async def test_an_authoriser_that_hangs_denies_in_time():
    """No answer within the bound is a denial, for one and for a whole batch together; the hung thread holds nobody."""
    hung = threading.Event()
    answers = {"quick": None}

    def authoriser(request: OperationRequest) -> str | None:
        if request.caller not in answers:
            hung.wait(30)
        return answers[request.caller]

    asked = Authorisation(authoriser, timeout_ms=100)
    with pytest.raises(OperationDenied, match="in time"):
        await asked.check(Operation.WAKE, "slow", MINE)
    batch = [OperationRequest(Operation.WAKE, caller) for caller in ("quick", "slow", "slow", "quick")]
    refusals = await asyncio.wait_for(asyncio.to_thread(asked.refusals, batch), 5)
    assert [refusal is None for refusal in refusals] == [True, False, False, False]
    hung.set()


async def test_without_an_authoriser_everything_is_allowed_and_said_once(caplog: pytest.LogCaptureFixture):
    """The default allows, costs no thread, and says so at start."""
    with caplog.at_level(logging.INFO, "thread_objects"):
        asked = authorisation(None, None)
    assert [record.message for record in caplog.records] == [ALLOWS_ALL]
    await asked.check(Operation.ABORT, "x", THEIRS)
    assert asked.refusals([OperationRequest(Operation.ABORT, "x", THEIRS)]) == [None]
    assert not asked.installed
    assert authorisation(tenant_a, None).installed


def test_the_authoriser_of_the_settings_is_loaded_or_nothing_opens():
    """A path that names nothing callable is a bad setting, before anything is opened."""
    assert load_authoriser("tests.unit.test_authorising:tenant_a") is tenant_a
    for path in ("nonsense", "tests.unit.no_such_module:x", "tests.unit.test_authorising:MINE", "tests.unit:nobody"):
        with pytest.raises(ConfigError, match="authoriser"):
            load_authoriser(path)


# --- a worker's --------------------------------------------------------------------------------------------------------


class Clock:
    """A fixed instant."""

    def now(self) -> int:
        """It."""
        return 1


class SpyStore:
    """Remembers the items that reached storage."""

    def __init__(self) -> None:
        self.applied: list[Mutation] = []
        self.surveyed = 0

    def apply(self, request: ApplyRequest, **_: Any) -> ApplyAnswer:
        """Apply."""
        self.applied += [item.mutation for item in request.items]
        return ApplyAnswer(
            answers=tuple(ItemAnswer(n=item.n, progress=True) for item in request.items), survey=Survey()
        )

    def survey(self, _object_id: str) -> Survey:
        """Survey."""
        self.surveyed += 1
        return Survey()


def batch(*mutations: Mutation) -> ApplyRequest:
    """A batch of the pump's."""
    items = tuple(Item(n=n, mutation=mutation) for n, mutation in enumerate(mutations, start=5))
    return ApplyRequest(object_id="o", batch_id="b", mark=1, applied_through=0, items=items)


def mutations(thread: str) -> list[Mutation]:
    """One of each kind that needs permission."""
    sid = "s"
    return [
        Abort(thread_id=thread, submission_id=sid, author="eve", reason=""),
        ResolveApproval(
            thread_id=thread, submission_id=sid, tool_call_id="c", decision=Decision.APPROVED, resolver="eve"
        ),
        ResolveUnknown(
            thread_id=thread,
            submission_id=sid,
            tool_call_id="c",
            resolution=ResolutionKind.NEVER_HAPPENED,
            author="eve",
        ),
    ]


def ledger(store: Any, authoriser: Any = tenant_a) -> LedgerActivities:
    """The storage activities of a worker with an authoriser."""
    asked = Authorisation(authoriser) if authoriser is not None else None
    return LedgerActivities(store, clock=Clock(), worker="w", registry=RegistryView(), authorisation=asked)


def test_a_workers_authoriser_stands_before_storage():
    """F25: whoever sent it and however, an abort or a decision on another tenant's Thread never reaches storage."""
    store = SpyStore()
    answer = ledger(store).apply_mutations(batch(*mutations(THEIRS)))
    assert store.applied == []
    assert [item.n for item in answer.answers] == [5, 6, 7]
    for item in answer.answers:
        assert item.refusal is not None
        assert item.refusal.code == "OperationDenied"
        assert not item.progress


def test_a_denied_item_is_in_nobodys_way():
    """The allowed items of a batch are applied in order; a submission is not asked about."""
    store = SpyStore()
    submitted = Submit(thread_id=THEIRS, agent_id="a", principal="p", key="k", input=1)
    (theirs, *_), (mine, *_) = mutations(THEIRS), mutations(MINE)
    answer = ledger(store).apply_mutations(batch(theirs, submitted, mine))
    assert store.applied == [submitted, mine]
    assert [(item.n, item.refusal is None) for item in answer.answers] == [(5, False), (6, True), (7, True)]


def test_a_worker_without_an_authoriser_asks_nobody():
    """Zero cost: the request reaches storage as it is."""
    store = SpyStore()
    request = batch(*mutations(THEIRS))
    ledger(store, None).apply_mutations(request)
    assert store.applied == [item.mutation for item in request.items]


def test_reads_through_a_worker_are_asked_for_by_what_they_read():
    """F25: a client that bypasses its own authoriser reads nothing of another tenant's through a worker's."""
    asked: list[OperationRequest] = []

    def note(request: OperationRequest) -> str:
        asked.append(request)
        return "no"

    reads = ledger(Untouchable(), note)
    operator = OperatorActivities(
        Untouchable(),  # type: ignore[arg-type]
        clock=Clock(),
        registry=Registry([]),
        view=RegistryView(),
        authorisation=Authorisation(note),
    )
    query = ObligationsQuery(aging_seconds=1, overdue_seconds=1, thread_id=THEIRS)
    calls: list[tuple[Callable[[Any], Any], Any]] = [
        (reads.read, ReadRequest(submission_id="s", thread_id=THEIRS, caller="eve")),
        (reads.read, ReadRequest(submission_id="s", operation="awaitSettlement", caller="eve")),
        (reads.read, ReadRequest(thread_id=THEIRS, principal="p", key="k", operation="wake", caller="eve")),
        (reads.read, ReadRequest(thread_id=THEIRS, limit=5, operation="wake", caller="eve")),
        (operator.inspect, InspectRequest(operation=Operation.EXPLAIN, submission_id="s", caller="eve")),
        (operator.inspect, InspectRequest(operation=Operation.SCAN_OBLIGATIONS, obligations=query, caller="eve")),
        (
            operator.retry,
            RetryRequest(
                object_id="o",
                thread_id=THEIRS,
                submission_id="s",
                author="eve",
                reason="r",
                producer_id="p",
                attempt_id="a",
            ),
        ),
    ]
    for activity, request in calls:
        with pytest.raises(Exception, match="operation denied"):
            activity(request)
    assert [(request.operation, request.thread_id) for request in asked] == [
        (Operation.STATUS, THEIRS),
        (Operation.AWAIT_SETTLEMENT, None),
        (Operation.STATUS, THEIRS),
        (Operation.OBSERVE, THEIRS),
        (Operation.EXPLAIN, None),
        (Operation.SCAN_OBLIGATIONS, THEIRS),
        (Operation.RETRY, THEIRS),
    ]
    assert {request.caller for request in asked} == {"eve"}


def test_an_allowed_read_is_answered():
    """Permission given, the store answers as ever."""

    class Store:
        def read(self, _request: ReadRequest) -> ReadAnswer:
            return ReadAnswer()

    assert ledger(Store()).read(ReadRequest(thread_id=MINE, limit=1)) == ReadAnswer()
