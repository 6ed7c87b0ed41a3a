"""The fetch core: positions, lookups, fetches and buffered records of a set of partitions, without any group.

`ConsumerCore` and `RangeCore` (the reader of Spark's tasks) each own one. The owner assigns partitions, calls `advance`
and `complete`, and takes records with `fill`. The core does no I/O and reads no clock.

Invariant (`validate`): for each partition, processed <= offset <= fetch_offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.delivery import Delivery
from ottla.clients.consumer.effects import EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.fetcher import Fetcher
from ottla.clients.consumer.offset_lookup import OffsetLookup
from ottla.clients.consumer.positions import PartitionState, Phase, Positions
from ottla.clients.consumer.requests import list_offsets_request
from ottla.clients.consumer.settings import FetchSettings
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.list_offsets import ListOffsetsRequest


class FetchCore:
    """Reads the assigned partitions from their positions on."""

    def __init__(self, settings: FetchSettings, view: ClusterView, outbox: Outbox) -> None:
        self.settings = settings
        self.view = view
        self.positions = Positions()
        self.lookup = OffsetLookup(settings, view, self.positions, outbox)
        self.delivery = Delivery(self.positions, outbox, skip_corrupt=settings.skip_corrupt)
        self._fetcher = Fetcher(settings, view, self.positions, outbox)
        self._outbox = outbox

    # -- the user's side ----------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. A partition that stays assigned keeps its position and buffer."""
        self.positions.replace(partitions)
        self.delivery.forget_unassigned()
        self._outbox.needs_advance = True

    def want(self) -> None:
        if self.positions.want():
            self._outbox.needs_advance = True

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Read `tp` from `offset` on. `epoch` is the leader epoch of the record before it, if known."""
        if offset < 0:
            raise ValueError(f"An offset must be 0 or more, not {offset}")
        self.positions.of(tp).seek(offset, epoch)
        self._outbox.needs_advance = True

    def reset(self, tp: TopicPartition, timestamp: int) -> None:
        self.positions.of(tp).reset(timestamp)
        self._outbox.needs_advance = True

    def seek_to_committed(self, tp: TopicPartition) -> None:
        self.positions.of(tp).forget()
        self._outbox.needs_advance = True

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.positions.of(tp) for tp in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.positions.of(tp) for tp in partitions]:
            state.paused = False
        self._outbox.needs_advance = True

    # -- the network's side -------------------------------------------------------------------------------------

    def advance(self, now_ms: float) -> None:
        self.lookup.advance(now_ms)
        self._fetcher.advance(now_ms)

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        machine = self.lookup if effect_id.owner is Owner.LOOKUPS else self._fetcher
        machine.complete(effect_id, outcome, now_ms)

    def next_timer_ms(self) -> float | None:
        return earliest(self.lookup.next_timer_ms, self._fetcher.next_timer_ms)

    def unpositioned(self, now_ms: float) -> tuple[list[PartitionState], float | None]:
        """Return the wanted partitions without a position, and when to look again for those that must wait."""
        due: list[PartitionState] = []
        next_ms: float | None = None
        for state in self.positions:
            if state.phase is not Phase.UNKNOWN or not state.wanted:
                continue
            if state.lookup.in_flight or state.lookup.error is not None:
                continue
            if now_ms < state.not_before_ms:
                next_ms = earliest(next_ms, state.not_before_ms)
            else:
                due.append(state)
        return due, next_ms

    def list_offsets_request(self, wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        settings = self.settings
        return list_offsets_request(wanted, self.view, settings.isolation_level, settings.request_timeout_ms)

    def validate(self) -> None:
        for state in self.positions:
            state.validate()
