"""Features (KIP-584): the supported levels, and the record versions that a level allows.

The metadata log retains the finalized levels that stock Kafka wrote, so that Kafka can open it again. Clients receive
`served_level` instead, because a higher level would promise an unsupported protocol. group.version 1 enables consumer
groups (KIP-848), share.version 1 share groups (KIP-932), streams.version 1 streams groups (KIP-1071).
transaction.version 2 lets producers skip AddPartitionsToTxn (KIP-890). metadata.version is supported up to the level of
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"

LATEST_METADATA_VERSION = 30
# Kafka 4 refuses to run below 3.3-IV3.
LOWEST_METADATA_VERSION = 7

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (LOWEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    KRAFT_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
}
"""The (lowest, highest) supported level of each feature."""


def served_level(name: str, level: int) -> int:
    """The highest supported level up to a finalized level; 0 for an unknown feature."""
    return min(level, SUPPORTED_FEATURES[name][1]) if name in SUPPORTED_FEATURES else 0


METADATA_VERSION_NAMES: dict[int, str] = {
    7: "3.3-IV3", 8: "3.4-IV0", 9: "3.5-IV0", 10: "3.5-IV1", 11: "3.5-IV2", 12: "3.6-IV0", 13: "3.6-IV1",
    14: "3.6-IV2", 15: "3.7-IV0", 16: "3.7-IV1", 17: "3.7-IV2", 18: "3.7-IV3", 19: "3.7-IV4", 20: "3.8-IV0",
    21: "3.9-IV0", 22: "4.0-IV0", 23: "4.0-IV1", 24: "4.0-IV2", 25: "4.0-IV3", 26: "4.1-IV0", 27: "4.1-IV1",
    28: "4.2-IV0", 29: "4.2-IV1", 30: "4.3-IV0",
}  # fmt: skip

# Levels from which users have SCRAM credentials (KIP-900), from which controllers register (KIP-919), and from which
# records name log directories (KIP-858), eligible leader replicas (KIP-966), brokers that migrate from ZooKeeper
# (KIP-866) and cordoned directories (KIP-1066).
SCRAM_FROM = 11
CONTROLLERS_FROM = 15
DIRECTORIES_FROM = 17
_ELIGIBLE_LEADERS_FROM = 23
_MIGRATION_FROM = 8
CORDONED_FROM = 30


# The metadata.version from which a new cluster has a feature, and the level, as in Kafka.
_DEFAULTS_FROM: dict[str, tuple[int, int]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: (26, 1),
    GROUP_VERSION: (22, 1),
    SHARE_VERSION: (28, 1),
    STREAMS_VERSION: (29, 1),
    TRANSACTION_VERSION: (24, 2),
}


def metadata_version_of(release: str) -> int | None:
    """The metadata.version of a name such as "4.1-IV0", or of the release "4.1"; None if it is unknown."""
    known = [level for level, name in METADATA_VERSION_NAMES.items() if release in (name, name.partition("-")[0])]
    return max(known, default=None)


def default_levels(metadata_version: int = LATEST_METADATA_VERSION) -> dict[str, int]:
    """The levels of a new cluster, as Kafka has them, up to what is supported here; features at level 0 are omitted."""
    levels = {METADATA_VERSION: metadata_version}
    for name, (since, level) in _DEFAULTS_FROM.items():
        if metadata_version >= since and served_level(name, level):
            levels[name] = served_level(name, level)
    return levels


def feature_dependency(name: str, level: int) -> int:
    """The metadata.version that a level of a feature needs; 0 for none."""
    return _ELIGIBLE_LEADERS_FROM if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level else 0


def bootstrap_records(levels: Mapping[str, int] | None = None) -> list[Message]:
    """The first records of a new cluster, which set its feature levels; default: `default_levels()`."""
    levels = default_levels() if levels is None else levels
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [m.FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names if levels[name]]


def record_version(record: Message, metadata_version: int) -> int:
    """The record version that brokers of a metadata.version can read."""
    directories = metadata_version >= DIRECTORIES_FROM
    if isinstance(record, m.PartitionRecord | m.PartitionChangeRecord):
        return 2 if metadata_version >= _ELIGIBLE_LEADERS_FROM else int(directories)
    if isinstance(record, m.RegisterBrokerRecord):
        if directories:
            return 4 if metadata_version >= CORDONED_FROM else 3
        return 2 if metadata_version >= _MIGRATION_FROM else 1
    if isinstance(record, m.BrokerRegistrationChangeRecord):
        if directories:
            return 3 if metadata_version >= CORDONED_FROM else 2
        return 1
    return 0
