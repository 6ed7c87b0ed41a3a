"""Divides connectors and tasks over the workers of a group, and moves as few as possible (KIP-415). No I/O, no clock.

The leader calls `assign` in each rebalance with the work that each member has now. Rules, in this order:

1. Work that was deleted, or that two members have, is revoked.
2. If a worker left, its work waits for it for `max_delay_ms` (scheduled.rebalance.max.delay.ms): a worker that is
   restarted gets its work back, and nothing else moves. The wait ends earlier when as many workers are there as before.
3. Otherwise, members with more than their share lose the surplus. It is not assigned yet: a member that was revoked
   something stops it, and joins again; in that rebalance it is free. So no work runs on two workers.
4. Free work goes to the members with the least of it; of equal ones, to a new member. Connectors and tasks are counted
   each by themselves.

`Memory` is the leader's, between its rebalances; a new leader begins without, and then no work waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from ottla.connect.cluster.protocol import NO_WORK, Work
from ottla.connect.runtime import TaskId

T = TypeVar("T", bound=Hashable)


class Share(NamedTuple):
    """The result for one member."""

    added: Work = NO_WORK
    revoked: Work = NO_WORK


@dataclass(frozen=True)
class Memory:
    """The leader's knowledge of its last rebalance."""

    generation: int = -1
    members: frozenset[str] = frozenset()
    assigned: Work = NO_WORK
    """The work that was assigned then, and work that waited for its worker."""
    waits_until_ms: int | None = None
    waits_for: int = 0
    """How many workers there were before one left."""


class Result(NamedTuple):
    """The shares of all members, and when they have to join again (0: they need not)."""

    shares: Mapping[str, Share]
    delay_ms: int
    memory: Memory


@dataclass(frozen=True)
class Round:
    """The input of one rebalance."""

    configured: Work
    members: Mapping[str, Work]
    generation: int
    last_generation: int
    """The generation of the last rebalance that this member has completed."""
    now_ms: int
    max_delay_ms: int


def assign(round_: Round, memory: Memory) -> Result:
    """Divide the work. Every piece has one owner afterwards, waits for its worker, or is free in the next rebalance."""
    if memory.generation != round_.last_generation:
        # The result of the last rebalance did not reach the members: it says nothing of who had what.
        memory = replace(memory, assigned=NO_WORK)
    owned, revoked = _valid(round_)
    free = round_.configured - _all(owned)
    lost = free & memory.assigned
    memory = _waiting(round_, memory, lost)
    delay_ms = 0 if memory.waits_until_ms is None else memory.waits_until_ms - round_.now_ms
    if delay_ms == 0:
        for member, surplus in _surplus(round_.configured, owned).items():
            revoked[member] |= surplus
            owned[member] -= surplus
    else:
        free -= lost
    # Work that a member still has to stop is free in the next rebalance.
    free -= _all(revoked)
    known = memory.members
    shares = {member: Share(added, revoked[member]) for member, added in _spread(free, owned, known).items()}
    given = _all(owned) | free
    kept = memory if delay_ms else replace(memory, waits_until_ms=None, waits_for=0)
    assigned = given | lost if delay_ms else given
    new = replace(kept, generation=round_.generation, members=frozenset(round_.members), assigned=assigned)
    return Result(shares, delay_ms, new)


def _valid(round_: Round) -> tuple[dict[str, Work], dict[str, Work]]:
    """Return the work that members keep, and the work that was deleted or that several have."""
    seen = doubled = Work()
    for work in round_.members.values():
        doubled |= seen & work
        seen |= work
    owned = {member: (work & round_.configured) - doubled for member, work in round_.members.items()}
    revoked = {member: work - owned[member] for member, work in round_.members.items()}
    return owned, revoked


def _waiting(round_: Round, memory: Memory, lost: Work) -> Memory:
    """Begin, go on or end to wait for a worker that left."""
    over = replace(memory, waits_until_ms=None, waits_for=0)
    if not lost or round_.max_delay_ms <= 0:
        return over
    if memory.waits_until_ms is None:
        if memory.members <= round_.members.keys():  # a member has missed its assignment
            return over
        until_ms, before = round_.now_ms + round_.max_delay_ms, len(memory.members)
        memory = replace(memory, waits_until_ms=until_ms, waits_for=before)
    assert memory.waits_until_ms is not None
    is_over = round_.now_ms >= memory.waits_until_ms or len(round_.members) >= memory.waits_for
    return over if is_over else memory


def _surplus(configured: Work, owned: Mapping[str, Work]) -> dict[str, Work]:
    connectors = _over_share({member: work.connectors for member, work in owned.items()}, len(configured.connectors))
    tasks = _over_share({member: work.tasks for member, work in owned.items()}, len(configured.tasks))
    return {member: Work(connectors[member], tasks[member]) for member in owned}


def _over_share(owned: Mapping[str, frozenset[T]], total: int) -> dict[str, frozenset[T]]:
    """Return what each member has above its share. The members with the most may keep one more than the others."""
    least, extra = divmod(total, len(owned))
    surplus: dict[str, frozenset[T]] = {}
    for rank, member in enumerate(sorted(owned, key=lambda each: (-len(owned[each]), each))):
        share = least + 1 if rank < extra else least
        surplus[member] = frozenset(_sorted(owned[member])[share:])
    return surplus


def _spread(free: Work, owned: Mapping[str, Work], known: Collection[str]) -> dict[str, Work]:
    """Give free work to the members with the least; of equal ones, to a new member, which may have had it."""
    ranks = {
        member: (member in known, len(work.connectors) + len(work.tasks), member) for member, work in owned.items()
    }
    connectors = _fill(free.connectors, {member: len(work.connectors) for member, work in owned.items()}, ranks)
    tasks = _fill(free.tasks, {member: len(work.tasks) for member, work in owned.items()}, ranks)
    return {member: Work(connectors[member], tasks[member]) for member in owned}


def _fill(
    free: Collection[T], loads: dict[str, int], ranks: Mapping[str, tuple[bool, int, str]]
) -> dict[str, frozenset[T]]:
    given: dict[str, set[T]] = {member: set() for member in loads}
    for each in _sorted(free):
        member = min(loads, key=lambda name: (loads[name], ranks[name]))
        given[member].add(each)
        loads[member] += 1
    return {member: frozenset(work) for member, work in given.items()}


def _sorted(work: Collection[T]) -> list[T]:
    key: Callable[[Any], Any] = lambda each: each if isinstance(each, TaskId) else (each, -1)  # noqa: E731
    return sorted(work, key=key)


def _all(works: Mapping[str, Work]) -> Work:
    whole = Work()
    for work in works.values():
        whole |= work
    return whole
