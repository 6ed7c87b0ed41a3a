"""Encodes batches as a ProduceRequest, and decodes the response to outcomes.

From version 13 on, requests contain topic ids (KIP-516): a recreated topic refuses records for the deleted one until
the producer has seen the new id. Responses may name a new leader (KIP-951).

A batch is compressed and gets its header when it is first sent; the bytes are cached until its outcome. A retry only
writes another header if the sequence number changed. These functions need no lock: only the sender reads a batch in
flight.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.clients.cluster import ClusterView, Node
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.effects import Outcome
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.producer.transaction_requests import NEWEST_V1_PRODUCE
from ottla.clients.producer.transactions import Transactions
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, TRANSACTIONAL, BatchHeader, Codec, write_header
from ottla.records.codecs import compress

LAST_VERSION_WITH_NAMES = 12


def version_limit(topic_ids: Mapping[str, Uuid], transactions: Transactions | None = None) -> int | None:
    """The highest version of the request: if the id of a topic is unknown, one with topic names.

    From version 12 on, brokers take a transactional request as one of protocol 2 (KIP-890).
    """
    if transactions is not None and not transactions.is_v2:
        return NEWEST_V1_PRODUCE
    return LAST_VERSION_WITH_NAMES if ZERO_UUID in topic_ids.values() else None


def produce_request(
    batches: list[Batch], settings: ProducerSettings, topic_ids: Mapping[str, Uuid], transactional_id: str | None
) -> ProduceRequest:
    """The request that appends these batches, one per partition, in any version up to `version_limit`."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        records = encode(batch, settings.codec, settings.level, transactional_id is not None)
        topics.setdefault(batch.queue.topic, []).append(
            PartitionProduceData(index=batch.queue.partition, records=records)
        )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=settings.acks,
        timeout_ms=settings.request_timeout_ms,
        topic_data=[
            TopicProduceData(name=topic, topic_id=topic_ids[topic], partition_data=rows)
            for topic, rows in topics.items()
        ],
    )


def encode(batch: Batch, codec: Codec, level: int | None, is_transactional: bool = False) -> bytearray:
    wire = batch.wire
    if wire is None:
        out = batch.out
        if codec is not Codec.NONE:
            out = out[:HEADER_SIZE] + compress(codec, memoryview(out)[HEADER_SIZE:], level)
        attributes = codec | TRANSACTIONAL if is_transactional else codec
        # Positional arguments, in the order of the header's fields, are faster; this runs for every batch.
        header = BatchHeader(
            0, len(out) - LOG_OVERHEAD, -1, MAGIC, 0, attributes, batch.count - 1, batch.base_timestamp,
            batch.max_timestamp, batch.producer_id, batch.epoch, batch.sequence, batch.count,
        )  # fmt: skip
    else:
        sent: bytearray = wire[0]
        header = wire[1]
        if (header.producer_id, header.producer_epoch, header.base_sequence) == (
            batch.producer_id, batch.epoch, batch.sequence,
        ):  # fmt: skip
            return sent
        out = bytearray(sent)  # a socket may still be sending the old one
        header = header._replace(
            producer_id=batch.producer_id, producer_epoch=batch.epoch, base_sequence=batch.sequence
        )
    write_header(out, 0, header)
    batch.wire = (out, header)
    return out


def outcomes_of(
    response: ProduceResponse, topic_ids: Mapping[str, Uuid], view: ClusterView
) -> dict[tuple[str, int], Outcome]:
    """The outcomes by topic and partition. Updates the leaders in `view`. `topic_ids` are the request's."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    for node in response.node_endpoints:
        view.add_node(Node(node.node_id, node.host, node.port, node.rack))
    outcomes = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for row in topic.partition_responses:
            hint = row.current_leader
            outcomes[name, row.index] = Outcome(
                row.error_code,
                row.base_offset,
                row.log_append_time_ms,
                row.error_message,
                tuple((error.batch_index, error.batch_index_error_message) for error in row.record_errors),
                hint.leader_id >= 0 and view.set_leader(name, row.index, hint.leader_id, hint.leader_epoch),
            )
    return outcomes
