"""The core of a range reader: the fetch core and the metadata of one topic, without I/O, clock or group."""

from __future__ import annotations

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.collectors import Collector
from ottla.clients.consumer.effects import Effect, EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.fetch_core import FetchCore
from ottla.clients.consumer.positions import LogBounds
from ottla.clients.consumer.settings import FetchSettings
from ottla.clients.consumer.topic_metadata import TopicMetadata
from ottla.common.ids import TopicPartition


class RangeCore:
    """Reads one range of offsets of one partition at a time. The caller is an `EffectRunner`."""

    def __init__(self, settings: FetchSettings, view: ClusterView) -> None:
        self.outbox = Outbox()
        self.fetch = FetchCore(settings, view, self.outbox)
        self._metadata = TopicMetadata(view, settings.backoff, self.outbox)
        self._view = view
        self._view_version = -1
        self._topics: frozenset[str] = frozenset()

    def begin(self, tp: TopicPartition, start: int, end: int) -> None:
        """Begin a range: fetch from `start`, and nothing beyond the fetch that reaches `end`."""
        self._topics = frozenset([tp.topic])
        self.fetch.assign([tp])
        self.fetch.want()
        state = self.fetch.positions.of(tp)
        state.end = end
        state.bounds = LogBounds()
        self.fetch.seek(tp, start)
        # A partition that the view does not have may be new: readers stay open between ranges.
        known = self._view.partitions(tp.topic)
        self._metadata.expedite(is_due=known is not None and tp.partition not in known)
        self._view_version = -1

    def fill(self, collector: Collector) -> None:
        error, self.outbox.poll_error = self.outbox.poll_error, None
        if error is not None:
            raise error
        self.fetch.delivery.fill(collector)

    @property
    def is_ready(self) -> bool:
        return self.outbox.poll_error is not None or self.fetch.delivery.is_ready

    def advance(self, now_ms: float) -> list[Effect]:
        self.outbox.needs_advance = False
        if self._view.version != self._view_version:
            self._view_version = self._view.version
            self._metadata.check_partitions(self.fetch.positions.assigned())
        self._metadata.advance(now_ms, topics=self._topics, requested=self._topics)
        self.fetch.advance(now_ms)
        return self.outbox.take()

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        if effect_id.owner is Owner.METADATA:
            self._metadata.complete(effect_id, outcome, now_ms)
        else:
            self.fetch.complete(effect_id, outcome, now_ms)

    def next_timer_ms(self) -> float | None:
        return earliest(self._metadata.next_timer_ms, self.fetch.next_timer_ms())
