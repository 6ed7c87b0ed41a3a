"""Sends batches to the leaders of a dead letter topic on other brokers, as a client with acks=all does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.common.ids import Uuid
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from ottla.protocol.message import Message

ALL = -1


class DeadLetterBatch(NamedTuple):
    """A batch for a partition that another broker leads."""

    topic: str
    topic_id: Uuid
    partition: int
    records: memoryview
    timeout_ms: int


class DeadLetterKind:
    """Produce. The answer to a batch is None, or the error."""

    least_version = 3

    def group(self, _question: DeadLetterBatch) -> object:
        """All batches may be in one request."""
        return None

    def key(self, question: DeadLetterBatch) -> object:
        """The partition: a request has one batch for each."""
        return question.topic, question.partition

    def request(self, batch: list[DeadLetterBatch]) -> ProduceRequest:
        """One row for each batch."""
        return ProduceRequest(
            acks=ALL,
            timeout_ms=max(each.timeout_ms for each in batch),
            topic_data=[
                TopicProduceData(
                    name=each.topic,
                    topic_id=each.topic_id,
                    partition_data=[PartitionProduceData(each.partition, each.records)],
                )
                for each in batch
            ],
        )

    def answers(self, batch: list[DeadLetterBatch], response: Message) -> list[KafkaError | None]:
        """The result of each batch. A response has the name or the id of a topic, by its version."""
        assert isinstance(response, ProduceResponse)
        found: dict[tuple[str | Uuid, int], KafkaError | None] = {}
        for topic in response.responses:
            for row in topic.partition_responses:
                error = KafkaError(error_code(row.error_code), row.error_message) if row.error_code else None
                found[topic.name or topic.topic_id, row.index] = error
        unknown = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return [
            found.get((each.topic, each.partition), found.get((each.topic_id, each.partition), unknown))
            for each in batch
        ]

    def failure(self, _question: DeadLetterBatch, error: KafkaError) -> KafkaError | None:
        """The error."""
        return error
