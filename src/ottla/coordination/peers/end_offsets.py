"""Asks the leaders of partitions on other brokers for their high watermarks, for the lag of share groups. KIP-1226."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.common.ids import by_topic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from ottla.protocol.message import Message

TopicPartition: TypeAlias = tuple[str, int]
EndOffset: TypeAlias = "int | KafkaError"

LATEST = -1
CONSUMER = -1
"""The replica id of a client: it gets the high watermark."""


class EndOffsetKind:
    """ListOffsets for the latest offset."""

    least_version = 1

    def group(self, _question: TopicPartition) -> object:
        """All partitions may be in one request."""
        return None

    def key(self, question: TopicPartition) -> object:
        """The partition."""
        return question

    def request(self, batch: list[TopicPartition]) -> ListOffsetsRequest:
        """One row for each partition."""
        return ListOffsetsRequest(
            replica_id=CONSUMER,
            topics=[
                ListOffsetsTopic(
                    name, [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes]
                )
                for name, indexes in by_topic(batch).items()
            ],
        )

    def answers(self, batch: list[TopicPartition], response: Message) -> list[EndOffset]:
        """The high watermark of each partition, or the error."""
        assert isinstance(response, ListOffsetsResponse)
        found: dict[TopicPartition, EndOffset] = {
            (topic.name, row.partition_index): KafkaError(error_code(row.error_code)) if row.error_code else row.offset
            for topic in response.topics
            for row in topic.partitions
        }
        return [found.get(question, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)) for question in batch]

    def failure(self, _question: TopicPartition, error: KafkaError) -> EndOffset:
        """The error."""
        return error
