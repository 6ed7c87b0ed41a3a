"""Responses of the quorum as Kafka's messages, in every version, and back.

A response names the leader's endpoint on one listener: the request's listener, and on the other side the listener on
which a node reaches the others. Some errors belong to the whole response, all others to the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol.message import Message
from ottla.protocol.messages import add_raft_voter as add
from ottla.protocol.messages import api_versions, fetch, fetch_snapshot, vote
from ottla.protocol.messages import begin_quorum_epoch as begin
from ottla.protocol.messages import end_quorum_epoch as end
from ottla.protocol.messages import remove_raft_voter as remove
from ottla.protocol.messages import update_raft_voter as update
from ottla.raft import messages as m
from ottla.raft.values import Endpoint, Endpoints, LogEnd, SnapshotId, address_of
from ottla.raft.voters import VersionRange

KRAFT_VERSION = "kraft.version"
TOP_LEVEL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION})
UNKNOWN = -1


class InvalidResponseError(Exception):
    """The response is not about the metadata partition. The request failed."""


def encode(request: m.Request, response: m.Response, listener: str, records: bytes = b"") -> Message:
    """The message that answers `request`; `records` are for a fetch, or the part of a snapshot."""
    match request, response:
        case m.VoteRequest(), m.VoteResponse():
            return _encode_vote(response, listener)
        case m.BeginQuorumEpochRequest(), m.QuorumEpochResponse():
            return _encode_epoch(begin, begin.BeginQuorumEpochResponse, response, listener)
        case m.EndQuorumEpochRequest(), m.QuorumEpochResponse():
            return _encode_epoch(end, end.EndQuorumEpochResponse, response, listener)
        case m.FetchRequest(), m.FetchResponse():
            return _encode_fetch(response, listener, records)
        case m.FetchSnapshotRequest(), m.FetchSnapshotResponse():
            return _encode_fetch_snapshot(response, listener, records)
        case m.AddVoterRequest(), m.VoterChangeResponse(error=error, message=text):
            return add.AddRaftVoterResponse(error_code=error, error_message=text)
        case m.RemoveVoterRequest(), m.VoterChangeResponse(error=error, message=text):
            return remove.RemoveRaftVoterResponse(error_code=error, error_message=text)
        case m.UpdateVoterRequest(), m.UpdateVoterResponse():
            return _encode_update(response, listener)
    raise TypeError(f"{response} does not answer {request}")


def encode_error(message: Message, error: ErrorCode) -> Message:
    """The response to a request that `wire_requests.decode` rejected: a top-level error."""
    return _RESPONSES[type(message)](error_code=error)


def decode(message: Message, listener: str) -> m.Response:
    """The response in a message. Raises InvalidResponseError."""
    decoder: Callable[[Any, str], m.Response] = _DECODERS[type(message)]
    return decoder(message, listener)


def records_of(message: Message) -> bytes:
    """The records of a FetchResponse, or the bytes of a FetchSnapshotResponse."""
    if isinstance(message, fetch.FetchResponse) and message.responses:
        return bytes(message.responses[0].partitions[0].records or b"")
    if isinstance(message, fetch_snapshot.FetchSnapshotResponse) and message.topics:
        return bytes(message.topics[0].partitions[0].unaligned_records)
    return b""


# -- encoding ------------------------------------------------------------------------------------------------------


def _encode_vote(response: m.VoteResponse, listener: str) -> vote.VoteResponse:
    if response.error in TOP_LEVEL:
        return vote.VoteResponse(error_code=response.error)
    partition = vote.ResponsePartitionData(
        partition_index=0,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.granted,
    )
    topics = [vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    nodes = [vote.NodeEndpoint(response.leader_id, each.host, each.port) for each in _address(response, listener)]
    return vote.VoteResponse(topics=topics, node_endpoints=nodes)


def _encode_epoch(module: Any, kind: Callable[..., Message], response: m.QuorumEpochResponse, listener: str) -> Message:
    """BeginQuorumEpochResponse and EndQuorumEpochResponse have the same fields."""
    if response.error in TOP_LEVEL:
        return kind(error_code=response.error)
    partition = module.ResponsePartitionData(
        partition_index=0, error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
    )
    topics = [module.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    nodes = [module.NodeEndpoint(response.leader_id, each.host, each.port) for each in _address(response, listener)]
    return kind(topics=topics, node_endpoints=nodes)


def _encode_fetch(response: m.FetchResponse, listener: str, records: bytes) -> fetch.FetchResponse:
    if response.error in TOP_LEVEL:
        return fetch.FetchResponse(error_code=response.error)
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=response.error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(response.leader_id, response.epoch),
        aborted_transactions=None,
        records=records,
    )
    if response.diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(response.diverging.epoch, response.diverging.offset)
    if response.snapshot is not None:
        partition.snapshot_id = fetch.SnapshotId(*response.snapshot)
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    nodes = [fetch.NodeEndpoint(response.leader_id, each.host, each.port) for each in _address(response, listener)]
    return fetch.FetchResponse(responses=[topic], node_endpoints=nodes)


def _encode_fetch_snapshot(
    response: m.FetchSnapshotResponse, listener: str, data: bytes
) -> fetch_snapshot.FetchSnapshotResponse:
    if response.error in TOP_LEVEL:
        return fetch_snapshot.FetchSnapshotResponse(error_code=response.error)
    # Without a snapshot, Kafka's responses have an id of zeros, not the id for an unknown one.
    snapshot = response.snapshot if response.error is ErrorCode.NONE else SnapshotId(0, 0)
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        index=0,
        error_code=response.error,
        snapshot_id=fetch_snapshot.ResponseSnapshotId(*snapshot),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(response.leader_id, response.epoch),
        size=response.size,
        position=response.position,
        unaligned_records=data,
    )
    topics = [fetch_snapshot.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])]
    addresses = _address(response, listener)
    nodes = [fetch_snapshot.NodeEndpoint(response.leader_id, each.host, each.port) for each in addresses]
    return fetch_snapshot.FetchSnapshotResponse(topics=topics, node_endpoints=nodes)


def _encode_update(response: m.UpdateVoterResponse, listener: str) -> update.UpdateRaftVoterResponse:
    leader = update.CurrentLeader(leader_id=response.leader_id, leader_epoch=response.epoch)
    for each in _address(response, listener):
        leader.host, leader.port = each.host, each.port
    return update.UpdateRaftVoterResponse(error_code=response.error, current_leader=leader)


def _address(response: m.LeaderResponse, listener: str) -> tuple[Endpoint, ...]:
    endpoint = address_of(response.leader_endpoints, listener)
    return () if endpoint is None or response.leader_id < 0 else (endpoint,)


# -- decoding ------------------------------------------------------------------------------------------------------


def _decode_vote(message: vote.VoteResponse, listener: str) -> m.VoteResponse:
    if message.error_code:
        return m.VoteResponse(ErrorCode(message.error_code), UNKNOWN)
    part = _only(topic.partitions for topic in message.topics if topic.topic_name == METADATA_TOPIC)
    endpoints = _endpoints(message.node_endpoints, part.leader_id, listener)
    return m.VoteResponse(
        ErrorCode(part.error_code), part.leader_epoch, part.leader_id, endpoints, granted=part.vote_granted
    )


def _decode_epoch(
    message: begin.BeginQuorumEpochResponse | end.EndQuorumEpochResponse, listener: str
) -> m.QuorumEpochResponse:
    if message.error_code:
        return m.QuorumEpochResponse(ErrorCode(message.error_code), UNKNOWN)
    topics: Iterable[Any] = message.topics
    part = _only(topic.partitions for topic in topics if topic.topic_name == METADATA_TOPIC)
    endpoints = _endpoints(message.node_endpoints, part.leader_id, listener)
    return m.QuorumEpochResponse(ErrorCode(part.error_code), part.leader_epoch, part.leader_id, endpoints)


def _decode_fetch(message: fetch.FetchResponse, listener: str) -> m.FetchResponse:
    if message.error_code:
        return m.FetchResponse(ErrorCode(message.error_code), UNKNOWN)
    part = _only(
        topic.partitions
        for topic in message.responses
        if topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID
    )
    leader = part.current_leader or fetch.LeaderIdAndEpoch()
    diverging, snapshot = part.diverging_epoch, part.snapshot_id
    if diverging and diverging.end_offset < 0 <= diverging.epoch:
        raise InvalidResponseError(f"The diverging epoch {diverging} has no end")
    return m.FetchResponse(
        ErrorCode(part.error_code),
        leader.leader_epoch,
        leader.leader_id,
        _endpoints(message.node_endpoints, leader.leader_id, listener),
        part.high_watermark,
        part.log_start_offset,
        LogEnd(diverging.end_offset, diverging.epoch) if diverging and diverging.epoch >= 0 else None,
        SnapshotId(snapshot.end_offset, snapshot.epoch) if _is_snapshot(snapshot) else None,
        has_records=bool(part.records),
    )


def _is_snapshot(snapshot: fetch.SnapshotId | None) -> bool:
    if snapshot is None or (snapshot.end_offset < 0 and snapshot.epoch < 0):
        return False
    if snapshot.end_offset < 0 or snapshot.epoch < 0:
        raise InvalidResponseError(f"The snapshot id {snapshot} has only one valid part")
    return True


def _decode_fetch_snapshot(message: fetch_snapshot.FetchSnapshotResponse, listener: str) -> m.FetchSnapshotResponse:
    if message.error_code:
        return m.FetchSnapshotResponse(ErrorCode(message.error_code), UNKNOWN)
    part = _only(topic.partitions for topic in message.topics if topic.name == METADATA_TOPIC)
    leader = part.current_leader or fetch_snapshot.LeaderIdAndEpoch()
    return m.FetchSnapshotResponse(
        ErrorCode(part.error_code),
        leader.leader_epoch,
        leader.leader_id,
        _endpoints(message.node_endpoints, leader.leader_id, listener),
        SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.size,
        part.position,
        len(part.unaligned_records),
    )


def _decode_change(message: add.AddRaftVoterResponse | remove.RemoveRaftVoterResponse, _: str) -> m.VoterChangeResponse:
    return m.VoterChangeResponse(ErrorCode(message.error_code), message.error_message)


def _decode_update(message: update.UpdateRaftVoterResponse, listener: str) -> m.UpdateVoterResponse:
    leader = message.current_leader
    endpoints = (Endpoint(listener, leader.host, leader.port),) if leader.host else ()
    return m.UpdateVoterResponse(ErrorCode(message.error_code), leader.leader_epoch, leader.leader_id, endpoints)


def _decode_api_versions(message: api_versions.ApiVersionsResponse, _: str) -> m.ApiVersionsResponse:
    ranges = (VersionRange(f.min_version, f.max_version) for f in message.supported_features if f.name == KRAFT_VERSION)
    return m.ApiVersionsResponse(ErrorCode(message.error_code), next(ranges, None))


def _only(partitions: Iterable[Iterable[Any]]) -> Any:
    found = [part for each in partitions for part in each]
    if len(found) != 1 or getattr(found[0], "partition_index", getattr(found[0], "index", 0)) != 0:
        raise InvalidResponseError("The response is not about the metadata partition alone")
    return found[0]


def _endpoints(nodes: Iterable[Any], leader_id: int, listener: str) -> Endpoints:
    return tuple(Endpoint(listener, each.host, each.port) for each in nodes if each.node_id == leader_id)


_RESPONSES: dict[type, Callable[..., Message]] = {
    vote.VoteRequest: vote.VoteResponse,
    begin.BeginQuorumEpochRequest: begin.BeginQuorumEpochResponse,
    end.EndQuorumEpochRequest: end.EndQuorumEpochResponse,
    fetch.FetchRequest: fetch.FetchResponse,
    fetch_snapshot.FetchSnapshotRequest: fetch_snapshot.FetchSnapshotResponse,
}
_DECODERS: dict[type, Callable[..., m.Response]] = {
    vote.VoteResponse: _decode_vote,
    begin.BeginQuorumEpochResponse: _decode_epoch,
    end.EndQuorumEpochResponse: _decode_epoch,
    fetch.FetchResponse: _decode_fetch,
    fetch_snapshot.FetchSnapshotResponse: _decode_fetch_snapshot,
    add.AddRaftVoterResponse: _decode_change,
    remove.RemoveRaftVoterResponse: _decode_change,
    update.UpdateRaftVoterResponse: _decode_update,
    api_versions.ApiVersionsResponse: _decode_api_versions,
}
