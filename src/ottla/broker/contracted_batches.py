"""Appends the batches of a Produce request for topics with schema validation, after its other batches.

Such a batch may wait for the schema registry (`ottla.broker.contracts`), so that it is a copy of its frame, and what
its append needs is checked again when it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.produce_order import ALL, MOVED, ZSTD_SINCE_VERSION, fail, partition_of
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.partitions.partition import not_verified
from ottla.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, TopicProduceData
from ottla.records import read_header, validate_produced
from ottla.records.batch import TRANSACTIONAL

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ProducePorts
    from ottla.broker.produce_order import Contracted, ProduceOrder
    from ottla.partitions.partition import Partition


def append_later(
    order: ProduceOrder, topic: TopicProduceData, data: PartitionProduceData, records: memoryview
) -> PartitionProduceResponse:
    """Return the response of a batch that is appended later, from a copy: its frame is only valid now."""
    data.records = memoryview(bytearray(records))
    response = PartitionProduceResponse(data.index)
    if order.contracted is None:
        order.contracted = []
    order.contracted.append((topic, data, response))
    return response


def append_contracted(broker: ProducePorts, context: RequestContext, order: ProduceOrder) -> Slices[None]:
    """Append the batches that were left for later, and fill in their responses."""
    for topic, data, response in order.contracted or ():
        partition: Partition | None = None
        try:
            partition = partition_of(broker, context, topic, data)
            yield from _append_checked(broker, context, order, partition, (topic, data, response))
        except KafkaError as error:
            fail(response, error, partition)
            order.has_moved |= error.code in MOVED


def _append_checked(
    broker: ProducePorts,
    context: RequestContext,
    order: ProduceOrder,
    partition: Partition,
    contracted: Contracted,
) -> Slices[None]:
    """Append a batch that has the schemas of its topic. Raises KafkaError, RecordError."""
    topic, data, response = contracted
    assert type(data.records) is memoryview, "`append_later` has checked it"
    now_ms = broker.clock.wall_ms()
    allow_zstd = context.api_version >= ZSTD_SINCE_VERSION
    _check_refusal(partition)
    partition.check_open()
    partition.check_acks(order.acks)
    header, batch = validate_produced(data.records, partition.settings.rules, now_ms, allow_zstd=allow_zstd)
    batch = yield from broker.contracts.admit(partition, header, batch)
    # This node may have waited, so that everything else is checked only now.
    if partition.closed:
        waited_for, partition = partition.topic_id, partition_of(broker, context, topic, data)
        if partition.topic_id != waited_for:
            why = f"{partition.topic_partition.topic} was deleted and created again while the batch waited"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    # The topic may have become a copy of another cluster's.
    _check_refusal(partition)
    is_verified = order.verification is not None and order.verification.check(partition)
    header = read_header(batch)
    if header.attributes & TRANSACTIONAL and not is_verified:
        raise not_verified()
    info = partition.append(batch, header=header, required_acks=order.acks)
    first, last, response.log_append_time_ms, response.log_start_offset, _ = info
    response.base_offset = first
    if last >= partition.high_watermark:
        durable = partition.when_durable(last + 1) if order.acks == ALL else partition.when_flushed(last + 1)
        if durable is not None:
            order.waiting.append((durable, response))


def _check_refusal(partition: Partition) -> None:
    """Raise the error for clients that write, if they may not write now."""
    if partition.refusal is not None:
        raise KafkaError(partition.refusal.code, partition.refusal.text)
