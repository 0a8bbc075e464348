"""What a worker asks its authoriser before it touches storage for somebody: the same for every way in.

Submitting is not asked about: admission has rules of its own.
"""

from collections.abc import Iterable
from typing import assert_never

from thread_objects.authorising import Authorisation, OperationRequest
from thread_objects.contract.activities import Item, ItemAnswer, ReadRequest
from thread_objects.contract.messages import Abort, Mutation, ResolveApproval, ResolveUnknown, Submit
from thread_objects.contract.operations import InspectRequest, Operation, RetryRequest


def denials(authorisation: Authorisation, items: Iterable[Item]) -> dict[int, ItemAnswer]:
    """The answers to the items that are denied, by their numbers."""
    asked = [(item.n, request) for item in items if (request := asked_by_mutation(item.mutation)) is not None]
    refusals = authorisation.refusals([request for _, request in asked]) if asked else []
    return {
        n: ItemAnswer(n=n, refusal=refusal.refusal())
        for (n, _), refusal in zip(asked, refusals, strict=True)
        if refusal is not None
    }


def asked_by_mutation(mutation: Mutation) -> OperationRequest | None:
    """What a mutation asks permission for. None for a submission."""
    match mutation:
        case Submit():
            return None
        case Abort():
            operation, caller = Operation.ABORT, mutation.author
        case ResolveApproval():
            operation, caller = Operation.RESOLVE_APPROVAL, mutation.resolver
        case ResolveUnknown():
            operation, caller = Operation.RESOLVE_UNKNOWN, mutation.author
        case _:
            assert_never(mutation)
    return OperationRequest(operation, caller, mutation.thread_id, mutation.submission_id)


def asked_by_read(request: ReadRequest) -> OperationRequest:
    """What a read asks permission for, by what it reads: what it says of itself only tells a wait from a look."""
    if request.submission_id is None and request.key is None:
        operation = Operation.OBSERVE
    elif request.operation == Operation.AWAIT_SETTLEMENT and request.limit == 0:
        operation = Operation.AWAIT_SETTLEMENT
    else:
        operation = Operation.STATUS
    return OperationRequest(operation, request.caller, request.thread_id, request.submission_id)


def asked_by_inspection(request: InspectRequest) -> OperationRequest:
    """What an operator's question asks permission for."""
    thread_id = request.thread_id
    if request.obligations is not None and thread_id is None:
        thread_id = request.obligations.thread_id
    return OperationRequest(request.operation, request.caller, thread_id, request.submission_id)


def asked_by_retry(request: RetryRequest) -> OperationRequest:
    """What a retry asks permission for."""
    return OperationRequest(Operation.RETRY, request.author, request.thread_id, request.submission_id)
