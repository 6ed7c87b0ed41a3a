"""Metrics of the coordinators: of the shards whose partition this node leads."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics import families as f
from ottla.common.slices import Slices
from ottla.coordinators.group.states import State as GroupState
from ottla.coordinators.transaction.states import State as TransactionState
from ottla.metrics.exposition import Samples, labelled

if TYPE_CHECKING:
    from ottla.coordination.coordinators import Coordinators
    from ottla.coordinators.group.shard import GroupShard

_BY_STATE: Final = {
    GroupState.EMPTY: f.GROUPS_EMPTY,
    GroupState.PREPARING: f.GROUPS_PREPARING,
    GroupState.COMPLETING: f.GROUPS_COMPLETING,
    GroupState.STABLE: f.GROUPS_STABLE,
    GroupState.DEAD: f.GROUPS_DEAD,
}
_AT_ONCE: Final = 200


def add_coordinators(samples: Samples, coordinators: Coordinators) -> Slices[None]:
    """Add groups, offsets, transactional ids and share states. A coordinator that does not exist yet has zeros."""
    created = coordinators.created
    yield from _add_groups(samples, [] if created.groups is None else created.groups.shards.shards())
    states: Counter[TransactionState] = Counter()
    for shard in [] if created.transactions is None else created.transactions.shards.shards():
        for number, metadata in enumerate(list(shard.transactions.values())):
            states[metadata.state] += 1
            if number % _AT_ONCE == 0:
                yield
    for state in TransactionState:
        samples.add(f.TRANSACTIONS, states[state], labelled(state=state.title))
    shares = [] if created.shares is None else created.shares.coordinator.shards.shards()
    samples.add(f.SHARE_STATES, sum(len(each.states) for each in shares))


def _add_groups(samples: Samples, shards: list[GroupShard]) -> Slices[None]:
    states: Counter[GroupState] = Counter()
    consumer = share = streams = offsets = 0
    for shard in shards:
        for number, group in enumerate(list(shard.groups.values())):
            states[group.state] += 1
            if number % _AT_ONCE == 0:
                yield
        consumer += len(shard.consumer_groups)
        share += len(shard.share_groups)
        streams += len(shard.streams_groups)
        offsets += len(shard.offsets)
        yield
    classic = sum(states.values())
    counted = {"classic": classic, "consumer": consumer, "share": share, "streams": streams}
    for protocol, count in counted.items():
        samples.add(f.GROUPS, count, labelled(protocol=protocol))
    samples.add(f.CLASSIC_GROUPS, classic)
    samples.add(f.GROUP_OFFSETS, offsets)
    for state, family in _BY_STATE.items():
        samples.add(family, states[state])
