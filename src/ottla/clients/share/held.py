"""The records that a poll returned and that are not acknowledged yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ottla.clients.consumer.record import Record
from ottla.clients.errors import NotAssigned
from ottla.clients.share.acknowledgements import AcknowledgeType
from ottla.clients.share.buffer import Acquired, Source
from ottla.common.ids import TopicPartition


class HeldRecords:
    """The held records, the acknowledgements that are given but not sent, and the records that were renewed."""

    def __init__(self) -> None:
        self._acquired: dict[TopicPartition, dict[int, Acquired]] = {}
        self._types: dict[TopicPartition, dict[int, AcknowledgeType]] = {}
        self._renewed: set[tuple[TopicPartition, int]] = set()

    def add(self, record: Record[Any, Any], acquired: Acquired) -> None:
        self._acquired.setdefault(record.topic_partition, {})[record.offset] = acquired
        self._renewed.discard((record.topic_partition, record.offset))

    def give_back(self, record: Record[Any, Any]) -> Acquired:
        """The record does not reach the user."""
        return self._acquired[record.topic_partition].pop(record.offset)

    def has(self, tp: TopicPartition, offset: int) -> bool:
        return offset in self._acquired.get(tp, {})

    def offsets(self, tp: TopicPartition) -> list[int]:
        return list(self._acquired.get(tp, {}))

    def delivery_count(self, tp: TopicPartition, offset: int) -> int:
        """How often a record was delivered, this time included. Raises NotAssigned."""
        self._check(tp, offset)
        return self._acquired[tp][offset].delivery_count

    def acknowledge(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Give an acknowledgement, in place of an earlier one. Raises NotAssigned."""
        self._check(tp, offset)
        self._types.setdefault(tp, {})[offset] = kind

    def _check(self, tp: TopicPartition, offset: int) -> None:
        if not self.has(tp, offset):
            raise NotAssigned(f"This consumer does not hold {tp} at offset {offset}: it is acknowledged already")

    def unacknowledged(self) -> list[tuple[TopicPartition, int]]:
        return [
            (tp, offset)
            for tp, offsets in self._acquired.items()
            for offset in offsets
            if offset not in self._types.get(tp, {}) and (tp, offset) not in self._renewed
        ]

    def accept_all(self) -> None:
        """Accept the records without an acknowledgement."""
        for tp, offsets in self._acquired.items():
            given = self._types.setdefault(tp, {})
            for offset in offsets:
                given.setdefault(offset, AcknowledgeType.ACCEPT)

    def take_acknowledgements(self) -> Iterator[tuple[Source, dict[int, int]]]:
        """Yield the acknowledgements by the source of their records. Only records that are renewed stay held."""
        types, self._types = self._types, {}
        for tp, given in types.items():
            held = self._acquired[tp]
            for source in {held[offset].source for offset in given}:
                yield source, {o: int(kind) for o, kind in given.items() if held[o].source == source}
            for offset, kind in given.items():
                if kind is AcknowledgeType.RENEW:
                    self._renewed.add((tp, offset))
                else:
                    self._renewed.discard((tp, offset))
                    del held[offset]
            if not held:
                del self._acquired[tp]

    def acknowledgements_failed(self, tp: TopicPartition, types: Mapping[int, int]) -> None:
        """Drop the records whose renewal failed: they are not locked any more."""
        held = self._acquired.get(tp, {})
        for offset, kind in types.items():
            if kind == AcknowledgeType.RENEW and (tp, offset) in self._renewed:
                self._renewed.discard((tp, offset))
                held.pop(offset, None)
                self._types.get(tp, {}).pop(offset, None)
        if not held:
            self._acquired.pop(tp, None)
            self._types.pop(tp, None)

    def validate(self, buffered: Collection[tuple[TopicPartition, int]]) -> None:
        for tp, offsets in self._types.items():
            assert offsets.keys() <= self._acquired.get(tp, {}).keys(), "only held records are acknowledged"
        held = {(tp, offset) for tp, offsets in self._acquired.items() for offset in offsets}
        assert not (held - self._renewed).intersection(buffered), "a record is returned once for each delivery"
