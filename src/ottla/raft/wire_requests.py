"""Requests of the quorum as Kafka's messages, in every version, and back.

`lowest_version` says which version a request needs. If the other node does not have it, the shell reports the response
UNSUPPORTED_VERSION to the core, which then goes without pre-votes.

Encoded messages have one topic and one partition. `decode` rejects others with WrongPartitionError: the response has
INVALID_REQUEST as its top-level error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ottla.common.ids import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, Uuid
from ottla.protocol.message import Message
from ottla.protocol.messages import add_raft_voter as add
from ottla.protocol.messages import api_versions, fetch, fetch_snapshot, vote
from ottla.protocol.messages import begin_quorum_epoch as begin
from ottla.protocol.messages import end_quorum_epoch as end
from ottla.protocol.messages import remove_raft_voter as remove
from ottla.protocol.messages import update_raft_voter as update
from ottla.raft import messages as m
from ottla.raft.values import NO_NODE, Endpoint, Endpoints, LogEnd, ReplicaKey, SnapshotId
from ottla.raft.voters import VersionRange

SOFTWARE = "ottla"


class WrongPartitionError(Exception):
    """The message is not about the metadata partition alone."""


class _Listener(Protocol):
    name: str
    host: str
    port: int


def lowest_version(request: m.Request) -> int:
    """The lowest version that can express the request."""
    if isinstance(request, m.VoteRequest):
        return 2 if request.pre_vote else 0
    if isinstance(request, m.AddVoterRequest):
        return 0 if request.ack_when_committed else 1
    if isinstance(request, m.FetchRequest):
        return 12  # the first version with the epoch of the last record
    return 3 if isinstance(request, m.ApiVersionsRequest) else 0


def encode(request: m.Request) -> Message:
    """The message; fields that a version does not have are omitted when it is written."""
    encoder: Callable[[Any], Message] = _ENCODERS[type(request)]
    return encoder(request)


def decode(message: Message) -> m.Request:
    """The request in a message. Raises WrongPartitionError."""
    decoder: Callable[[Any], m.Request] = _DECODERS[type(message)]
    return decoder(message)


# -- Vote ----------------------------------------------------------------------------------------------------------


def _encode_vote(request: m.VoteRequest) -> vote.VoteRequest:
    voter = request.voter or ReplicaKey(NO_NODE)
    partition = vote.RequestPartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=request.end.epoch,
        last_offset=request.end.offset,
        pre_vote=request.pre_vote,
    )
    topics = [vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    return vote.VoteRequest(cluster_id=request.cluster_id, voter_id=voter.node_id, topics=topics)


def _decode_vote(message: vote.VoteRequest) -> m.VoteRequest:
    part = _only(message.topics)
    return m.VoteRequest(
        message.cluster_id,
        _voter(message.voter_id, part.voter_directory_id),
        ReplicaKey(part.replica_id, part.replica_directory_id or ZERO_UUID),
        part.replica_epoch,
        LogEnd(part.last_offset, part.last_offset_epoch),
        part.pre_vote,
    )


# -- BeginQuorumEpoch, EndQuorumEpoch ------------------------------------------------------------------------------


def _encode_begin(request: m.BeginQuorumEpochRequest) -> begin.BeginQuorumEpochRequest:
    voter = request.voter or ReplicaKey(NO_NODE)
    partition = begin.RequestPartitionData(
        partition_index=0,
        voter_directory_id=voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=voter.node_id,
        topics=[begin.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[begin.LeaderEndpoint(*each) for each in request.endpoints],
    )


def _decode_begin(message: begin.BeginQuorumEpochRequest) -> m.BeginQuorumEpochRequest:
    part = _only(message.topics)
    voter = _voter(message.voter_id, part.voter_directory_id)
    endpoints = _endpoints(message.leader_endpoints)
    return m.BeginQuorumEpochRequest(message.cluster_id, voter, part.leader_id, part.leader_epoch, endpoints)


def _encode_end(request: m.EndQuorumEpochRequest) -> end.EndQuorumEpochRequest:
    partition = end.RequestPartitionData(
        partition_index=0,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.node_id for key in request.preferred],
        preferred_candidates=[end.ReplicaInfo(key.node_id, key.directory_id) for key in request.preferred],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        topics=[end.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[end.LeaderEndpoint(*each) for each in request.endpoints],
    )


def _decode_end(message: end.EndQuorumEpochRequest) -> m.EndQuorumEpochRequest:
    part = _only(message.topics)
    candidates = tuple(ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in part.preferred_candidates)
    preferred = candidates or tuple(ReplicaKey(node) for node in part.preferred_successors)
    endpoints = _endpoints(message.leader_endpoints)
    return m.EndQuorumEpochRequest(message.cluster_id, part.leader_id, part.leader_epoch, preferred, endpoints)


# -- Fetch, FetchSnapshot ------------------------------------------------------------------------------------------


def _encode_fetch(request: m.FetchRequest) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.end.offset,
        last_fetched_epoch=request.end.epoch,
        partition_max_bytes=0,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    node = request.replica.node_id
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_id=node,
        replica_state=fetch.ReplicaState(replica_id=node),
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        topics=[fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _decode_fetch(message: fetch.FetchRequest) -> m.FetchRequest:
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        raise WrongPartitionError("A fetch of the metadata has one partition")
    topic = message.topics[0]
    part = topic.partitions[0]
    is_metadata = topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID
    if not is_metadata or part.partition != 0:
        raise WrongPartitionError(f"{topic.topic or topic.topic_id!r}-{part.partition} is not the metadata partition")
    state = message.replica_state
    node = state.replica_id if state is not None and state.replica_id != NO_NODE else message.replica_id
    return m.FetchRequest(
        message.cluster_id,
        ReplicaKey(node, part.replica_directory_id or ZERO_UUID),
        part.current_leader_epoch,
        LogEnd(part.fetch_offset, part.last_fetched_epoch),
        part.high_watermark,
        message.max_wait_ms,
        message.max_bytes,
    )


def _encode_fetch_snapshot(request: m.FetchSnapshotRequest) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.RequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.RequestSnapshotId(*request.snapshot),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=request.max_bytes,
        topics=[fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def _decode_fetch_snapshot(message: fetch_snapshot.FetchSnapshotRequest) -> m.FetchSnapshotRequest:
    topics = message.topics
    if len(topics) != 1 or topics[0].name != METADATA_TOPIC or [p.partition for p in topics[0].partitions] != [0]:
        raise WrongPartitionError("Only the metadata partition has snapshots")
    part = topics[0].partitions[0]
    return m.FetchSnapshotRequest(
        message.cluster_id,
        ReplicaKey(message.replica_id, part.replica_directory_id or ZERO_UUID),
        part.current_leader_epoch,
        SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.position,
        message.max_bytes,
    )


# -- voters --------------------------------------------------------------------------------------------------------


def _encode_add(request: m.AddVoterRequest) -> add.AddRaftVoterRequest:
    return add.AddRaftVoterRequest(
        cluster_id=request.cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=request.voter.node_id,
        voter_directory_id=request.voter.directory_id,
        listeners=[add.Listener(*each) for each in request.endpoints],
        ack_when_committed=request.ack_when_committed,
    )


def _decode_add(message: add.AddRaftVoterRequest) -> m.AddVoterRequest:
    return m.AddVoterRequest(
        message.cluster_id,
        message.timeout_ms,
        ReplicaKey(message.voter_id, message.voter_directory_id),
        _endpoints(message.listeners),
        message.ack_when_committed,
    )


def _encode_remove(request: m.RemoveVoterRequest) -> remove.RemoveRaftVoterRequest:
    voter = request.voter
    return remove.RemoveRaftVoterRequest(
        cluster_id=request.cluster_id, voter_id=voter.node_id, voter_directory_id=voter.directory_id
    )


def _decode_remove(message: remove.RemoveRaftVoterRequest) -> m.RemoveVoterRequest:
    return m.RemoveVoterRequest(message.cluster_id, ReplicaKey(message.voter_id, message.voter_directory_id))


def _encode_update(request: m.UpdateVoterRequest) -> update.UpdateRaftVoterRequest:
    return update.UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.node_id,
        voter_directory_id=request.voter.directory_id,
        listeners=[update.Listener(*each) for each in request.endpoints],
        kraft_version_feature=update.KRaftVersionFeature(*request.kraft_versions),
    )


def _decode_update(message: update.UpdateRaftVoterRequest) -> m.UpdateVoterRequest:
    feature = message.kraft_version_feature
    return m.UpdateVoterRequest(
        message.cluster_id,
        message.current_leader_epoch,
        ReplicaKey(message.voter_id, message.voter_directory_id),
        _endpoints(message.listeners),
        VersionRange(feature.min_supported_version, feature.max_supported_version),
    )


def _encode_api_versions(_request: m.ApiVersionsRequest) -> api_versions.ApiVersionsRequest:
    return api_versions.ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version="unknown")


# -- parts ---------------------------------------------------------------------------------------------------------


def _only(topics: Iterable[Any]) -> Any:
    """Return the only partition of a request, which must be the metadata partition."""
    found = [(topic.topic_name, part.partition_index, part) for topic in topics for part in topic.partitions[:2]]
    if len(found) != 1 or found[0][:2] != (METADATA_TOPIC, 0):
        raise WrongPartitionError(f"{[each[:2] for each in found[:3]]} is not the metadata partition")
    return found[0][2]


def _voter(node_id: int, directory_id: Uuid) -> ReplicaKey | None:
    return None if node_id == NO_NODE else ReplicaKey(node_id, directory_id or ZERO_UUID)


def _endpoints(listeners: Iterable[_Listener]) -> Endpoints:
    return tuple(Endpoint(each.name, each.host, each.port) for each in listeners)


_ENCODERS: dict[type, Callable[..., Message]] = {
    m.VoteRequest: _encode_vote,
    m.BeginQuorumEpochRequest: _encode_begin,
    m.EndQuorumEpochRequest: _encode_end,
    m.FetchRequest: _encode_fetch,
    m.FetchSnapshotRequest: _encode_fetch_snapshot,
    m.AddVoterRequest: _encode_add,
    m.RemoveVoterRequest: _encode_remove,
    m.UpdateVoterRequest: _encode_update,
    m.ApiVersionsRequest: _encode_api_versions,
}
_DECODERS: dict[type, Callable[..., m.Request]] = {
    vote.VoteRequest: _decode_vote,
    begin.BeginQuorumEpochRequest: _decode_begin,
    end.EndQuorumEpochRequest: _decode_end,
    fetch.FetchRequest: _decode_fetch,
    fetch_snapshot.FetchSnapshotRequest: _decode_fetch_snapshot,
    add.AddRaftVoterRequest: _decode_add,
    remove.RemoveRaftVoterRequest: _decode_remove,
    update.UpdateRaftVoterRequest: _decode_update,
}
