"""Batches into a ProduceRequest and its answer into outcomes. Names topics, not ids: versions 3 to 12.

A batch is encoded and compressed when it is first sent and kept until its end; a retry only writes another header where
the sequence changed. Called outside the core's lock: a batch in flight is changed by nobody else.
"""

from __future__ import annotations

from ottla.clients.producer.batch import Batch
from ottla.clients.producer.events import Outcome
from ottla.clients.producer.settings import ProducerSettings
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, Codec, write_header
from ottla.records.codecs import compress

LAST_VERSION_WITH_NAMES = 12


def produce_request(batches: list[Batch], settings: ProducerSettings) -> ProduceRequest:
    """The request that appends these batches, one per partition."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        records = encode(batch, settings.codec, settings.level)
        topics.setdefault(batch.queue.topic, []).append(
            PartitionProduceData(index=batch.queue.partition, records=records)
        )
    return ProduceRequest(
        transactional_id=None,
        acks=settings.acks,
        timeout_ms=settings.request_timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=rows) for topic, rows in topics.items()],
    )


def encode(batch: Batch, codec: Codec, level: int | None) -> bytearray:
    """The batch as it goes over the wire, with its sequence as it is now."""
    wire = batch.wire
    if wire is None:
        out = batch.out
        if codec is not Codec.NONE:
            out = out[:HEADER_SIZE] + compress(codec, memoryview(out)[HEADER_SIZE:], level)
        # By position, in the order of the header's fields: this is done for every batch.
        header = BatchHeader(
            0, len(out) - LOG_OVERHEAD, -1, MAGIC, 0, codec, batch.count - 1, batch.base_timestamp,
            batch.max_timestamp, batch.producer_id, batch.epoch, batch.sequence, batch.count,
        )  # fmt: skip
    else:
        sent: bytearray = wire[0]
        header = wire[1]
        if (header.producer_id, header.producer_epoch, header.base_sequence) == (
            batch.producer_id, batch.epoch, batch.sequence,
        ):  # fmt: skip
            return sent
        out = bytearray(sent)  # the old one may still be on its way through a socket
        header = header._replace(
            producer_id=batch.producer_id, producer_epoch=batch.epoch, base_sequence=batch.sequence
        )
    write_header(out, 0, header)
    batch.wire = (out, header)
    return out


def outcomes_of(response: ProduceResponse) -> dict[tuple[str, int], Outcome]:
    """What the broker says, by topic and partition."""
    return {
        (topic.name, row.index): Outcome(
            row.error_code,
            row.base_offset,
            row.log_append_time_ms,
            row.error_message,
            tuple((error.batch_index, error.batch_index_error_message) for error in row.record_errors),
        )
        for topic in response.responses
        for row in topic.partition_responses
    }
