"""The APIs and versions that this broker and its controller serve, for the dispatcher and for ApiVersions."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.protocol import registry
from ottla.protocol.messages.api_versions import ApiVersion

PRODUCE = 0

# The handler files, by API key; a request with another key closes the connection.
HANDLERS: dict[int, str] = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    17: "sasl_handshake",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    34: "alter_replica_log_dirs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "create_partitions",
    38: "create_delegation_token",
    39: "renew_delegation_token",
    40: "expire_delegation_token",
    41: "describe_delegation_token",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    48: "describe_client_quotas",
    49: "alter_client_quotas",
    50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials",
    52: "vote",
    53: "begin_quorum_epoch",
    54: "end_quorum_epoch",
    55: "describe_quorum",
    56: "alter_partition",
    57: "update_features",
    58: "envelope",
    59: "fetch_snapshot",
    60: "describe_cluster",
    61: "describe_producers",
    62: "broker_registration",
    63: "broker_heartbeat",
    64: "unregister_broker",
    65: "describe_transactions",
    66: "list_transactions",
    67: "allocate_producer_ids",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    70: "controller_registration",
    71: "get_telemetry_subscriptions",
    72: "push_telemetry",
    73: "assign_replicas_to_dirs",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    76: "share_group_heartbeat",
    77: "share_group_describe",
    78: "share_fetch",
    79: "share_acknowledge",
    80: "add_raft_voter",
    81: "remove_raft_voter",
    82: "update_raft_voter",
    83: "initialize_share_group_state",
    84: "read_share_group_state",
    85: "write_share_group_state",
    86: "delete_share_group_state",
    87: "read_share_group_state_summary",
    88: "streams_group_heartbeat",
    89: "streams_group_describe",
    90: "describe_share_group_offsets",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
}

# On the controller's listeners, Fetch is a request of the quorum.
CONTROLLER_HANDLERS: dict[int, str] = HANDLERS | {1: "metadata_fetch"}

# Requests that a node gets at once when it takes over from a node that failed: clients that wait (produce and fetch,
# groups, transactions), and on controller listeners the other voters and brokers. Loading them takes 0.2 s of processor
# time.
NEEDED_AT_FAILOVER = (0, 1, 2, 3, 8, 9, 10, 11, 12, 14, 22, 24, 26, 28, 68, 52, 53, 54, 56, 58, 62, 63, 67)

# Requests of brokers and controllers, which only controller listeners serve.
CONTROLLER_ONLY = frozenset({52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})

# Advertised only by a broker that receives clients' metrics, as in Kafka. Any other broker refuses them: a client that
# asks for versions knows that they are missing, and another one gets a reason instead of a closed connection.
TELEMETRY = frozenset({71, 72})

_IMPLEMENTED: dict[int, tuple[int, int]] = {
    key: (registry.API[key].min_version, registry.API[key].max_version) for key in HANDLERS
}

SERVED: dict[int, tuple[int, int]] = {
    key: versions for key, versions in _IMPLEMENTED.items() if key not in CONTROLLER_ONLY | TELEMETRY
}
# Version 6 is two-phase commit (KIP-939): unstable in Kafka too, and not advertised.
SERVED[22] = (0, 5)

_TELEMETRY = {key: _IMPLEMENTED[key] for key in sorted(TELEMETRY)}
SERVED_WITH_TELEMETRY = dict(sorted((SERVED | _TELEMETRY).items()))

# Kafka's controller listeners serve other APIs than its broker listeners. These APIs are implemented.
_FOR_CLIENTS = frozenset(
    {17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 51, 55, 57, 60, 64, 80, 81}
)
CONTROLLER_SERVED: dict[int, tuple[int, int]] = {
    key: _IMPLEMENTED[key] for key in sorted(CONTROLLER_ONLY | _FOR_CLIENTS | {1})
}

# The answered APIs: the advertised and the refused ones.
ANSWERED = SERVED_WITH_TELEMETRY
CONTROLLER_ANSWERED = CONTROLLER_SERVED


def api_rows(served: Mapping[int, tuple[int, int]]) -> list[ApiVersion]:
    """The rows of ApiVersions. Produce from version 0 on: otherwise librdkafka stops compressing (KAFKA-18659)."""
    return [
        ApiVersion(api_key=key, min_version=0 if key == PRODUCE else low, max_version=high)
        for key, (low, high) in served.items()
    ]
