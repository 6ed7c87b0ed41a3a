"""TxnOffsetCommit: offsets that are committed together with the transaction of a producer. KIP-98, KIP-447.

The offsets are pending until the transaction's marker is in the shard's log: a restarted consumer that requires stable
offsets waits for it. The caller checks that topics exist, and that the partition of the group is part of the
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.coordinators.events import Call, Effects, Moment, RecordBytes, Reply
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.errors import transactional_commit_response
from ottla.coordinators.group.follow_ups import AnswerCall
from ottla.coordinators.group.membership import Committer, check_member
from ottla.coordinators.group.offset_store import Committed
from ottla.coordinators.group.records import offset_record
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def commit(core: Core, call: Call[TxnOffsetCommitRequest], request: TxnOffsetCommitRequest, now: Moment) -> Effects:
    """Write pending offsets. Unlike OffsetCommit this is allowed in a rebalance, and does not count as a heartbeat."""
    error = _check(core, request)
    if error is not ErrorCode.NONE:
        return [Reply(call, transactional_commit_response(request, error))]
    records: list[RecordBytes] = []
    topics = []
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            index = partition.partition_index
            fits = len(metadata) <= core.config.offset_metadata_max_bytes
            error = ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
            rows.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
            if fits:
                committed = Committed(
                    partition.committed_offset, partition.committed_leader_epoch, metadata, now.wall_ms
                )
                records.append(offset_record(request.group_id, topic.name, index, committed))
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
    response = TxnOffsetCommitResponse(topics=topics)
    if not records:
        return [Reply(call, response)]
    follow_up = AnswerCall(call, response)
    return [core.append_in_transaction(records, follow_up, request.producer_id, request.producer_epoch)]


def _check(core: Core, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    committer = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        is_transactional=True,
    )
    return check_member(core, committer, _partitions(core, request))


def _partitions(core: Core, request: TxnOffsetCommitRequest) -> Iterator[tuple[Uuid, int]]:
    for topic in request.topics:
        known = core.topics.by_name.get(topic.name)
        topic_id = ZERO_UUID if known is None else known.topic_id
        yield from ((topic_id, row.partition_index) for row in topic.partitions)
