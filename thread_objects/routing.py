"""Messages to Threads, wherever they live: the placement says where a Thread should be, storage where it is.

Rule guarded: a message that storage would refuse needs no look-up; one that storage never sees does, once for a Thread.
A refusal that names the right object is followed once.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from thread_objects.contract import names
from thread_objects.contract.wire import Wire
from thread_objects.errors import NotFound, ThreadPlacedElsewhere
from thread_objects.objects import MET_MAX, Objects
from thread_objects.placement import Placement

T = TypeVar("T")

STORED = frozenset((names.SUBMIT, names.ABORT, names.RESOLVE_APPROVAL, names.RESOLVE_UNKNOWN))
"""Mutations that storage answers, and refuses where another object owns the Thread."""


class Routes:
    """`Objects`, addressed by thread id. Remembers the owners it has learnt, the last ones it spoke to."""

    def __init__(
        self, objects: Objects, placement: Placement, owner_of: Callable[[str], Awaitable[str | None]]
    ) -> None:
        self.objects = objects
        self._placement = placement
        self._owner_of = owner_of
        self._owners: OrderedDict[str, str] = OrderedDict()

    def object_id(self, thread_id: str) -> str:
        """As far as this client knows: the owner it has learnt, else the one that the placement says."""
        known = self._owners.get(thread_id)
        return self._placement.object_id(thread_id) if known is None else known

    async def owner(self, thread_id: str) -> str:
        """As storage says; for a Thread that it does not have, as the placement says."""
        stored = await self._owner_of(thread_id)
        if stored is None:
            return self._placement.object_id(thread_id)
        self.learn(thread_id, stored)
        return stored

    async def signal(self, thread_id: str, name: str, message: Wire) -> None:
        """Signal the Thread's object. Nobody could answer that it is another one's, so storage is asked before."""
        object_id = await self._located(thread_id)
        await self.objects.signal(object_id, name, message, shared=self._is_shared(thread_id, object_id))

    async def update(self, thread_id: str, name: str, message: Wire, answer: type[T], *, start: bool = False) -> T:
        """Update the Thread's object, and its typed answer."""

        async def ask(object_id: str) -> T:
            shared = self._is_shared(thread_id, object_id)
            return await self.objects.update(object_id, name, message, answer, start=start, shared=shared)

        if name not in STORED:
            return await ask(await self._located(thread_id))
        object_id = self.object_id(thread_id)
        try:
            result = await ask(object_id)
        except ThreadPlacedElsewhere as elsewhere:
            if elsewhere.object_id == object_id:
                raise
            self.learn(thread_id, elsewhere.object_id)
            return await ask(elsewhere.object_id)
        except NotFound:
            if not self._placement.shared or (owner := await self.owner(thread_id)) == object_id:
                raise
            return await ask(owner)
        if self._placement.shared:
            self.learn(thread_id, object_id)
        return result

    async def query(self, thread_id: str, name: str, argument: Any, answer: type[T]) -> T:
        """Query the Thread's object."""
        return await self.objects.query(await self._located(thread_id), name, argument, answer)

    async def _located(self, thread_id: str) -> str:
        if not self._placement.shared or thread_id in self._owners:
            return self.object_id(thread_id)
        return await self.owner(thread_id)

    def _is_shared(self, thread_id: str, object_id: str) -> bool:
        # An object of another name than its Thread's is a host, whoever starts it anew.
        return self._placement.shared or object_id != thread_id

    def learn(self, thread_id: str, object_id: str) -> None:
        """Somebody who knows said who owns the Thread."""
        self._owners[thread_id] = object_id
        self._owners.move_to_end(thread_id)
        while len(self._owners) > MET_MAX:
            self._owners.popitem(last=False)
