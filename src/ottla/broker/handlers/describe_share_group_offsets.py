"""DescribeShareGroupOffsets (90), versions 0-1: where share groups start, and their lag. KIP-932, KIP-1226.

As in Kafka, partitions that are named are described whether or not the group exists; one without share state has the
start offset -1. Null topics mean all partitions that have share state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.broker.authorization_table import MESSAGES
from ottla.broker.response_size import check_response_size
from ottla.broker.share_state_requests import UNAVAILABLE
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.common.slices import Slices, result_of
from ottla.coordination.shares.coordinator import submit_all
from ottla.coordinators.group.share.events import ListShares
from ottla.coordinators.share.events import UNCHOSEN_OFFSET, ReadSummary, Result, ShareKey
from ottla.metadata.image import NO_LEADER
from ottla.protocol.elements import Elements, as_list, encode_element
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareOffsetPorts
    from ottla.coordination.peers.end_offsets import EndOffset

UNKNOWN_COUNT = -1
"""The number of completed deliveries that a former version of the leader did not store."""


def handle(
    broker: ShareOffsetPorts, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> Slices[DescribeShareGroupOffsetsResponse]:
    """Describe each group. One that is named several times with all topics is described once."""
    version = context.api_version
    groups: list[bytes] = []
    complete: dict[str, bytes] = {}
    size = 0
    for wanted in request.groups:
        yield
        encoded = complete.get(wanted.group_id) if wanted.topics is None else None
        if encoded is None:
            row = yield from _Description(broker, context, wanted.group_id).describe(wanted.topics)
            encoded = encode_element(DescribeShareGroupOffsetsResponse, version, row)
        if wanted.topics is None:
            complete[wanted.group_id] = encoded
        groups.append(encoded)
        size += len(encoded)
        check_response_size(size)
    return DescribeShareGroupOffsetsResponse(groups=as_list(groups))


class _Description:
    """The description of one group."""

    def __init__(self, broker: ShareOffsetPorts, context: RequestContext, group_id: str) -> None:
        self._broker = broker
        self._context = context
        self._group_id = group_id
        self._version = version = context.api_version
        self._has_state = broker.shares.coordinator.shards.topic.partition_count() > 0
        self._topics: Elements[DescribeShareGroupOffsetsResponseTopic] = Elements(
            DescribeShareGroupOffsetsResponse, version
        )

    def describe(
        self, wanted: list[DescribeShareGroupOffsetsRequestTopic] | None
    ) -> Slices[DescribeShareGroupOffsetsResponseGroup]:
        """Describe the wanted topics, or all that have share state."""
        row = DescribeShareGroupOffsetsResponseGroup(group_id=self._group_id)
        if not self._broker.settings.serves_share_groups():
            row.error_code = ErrorCode.UNSUPPORTED_VERSION
            return row
        if not allowed(self._broker, self._context, Operation.DESCRIBE, ResourceType.GROUP, self._group_id):
            row.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return row
        try:
            if wanted is None:
                yield from self._add_all()
            else:
                for topic in wanted:
                    if not self._may_describe(topic.topic_name):
                        yield from self._refuse(topic)
                        continue
                    found = self._broker.metadata.image.topics_by_name.get(topic.topic_name)
                    topic_id = ZERO_UUID if found is None else found.topic_id
                    yield from self._add(topic.topic_name, topic_id, topic.partitions)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, str(error)
            return row
        row.topics = self._topics.as_list()
        return row

    def _may_describe(self, topic: str) -> bool:
        return allowed(self._broker, self._context, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def _refuse(self, topic: DescribeShareGroupOffsetsRequestTopic) -> Slices[None]:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rows: Elements[DescribeShareGroupOffsetsResponsePartition] = Elements(
            DescribeShareGroupOffsetsResponse, self._version
        )
        for index in topic.partitions:
            rows.append(
                DescribeShareGroupOffsetsResponsePartition(
                    partition_index=index,
                    start_offset=UNCHOSEN_OFFSET,
                    error_code=error,
                    error_message=MESSAGES[error],
                )
            )
            yield
        self._topics.append(
            DescribeShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, partitions=rows.as_list())
        )

    def _add_all(self) -> Slices[None]:
        listed = yield from result_of(self._broker.groups.submit(self._group_id, ListShares(self._group_id)))
        if listed.error is not ErrorCode.NONE:
            raise KafkaError(listed.error)
        topics = self._broker.metadata.image.topics_by_id
        for topic_id, partitions in listed.partitions.items():
            if topic_id in topics and self._may_describe(topics[topic_id].name):
                yield from self._add(topics[topic_id].name, topic_id, sorted(partitions))

    def _add(self, name: str, topic_id: Uuid, indexes: Iterable[int]) -> Slices[None]:
        """Describe partitions of a topic. Raises KafkaError if the share coordinator is not available."""
        results: dict[ShareKey, Result] = {}
        if topic_id != ZERO_UUID and self._has_state:
            questions = (ReadSummary(ShareKey(self._group_id, topic_id, index)) for index in indexes)
            results = yield from submit_all(questions, self._broker.shares.ask)
        rows: Elements[DescribeShareGroupOffsetsResponsePartition] = Elements(
            DescribeShareGroupOffsetsResponse, self._version
        )
        found: list[tuple[DescribeShareGroupOffsetsResponsePartition, Completion[EndOffset] | None]] = []
        for index in indexes:
            result = results.get(ShareKey(self._group_id, topic_id, index))
            found.append(self._row(name, index, result))
            yield
        for row, asked in found:
            rows.append(row if asked is None else _with_lag(row, (yield from result_of(asked))))
            yield
        self._topics.append(
            DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=rows.as_list())
        )

    def _row(
        self, name: str, index: int, result: Result | None
    ) -> tuple[DescribeShareGroupOffsetsResponsePartition, Completion[EndOffset] | None]:
        """The row of a partition. Add the end offset, if it is returned too, to `lag`."""
        row = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNCHOSEN_OFFSET)
        if result is None:
            return row, None
        if result.error in UNAVAILABLE:
            raise KafkaError(result.error)
        if result.error is not ErrorCode.NONE:
            return row, None
        row.start_offset, row.leader_epoch = result.start_offset, result.leader_epoch
        if result.start_offset == UNCHOSEN_OFFSET or result.delivery_complete_count == UNKNOWN_COUNT:
            return row, None
        row.lag = -result.start_offset - result.delivery_complete_count
        return row, self._end_offset(name, index)

    def _end_offset(self, name: str, index: int) -> Completion[EndOffset]:
        """The high watermark, from the partition's leader."""
        partitions = self._broker.partitions
        try:
            return Completion.of(partitions.get(name, index).high_watermark)
        except KafkaError as error:
            leader, _ = partitions.leader_of(name, index)
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or leader == NO_LEADER:
                return Completion.of(error)
        return self._broker.peers.end_offsets.ask(leader, (name, index))


def _with_lag(
    row: DescribeShareGroupOffsetsResponsePartition, end_offset: EndOffset
) -> DescribeShareGroupOffsetsResponsePartition:
    if isinstance(end_offset, KafkaError):
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=row.partition_index, error_code=end_offset.code, error_message=str(end_offset)
        )
    row.lag += end_offset
    return row
