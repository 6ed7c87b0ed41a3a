"""Produce (0), versions 3-13: append one record batch per partition.

KIP-98 (idempotence and transactions), KIP-467 (record errors from version 8), KIP-890 (verified transactions; from
version 12 on they need no AddPartitionsToTxn), KIP-516 (topic ids from version 13), KIP-951 (the current leader with an
error, from version 10). acks=0 has no response: a failure closes the connection, so that the client refreshes its
metadata. Batches for topics with schema validation are appended after the others (`ottla.broker.contracts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.authorization import NO_TOPICS, Topics, allowed, denied_topics, grants_of
from ottla.broker.contracted_batches import append_contracted, append_later
from ottla.broker.produce_order import (
    ALL,
    MOVED,
    TOPIC_IDS_SINCE_VERSION,
    ZSTD_SINCE_VERSION,
    ProduceOrder,
    failure,
    when_all_durable,
)
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.coordination.transactions.verification import Batches, Verification, are_in_open_transaction
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records import NotOneBatchError, read_header
from ottla.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, TRANSACTIONAL
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ProducePorts
    from ottla.partitions.partition import Partition

ABORTABLE_SINCE_VERSION = 11
ADDS_SINCE_VERSION = 12
NO_ACKS = 0
VALID_ACKS = (-1, NO_ACKS, 1)
# A request with more partitions is handled in slices of `SLICE_PARTITIONS`.
MOST_AT_ONCE = 200
SLICE_PARTITIONS = 20
# Fields of a successful response, created once; they must not be changed.
_NONE = int(ErrorCode.NONE)
_NO_ERRORS: list[BatchIndexAndErrorMessage] = []
_NO_LEADER = LeaderIdAndEpoch()
_LOW_ATTRIBUTES = ATTRIBUTES_POSITION + 1
# The attributes of an enumeration are slow.
_WRITE: Final = Operation.WRITE


def handle(
    broker: ProducePorts, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Completion[ProduceResponse] | Slices[ProduceResponse | None] | None:
    """Append every batch; respond when the appended batches are committed."""
    hidden = NO_TOPICS
    if broker.security.authorizer is not None and not _is_granted(context, request):
        found = _hidden_topics(broker, context, request)
        if found is None:
            return _refuse(context, request, KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        hidden = found
    verification, is_open = None, False
    count = 0
    for topic in request.topic_data:
        count += len(topic.partition_data)
    is_long = count > MOST_AT_ONCE or len(request.topic_data) > MOST_AT_ONCE
    transactional_id = request.transactional_id
    if transactional_id is not None:
        batches = _transactional_batches(broker, context, request, hidden)
        adds = context.api_version >= ADDS_SINCE_VERSION
        # Only if nothing else happens between the answer and the appends.
        is_open = (
            not is_long
            and are_in_open_transaction(batches, transactional_id, broker.transactions, adds=adds)
            and all(partition.settings.rules.contract is None for partition, _ in batches)
        )
        if not is_open:
            verification = _verification_of(broker, context, transactional_id, batches)
            attempt = verification.attempt(broker.transactions, context.api_version)
            if not attempt.done or verification.unsettled:
                _copy_batches(request)
                order = ProduceOrder(request.acks, hidden, verification)
                return _produce_when_verified(broker, context, request, order, attempt)
    order = ProduceOrder(request.acks, hidden, verification)
    order.is_open = is_open
    if is_long:
        _copy_batches(request)
        return _produce_in_slices(broker, context, request, order)
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        responses = _append(broker, context, order, topic, topic.partition_data)
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, responses))
    if order.contracted is not None:
        return _finish(broker, context, request, topics, order)
    return _answer(broker, context, request, topics, order)


def _is_granted(context: RequestContext, request: ProduceRequest) -> bool:
    """Whether the client was allowed before what this request needs; False for all but the simplest requests.

    These have one batch, which is not transactional, and are so small that a loop would be a part of their cost.
    """
    topics = request.topic_data
    if len(topics) != 1:
        return False
    topic = topics[0]
    batches = topic.partition_data
    if len(batches) != 1:
        return False
    grants = grants_of(context)
    if grants is None:
        return False
    if (topic.topic_id if context.api_version >= TOPIC_IDS_SINCE_VERSION else topic.name) not in grants.writable:
        return False
    try:
        return not batches[0].records[_LOW_ATTRIBUTES] & TRANSACTIONAL  # type: ignore[index]
    except (TypeError, IndexError):
        return False  # null, or too short for a batch


def _hidden_topics(broker: ProducePorts, context: RequestContext, request: ProduceRequest) -> Topics | None:
    """The topics that the client may not write; None if it may not write with its transactional id.

    The id matters only if one of the batches is transactional.
    """
    grants = grants_of(context)
    granted = None if grants is None else grants.writable
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    is_decided, is_transactional = granted is not None, 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            # This costs a tenth of `read_header`.
            try:
                is_transactional |= data.records[_LOW_ATTRIBUTES] & TRANSACTIONAL  # type: ignore[index]
            except (TypeError, IndexError):
                continue  # null, or too short for a batch: it is refused when it would be appended
        if granted is not None and (topic.topic_id if by_id else topic.name) not in granted:
            is_decided = False
    if is_transactional and not _may_write_transaction(broker, context, request):
        return None
    if is_decided:
        return NO_TOPICS
    topics = [topic.topic_id if by_id else topic.name for topic in request.topic_data]
    return denied_topics(broker, context, _WRITE, topics, granted)


def _may_write_transaction(broker: ProducePorts, context: RequestContext, request: ProduceRequest) -> bool:
    """Whether the client may write with its transactional id, if a batch that is long enough is transactional."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if type(records) is memoryview and len(records) >= HEADER_SIZE and records[_LOW_ATTRIBUTES] & TRANSACTIONAL:
                name = request.transactional_id
                return name is not None and allowed(
                    broker, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name
                )
    return True


def _refuse(context: RequestContext, request: ProduceRequest, error: KafkaError) -> ProduceResponse | None:
    """The response with the same error for each partition."""
    if request.acks == NO_ACKS:
        context.connection.close()
        return None
    answer = ProduceResponse()
    for topic in request.topic_data:
        rows = [failure(data.index, error, None) for data in topic.partition_data]
        answer.responses.append(TopicProduceResponse(topic.name, topic.topic_id, rows))
    return answer


def _copy_batches(request: ProduceRequest) -> None:
    """Copy the batches of a request that is handled later: its frame is only valid now."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _transactional_batches(
    broker: ProducePorts, context: RequestContext, request: ProduceRequest, hidden: Topics
) -> Batches:
    """The transactional batches of the request; without those that are rejected when they would be appended."""
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    found: Batches = []
    for topic in request.topic_data:
        if hidden and (topic.topic_id if by_id else topic.name) in hidden:
            continue
        for data in topic.partition_data:
            records = data.records
            if type(records) is not memoryview or len(records) < HEADER_SIZE:
                continue
            header = read_header(records)
            if not header.attributes & TRANSACTIONAL:
                continue
            try:
                if by_id:
                    partition = broker.partitions.get_by_id(topic.topic_id, data.index)
                else:
                    partition = broker.partitions.get(topic.name, data.index)
            except KafkaError:
                continue
            found.append((partition, header))
    return found


def _verification_of(
    broker: ProducePorts, context: RequestContext, transactional_id: str, batches: Batches
) -> Verification:
    adds = context.api_version >= ADDS_SINCE_VERSION
    verification = Verification(
        transactional_id,
        adds=adds,
        abortable=context.api_version >= ABORTABLE_SINCE_VERSION,
        is_enabled=adds or broker.settings.current.bool("transaction.partition.verification.enable"),
    )
    for partition, header in batches:
        verification.include(partition, header.producer_id, header.producer_epoch, header.base_sequence)
    return verification


def _produce_when_verified(
    broker: ProducePorts,
    context: RequestContext,
    request: ProduceRequest,
    order: ProduceOrder,
    attempt: Completion[None],
) -> Slices[ProduceResponse | None]:
    verification = order.verification
    assert verification is not None, "the attempt verifies"
    yield from result_of(attempt)
    yield from verification.settle(broker.transactions, broker.settings.current, context.api_version)
    return (yield from _produce_in_slices(broker, context, request, order))


def _produce_in_slices(
    broker: ProducePorts, context: RequestContext, request: ProduceRequest, order: ProduceOrder
) -> Slices[ProduceResponse | None]:
    """Append to thousands of partitions, from copied batches."""
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        responses: list[PartitionProduceResponse] = []
        for start in range(0, len(topic.partition_data), SLICE_PARTITIONS):
            yield
            part = topic.partition_data[start : start + SLICE_PARTITIONS]
            responses += _append(broker, context, order, topic, part)
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, responses))
        yield
    return (yield from _finish(broker, context, request, topics, order))


def _finish(
    broker: ProducePorts,
    context: RequestContext,
    request: ProduceRequest,
    topics: list[TopicProduceResponse],
    order: ProduceOrder,
) -> Slices[ProduceResponse | None]:
    """Append the batches for topics with schema validation, and respond."""
    yield from append_contracted(broker, context, order)
    answer = _answer(broker, context, request, topics, order)
    return (yield from result_of(answer)) if isinstance(answer, Completion) else answer


def _append(
    broker: ProducePorts,
    context: RequestContext,
    order: ProduceOrder,
    topic: TopicProduceData,
    rows: Iterable[PartitionProduceData],
) -> list[PartitionProduceResponse]:
    """Append to partitions of a topic; responses that are not committed yet are added to `order.waiting`."""
    acks, verification = order.acks, order.verification
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    if order.hidden and (topic.topic_id if by_id else topic.name) in order.hidden:
        refusal = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return [failure(data.index, refusal, None) for data in rows]
    allow_zstd = context.api_version >= ZSTD_SINCE_VERSION
    partitions = broker.partitions
    now_ms = broker.clock.wall_ms()
    responses: list[PartitionProduceResponse] = []
    for data in rows:
        partition: Partition | None = None
        try:
            if by_id:
                partition = partitions.get_by_id(topic.topic_id, data.index)
            else:
                partition = partitions.get(topic.name, data.index)
            if acks not in VALID_ACKS:
                raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
            records = data.records
            if type(records) is not memoryview:
                why = "There must be exactly one record batch per partition"
                raise NotOneBatchError(ErrorCode.INVALID_RECORD, why)
            if partition.settings.rules.contract is not None:
                responses.append(append_later(order, topic, data, records))
                continue
            is_verified = order.is_open or (verification is not None and verification.check(partition))
            info = partition.append_produced(records, acks, now_ms, allow_zstd=allow_zstd, is_verified=is_verified)
            first, last, append_time_ms, start, _ = info
            response = PartitionProduceResponse(
                data.index, _NONE, first, append_time_ms, start, _NO_ERRORS, None, _NO_LEADER
            )
            if last >= partition.high_watermark:
                durable = partition.when_durable(last + 1) if acks == ALL else partition.when_flushed(last + 1)
                if durable is not None:
                    order.waiting.append((durable, response))
        except KafkaError as error:
            response = failure(data.index, error, partition)
            order.has_moved |= error.code in MOVED
        responses.append(response)
    return responses


def _answer(
    broker: ProducePorts,
    context: RequestContext,
    request: ProduceRequest,
    topics: list[TopicProduceResponse],
    order: ProduceOrder,
) -> ProduceResponse | Completion[ProduceResponse] | None:
    if request.acks == NO_ACKS:
        if any(response.error_code for topic in topics for response in topic.partition_responses):
            context.connection.close()
        return None
    answer = ProduceResponse(topics)
    if order.waiting:
        return when_all_durable(order, request.timeout_ms, partial(_with_leaders, broker, context, answer, order))
    return _with_leaders(broker, context, answer, order) if order.has_moved else answer


def _with_leaders(
    broker: ProducePorts, context: RequestContext, answer: ProduceResponse, order: ProduceOrder
) -> ProduceResponse:
    """Name the current leaders of partitions that this node does not lead, so that the client need not ask."""
    if not order.has_moved:
        return answer
    leaders: set[int] = set()
    for topic in answer.responses:
        for response in topic.partition_responses:
            if response.error_code in MOVED:
                leader, epoch = broker.partitions.leader_of(topic.name or topic.topic_id, response.index)
                response.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    for leader in sorted(leaders):
        address = broker.endpoints.address(leader, context.listener)
        if address is not None:
            answer.node_endpoints.append(NodeEndpoint(leader, *address))
    return answer
