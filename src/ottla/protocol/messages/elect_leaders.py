"""ElectLeaders (43) elects leaders of partitions: the preferred replica, or (unclean) any. KIP-183, KIP-460."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct, since


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    """Asks for elections; null means all partitions."""

    election_type: Int8 = since(1)
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class TopicPartitions(Struct):
    """An element of `ElectLeadersRequest.topic_partitions`."""

    topic: str = ""
    partitions: list[Int32] = []


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1)
    replica_election_results: list[ReplicaElectionResult] = []


class ReplicaElectionResult(Struct):
    """An element of `ElectLeadersResponse.replica_election_results`."""

    topic: str = ""
    partition_result: list[PartitionResult] = []


class PartitionResult(Struct):
    """An element of `ReplicaElectionResult.partition_result`."""

    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
