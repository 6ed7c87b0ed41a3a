"""Writes invalid records to the dead letter topic of their topic, with the headers of Kafka Connect.

A record keeps its timestamp, key, value and headers. Records of partition N go to partition N of the dead letter
topic, modulo its number of partitions, so that their order is kept. They are written with acks=all by this broker, or
sent to the leader on the connections between brokers, before the rest of their batch is appended: the producer's
acknowledgement means that they are committed. They have no offset in their own topic, so `__connect.errors.offset` is
omitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.coordination.peers.dead_letters import ALL, DeadLetterBatch
from ottla.metadata.image import NO_LEADER
from ottla.records import Record, decode_batch, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.contracts.violations import Violation
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.node.schedulers import Schedulers
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.clock import Clock
    from ottla.coordination.peers.requests import PeerRequests
    from ottla.metadata.image import TopicImage
    from ottla.partitions.partitions import Partitions
    from ottla.records.builder import NewRecord

T = TypeVar("T")

PREFIX: Final = "__connect.errors."
# A batch takes the next record as long as it has less than this.
_BATCH_BYTES: Final = 256 * 1024
# Errors that the next attempt of the producer may not have.
_RETRIED: Final = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class DeadLetterPorts(Protocol):
    """The parts of this node that are used here."""

    @property
    def node_id(self) -> int: ...

    @property
    def metadata(self) -> MetadataShell: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def settings(self) -> NodeSettings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def schedulers(self) -> Schedulers: ...

    @property
    def peers(self) -> PeerRequests: ...


def write_dead_letters(
    node: DeadLetterPorts,
    source: tuple[str, int],
    dead_letter_topic: str,
    batch: memoryview,
    violations: list[Violation],
    timeout_ms: int,
) -> Slices[None]:
    """Write the invalid records of a batch for the partition `source`; returns when they are committed.

    Raises KafkaError: REQUEST_TIMED_OUT if a retry may help, and otherwise INVALID_RECORD.
    """
    place = dead_letter_topic
    try:
        topic = _topic(node, dead_letter_topic)
        partition = source[1] % len(topic.partitions)
        place = f"{dead_letter_topic}-{partition}"
        for records in _batches(_letters(node.node_id, source, decode_batch(batch), violations)):
            yield from _write(node, topic, partition, memoryview(encode_batch(records)), timeout_ms)
    except KafkaError as error:
        code = ErrorCode.REQUEST_TIMED_OUT if error.code in _RETRIED else ErrorCode.INVALID_RECORD
        text = f"{len(violations)} invalid records of the batch cannot be written to the dead letter topic {place}"
        raise KafkaError(code, f"{text}: {error.message or error.code.name}") from error


def _topic(node: DeadLetterPorts, name: str) -> TopicImage:
    topic = node.metadata.image.topics_by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist: create it")
    values = node.settings.topic_values(name)
    if values["confluent.key.schema.validation"] or values["confluent.value.schema.validation"]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "the topic has schema validation itself: disable it there")
    return topic


def _letters(
    node_id: int, source: tuple[str, int], rows: list[Record], violations: list[Violation]
) -> Iterator[NewRecord]:
    for row, is_key, reason in violations:
        record = rows[row]
        errors = {
            "topic": source[0],
            "partition": str(source[1]),
            "connector.name": "ottla.schema.validation",
            "task.id": str(node_id),
            "stage": "KEY_CONVERTER" if is_key else "VALUE_CONVERTER",
            "class.name": "ottla.broker.contracts",
            "exception.class.name": "org.apache.kafka.common.InvalidRecordException",
            "exception.message": reason,
        }
        added = [(PREFIX + name, text.encode()) for name, text in errors.items()]
        yield record.timestamp, record.key, record.value, [*record.headers, *added]


def _batches(letters: Iterator[NewRecord]) -> Iterator[list[NewRecord]]:
    batch: list[NewRecord] = []
    size = 0
    for each in letters:
        batch.append(each)
        _, key, value, headers = each
        size += len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(
    node: DeadLetterPorts, topic: TopicImage, partition: int, records: memoryview, timeout_ms: int
) -> Slices[None]:
    leader = topic.partitions[partition].leader
    if leader == NO_LEADER:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader")
    if leader != node.node_id:
        question = DeadLetterBatch(topic.name, topic.topic_id, partition, records, timeout_ms)
        error = yield from result_of(_within(node, node.peers.dead_letters.ask(leader, question), timeout_ms))
        if error is not None:
            # A broker that does not know the topic yet has older metadata.
            is_new = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) if is_new else error
        return
    led = node.partitions.get(topic.name, partition)
    info = led.append_produced(records, ALL, node.clock.wall_ms())
    durable = led.when_durable(info.last_offset + 1)
    if durable is not None:
        yield from result_of(_within(node, durable, timeout_ms))


def _within(node: DeadLetterPorts, completion: Completion[T], timeout_ms: int) -> Completion[T]:
    """The same result, or REQUEST_TIMED_OUT after this time."""
    limited: Completion[T] = Completion()
    error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"its leader did not commit them within {timeout_ms} ms")

    def expire() -> None:
        limited.fail(error)

    timer = node.schedulers.call_later(timeout_ms / 1000, expire)
    limited.follow(completion)
    limited.on_done(lambda _: timer.cancel())
    return limited
