"""Plans and methods about the logs of partitions: batches as a consumer reads them, and the ends of leader epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from ottla.clients.admin.core import Call, Plan, Route, every
from ottla.clients.admin.model import EpochEnd, FetchedBatches
from ottla.clients.errors import BrokerError, error_for
from ottla.common.ids import TopicPartition, by_topic
from ottla.protocol.message import Message
from ottla.protocol.messages import fetch, offset_for_leader_epoch

R = TypeVar("R")

CONSUMER: Final = -1
# Newer versions have topic ids instead of names.
LAST_FETCH_WITH_NAMES: Final = 12


def batches(offsets: Mapping[TopicPartition, int], max_bytes: int) -> Call[TopicPartition, FetchedBatches]:
    """Fetch up to `max_bytes` of each partition, or its first batch if that is larger."""

    def request(keys: Sequence[TopicPartition]) -> Message:
        topics = [
            fetch.FetchTopic(
                topic=name,
                partitions=[
                    fetch.FetchPartition(
                        partition=index,
                        fetch_offset=offsets[TopicPartition(name, index)],
                        partition_max_bytes=max_bytes,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(keys).items()
        ]
        return fetch.FetchRequest(replica_id=CONSUMER, max_bytes=max_bytes * len(keys), topics=topics)

    def read(response: Any, keys: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, Any]]:
        if response.error_code:
            yield from ((key, error_for(response.error_code)) for key in keys)
        for topic in response.responses:
            for row in topic.partitions:
                key = TopicPartition(topic.topic, row.partition_index)
                if row.error_code:
                    yield key, error_for(row.error_code)
                    continue
                yield key, FetchedBatches(bytes(row.records or b""), row.log_start_offset, row.high_watermark)

    return Call(Route.LEADERS, list(offsets), request, read, version_limit=LAST_FETCH_WITH_NAMES, version_least=5)


def ends_of_epochs(epochs: Mapping[TopicPartition, int]) -> Call[TopicPartition, EpochEnd]:
    """Ask each leader where a leader epoch of its log ends."""

    def request(keys: Sequence[TopicPartition]) -> Message:
        module = offset_for_leader_epoch
        topics = [
            module.OffsetForLeaderTopic(
                name,
                [module.OffsetForLeaderPartition(i, leader_epoch=epochs[TopicPartition(name, i)]) for i in indexes],
            )
            for name, indexes in by_topic(keys).items()
        ]
        return module.OffsetForLeaderEpochRequest(CONSUMER, topics)

    def read(response: Any, _: object) -> Iterator[tuple[TopicPartition, EpochEnd | BrokerError]]:
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.topic, row.partition)
                yield key, error_for(row.error_code) if row.error_code else EpochEnd(row.leader_epoch, row.end_offset)

    return Call(Route.LEADERS, list(epochs), request, read)


class LogMethods:
    """The methods of `AsyncAdmin` about logs."""

    async def _run(self, plan: Plan[R], timeout_s: float | None) -> R:
        raise NotImplementedError

    async def fetch_batches(
        self, offsets: Mapping[TopicPartition, int], *, max_bytes: int = 1 << 20, timeout_s: float | None = None
    ) -> dict[TopicPartition, FetchedBatches]:
        """Return record batches from these offsets on as their bytes in the log, also of open transactions.

        A partition returns up to `max_bytes`, or its first batch if that is larger. Raises OffsetOutOfRange.
        """
        found: dict[TopicPartition, FetchedBatches] = await self._run(every(batches(offsets, max_bytes)), timeout_s)
        return found

    async def ends_of_epochs(
        self, epochs: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, EpochEnd]:
        """Return where a leader epoch ends in the log of each partition's leader (KIP-101)."""
        found: dict[TopicPartition, EpochEnd] = await self._run(every(ends_of_epochs(epochs)), timeout_s)
        return found
