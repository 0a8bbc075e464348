"""A batch of mutations in one transaction: each item answered or refused, none in the way of another.

Rule guarded: an item checks everything before it writes anything, so a refusal leaves no trace; and each item's effect
carries the batch's id and its arrival number, so that the same batch met again answers as the first time.
"""

from collections.abc import Mapping
from typing import assert_never

from thread_objects.admission import AdmissionRules
from thread_objects.contract.activities import ApplyAnswer, ApplyRequest, Item, ItemAnswer
from thread_objects.contract.messages import Abort, ResolveApproval, ResolveUnknown, Submit
from thread_objects.contract.views import Registry
from thread_objects.errors import StoreUnavailable, ThreadError

from . import aborts, admission, approvals, lanes, marks, surveys, unknown
from .engine import Transaction
from .lanes import refuse_elsewhere
from .limits import StoreLimits


def apply(
    tx: Transaction,
    request: ApplyRequest,
    *,
    worker: str,
    registry: Registry,
    limits: StoreLimits,
    rules: AdmissionRules,
    now: int,
) -> ApplyAnswer:
    """Apply the items in order, leave the object's mark, and read its survey."""
    threads = {item.mutation.thread_id for item in request.items}
    placed = lanes.lock_all(tx, threads)
    answers = tuple(
        _apply_item(tx, item, request, placed, registry=registry, limits=limits, rules=rules, now=now)
        for item in request.items
    )
    marks.leave(tx, request, worker=worker, now=now)
    tx.notify = True
    survey = (
        surveys.touched(tx, request.object_id, threads)
        if request.shared_host
        else surveys.survey(tx, request.object_id)
    )
    return ApplyAnswer(answers=answers, survey=survey, registry=registry)


def _apply_item(
    tx: Transaction,
    item: Item,
    request: ApplyRequest,
    placed: Mapping[str, str],
    *,
    registry: Registry,
    limits: StoreLimits,
    rules: AdmissionRules,
    now: int,
) -> ItemAnswer:
    source = f"{request.batch_id}/{item.n}"
    mutation = item.mutation
    if tx.careful:
        tx.run("SAVEPOINT item", {})  # only a careful run can find a conflict after it has written
    try:
        refuse_elsewhere(mutation.thread_id, placed.get(mutation.thread_id), request.object_id)
        match mutation:
            case Submit():
                receipt, progress = admission.admit(
                    tx,
                    mutation,
                    request.object_id,
                    source=source,
                    limits=limits,
                    rules=rules,
                    deployment_id=registry.key,
                    now=now,
                    shared_host=request.shared_host,
                )
                return ItemAnswer(n=item.n, receipt=receipt, progress=progress)
            case Abort():
                intent, progress, running = aborts.request(
                    tx, mutation, source=source, deployment_id=registry.key, now=now
                )
                return ItemAnswer(n=item.n, abort=intent, progress=progress, cancel_submission=running)
            case ResolveApproval():
                decided, progress = approvals.resolve(tx, mutation, source=source, now=now)
                return ItemAnswer(n=item.n, approval=decided, progress=progress)
            case ResolveUnknown():
                resolved, progress, running = unknown.resolve(
                    tx, mutation, source=source, deployment_id=registry.key, now=now
                )
                return ItemAnswer(n=item.n, unknown=resolved, progress=progress, cancel_submission=running)
            case _:
                assert_never(mutation)
    except StoreUnavailable:
        raise
    except ThreadError as error:
        if tx.careful:
            tx.run("ROLLBACK TO SAVEPOINT item", {})
        return ItemAnswer(n=item.n, refusal=error.refusal())
