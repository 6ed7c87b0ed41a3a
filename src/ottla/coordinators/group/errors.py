"""Error responses for every request that a shard handles."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar, cast

from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.group.core import Core, refuse_join, refuse_sync
from ottla.coordinators.group.events import (
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    ForceRebalance,
    ListGroups,
)
from ottla.coordinators.group.follow_ups import AnswerCall
from ottla.coordinators.group.share.events import (
    AlteredShareOffsets,
    AlterShareOffsets,
    DeletedShareOffsets,
    DeleteShareOffsets,
    DescribeShareGroup,
    ListedShares,
    ListShares,
)
from ottla.coordinators.group.streams.events import DescribeStreamsGroup, StreamsHeartbeat, StreamsOutcome
from ottla.protocol.messages import consumer_group_describe, share_group_describe, streams_group_describe
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.describe_groups import DescribedGroup
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchResponseGroup
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

R = TypeVar("R")

_AdministratorsResponse: TypeAlias = (
    AlteredShareOffsets
    | DeletableGroupResult
    | DeletedShareOffsets
    | DescribedGroup
    | ErrorCode
    | ListedShares
    | consumer_group_describe.DescribedGroup
    | share_group_describe.DescribedGroup
    | streams_group_describe.DescribedGroup
    | None
)
_Response: TypeAlias = (
    ConsumerGroupHeartbeatResponse
    | HeartbeatResponse
    | JoinGroupResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetDeleteResponse
    | OffsetFetchResponseGroup
    | ShareGroupHeartbeatResponse
    | StreamsOutcome
    | SyncGroupResponse
    | TxnOffsetCommitResponse
    | _AdministratorsResponse
)


def commit_response(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Answer a commit with one error for all partitions; the response has no field for an error of the request."""
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


def transactional_commit_response(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """Answer a commit in a transaction with one error for all partitions."""
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


def error_response(call: Call[Request[R]], error: ErrorCode) -> R:
    """Return the response to `call` with `error`; the error code itself for requests of the runtime."""
    # Each request declares the type of its response, which a type checker does not follow through the cases.
    return cast("R", _response(call, error))


def refuse(call: Call[Any], error: ErrorCode) -> Reply[Any]:
    """Answer `call` with an error."""
    return Reply(call, error_response(call, error))


def _response(call: Call[Any], error: ErrorCode) -> _Response:
    request = call.request
    match request:
        case HeartbeatRequest():
            # A loading shard does not know the member yet. An error would make the member rejoin.
            loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error)
        case OffsetCommitRequest():
            # Kafka reports a batch that is too large as an invalid size of the commit.
            if error is ErrorCode.UNKNOWN_SERVER_ERROR:
                error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            return commit_response(request, error)
        case TxnOffsetCommitRequest():
            return transactional_commit_response(request, error)
        case FetchOffsets():
            return OffsetFetchResponseGroup(group_id=request.group.group_id, error_code=error)
        case JoinGroupRequest():
            return refuse_join(call, error, request.member_id).response
        case SyncGroupRequest():
            return refuse_sync(call, error).response
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=error)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=error)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=error)
        case ShareGroupHeartbeatRequest():
            return ShareGroupHeartbeatResponse(error_code=error)
        case StreamsHeartbeat():
            return StreamsOutcome(StreamsGroupHeartbeatResponse(error_code=error))
        case _:
            return _administrators_response(request, error)


def _administrators_response(request: object, error: ErrorCode) -> _AdministratorsResponse:
    match request:
        case DescribeConsumerGroup():
            return consumer_group_describe.DescribedGroup(group_id=request.group_id, error_code=error)
        case DescribeShareGroup():
            return share_group_describe.DescribedGroup(group_id=request.group_id, error_code=error)
        case DescribeStreamsGroup():
            return streams_group_describe.DescribedGroup(group_id=request.group_id, error_code=error)
        case ListShares():
            return ListedShares({}, error)
        case AlterShareOffsets():
            return AlteredShareOffsets(error)
        case DeleteShareOffsets():
            return DeletedShareOffsets(error)
        case DescribeGroup():
            return DescribedGroup(group_id=request.group_id, error_code=error)
        case DeleteGroup():
            return DeletableGroupResult(group_id=request.group_id, error_code=error)
        case ListGroups() | ForceRebalance():
            return error
        case _:
            return None


def answer_appended(_core: Core, follow_up: AnswerCall[R], error: ErrorCode, _now: Moment) -> Effects:
    """Answer a call whose records were appended, or could not be."""
    call, response = follow_up
    return [Reply(call, response) if error is ErrorCode.NONE else refuse(call, error)]
