"""Every request and response by its API key: name, versions, and the class, imported on first use.

The numbers equal the declarations in `messages/` (a test compares them), so that looking one up imports nothing. They
say what can be read and written; what a broker serves is decided by its dispatcher.
"""

from __future__ import annotations

import importlib
import re
from typing import Final

from ottla.common.values import value
from ottla.protocol.declaration import NEVER
from ottla.protocol.message import Message


@value
class ApiInfo:
    """One API. `flexible_from` is above every version if none is flexible."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    module: str

    def supports(self, version: int) -> bool:
        """Whether the version is declared."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields."""
        return version >= self.flexible_from


_ROWS = (
    (0, "Produce", 3, 13, 9),
    (1, "Fetch", 4, 18, 12),
    (2, "ListOffsets", 1, 11, 6),
    (3, "Metadata", 0, 13, 9),
    (8, "OffsetCommit", 2, 10, 8),
    (9, "OffsetFetch", 1, 10, 6),
    (10, "FindCoordinator", 0, 6, 3),
    (11, "JoinGroup", 0, 9, 6),
    (12, "Heartbeat", 0, 4, 4),
    (13, "LeaveGroup", 0, 5, 4),
    (14, "SyncGroup", 0, 5, 4),
    (15, "DescribeGroups", 0, 6, 5),
    (16, "ListGroups", 0, 5, 3),
    (17, "SaslHandshake", 0, 1, NEVER),
    (18, "ApiVersions", 0, 4, 3),
    (19, "CreateTopics", 2, 7, 5),
    (20, "DeleteTopics", 1, 6, 4),
    (21, "DeleteRecords", 0, 2, 2),
    (22, "InitProducerId", 0, 6, 2),
    (23, "OffsetForLeaderEpoch", 2, 4, 4),
    (24, "AddPartitionsToTxn", 0, 5, 3),
    (25, "AddOffsetsToTxn", 0, 4, 3),
    (26, "EndTxn", 0, 5, 3),
    (27, "WriteTxnMarkers", 1, 2, 1),
    (28, "TxnOffsetCommit", 0, 5, 3),
    (29, "DescribeAcls", 1, 3, 2),
    (30, "CreateAcls", 1, 3, 2),
    (31, "DeleteAcls", 1, 3, 2),
    (32, "DescribeConfigs", 1, 4, 4),
    (33, "AlterConfigs", 0, 2, 2),
    (34, "AlterReplicaLogDirs", 1, 2, 2),
    (35, "DescribeLogDirs", 1, 5, 2),
    (36, "SaslAuthenticate", 0, 2, 2),
    (37, "CreatePartitions", 0, 3, 2),
    (38, "CreateDelegationToken", 1, 3, 2),
    (39, "RenewDelegationToken", 1, 2, 2),
    (40, "ExpireDelegationToken", 1, 2, 2),
    (41, "DescribeDelegationToken", 1, 3, 2),
    (42, "DeleteGroups", 0, 2, 2),
    (43, "ElectLeaders", 0, 2, 2),
    (44, "IncrementalAlterConfigs", 0, 1, 1),
    (45, "AlterPartitionReassignments", 0, 1, 0),
    (46, "ListPartitionReassignments", 0, 0, 0),
    (47, "OffsetDelete", 0, 0, NEVER),
    (48, "DescribeClientQuotas", 0, 1, 1),
    (49, "AlterClientQuotas", 0, 1, 1),
    (50, "DescribeUserScramCredentials", 0, 0, 0),
    (51, "AlterUserScramCredentials", 0, 0, 0),
    (52, "Vote", 0, 2, 0),
    (53, "BeginQuorumEpoch", 0, 1, 1),
    (54, "EndQuorumEpoch", 0, 1, 1),
    (55, "DescribeQuorum", 0, 2, 0),
    (56, "AlterPartition", 2, 3, 0),
    (57, "UpdateFeatures", 0, 2, 0),
    (58, "Envelope", 0, 0, 0),
    (59, "FetchSnapshot", 0, 1, 0),
    (60, "DescribeCluster", 0, 2, 0),
    (61, "DescribeProducers", 0, 0, 0),
    (62, "BrokerRegistration", 0, 4, 0),
    (63, "BrokerHeartbeat", 0, 2, 0),
    (64, "UnregisterBroker", 0, 0, 0),
    (65, "DescribeTransactions", 0, 0, 0),
    (66, "ListTransactions", 0, 2, 0),
    (67, "AllocateProducerIds", 0, 0, 0),
    (68, "ConsumerGroupHeartbeat", 0, 1, 0),
    (69, "ConsumerGroupDescribe", 0, 1, 0),
    (70, "ControllerRegistration", 0, 0, 0),
    (71, "GetTelemetrySubscriptions", 0, 0, 0),
    (72, "PushTelemetry", 0, 0, 0),
    (73, "AssignReplicasToDirs", 0, 0, 0),
    (74, "ListConfigResources", 0, 1, 0),
    (75, "DescribeTopicPartitions", 0, 0, 0),
    (76, "ShareGroupHeartbeat", 1, 1, 0),
    (77, "ShareGroupDescribe", 1, 1, 0),
    (78, "ShareFetch", 1, 2, 0),
    (79, "ShareAcknowledge", 1, 2, 0),
    (80, "AddRaftVoter", 0, 1, 0),
    (81, "RemoveRaftVoter", 0, 0, 0),
    (82, "UpdateRaftVoter", 0, 0, 0),
    (83, "InitializeShareGroupState", 0, 0, 0),
    (84, "ReadShareGroupState", 0, 0, 0),
    (85, "WriteShareGroupState", 0, 1, 0),
    (86, "DeleteShareGroupState", 0, 0, 0),
    (87, "ReadShareGroupStateSummary", 0, 1, 0),
    (88, "StreamsGroupHeartbeat", 0, 0, 0),
    (89, "StreamsGroupDescribe", 0, 0, 0),
    (90, "DescribeShareGroupOffsets", 0, 1, 0),
    (91, "AlterShareGroupOffsets", 0, 0, 0),
    (92, "DeleteShareGroupOffsets", 0, 0, 0),
)


def _info(key: int, name: str, first: int, last: int, flexible: int) -> ApiInfo:
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return ApiInfo(key, name, first, last, flexible, f"ottla.protocol.messages.{module}")


API: Final[dict[int, ApiInfo]] = {row[0]: _info(*row) for row in _ROWS}
_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def _load(key: int, suffix: str, known: dict[int, type[Message]]) -> type[Message]:
    info = API[key]
    loaded: type[Message] = getattr(importlib.import_module(info.module), info.name + suffix)
    known[key] = loaded
    return loaded


def request_class(key: int) -> type[Message]:
    """The request of an API; raises KeyError if there is none."""
    return _requests.get(key) or _load(key, "Request", _requests)


def response_class(key: int) -> type[Message]:
    """The response of an API; raises KeyError if there is none."""
    return _responses.get(key) or _load(key, "Response", _responses)
