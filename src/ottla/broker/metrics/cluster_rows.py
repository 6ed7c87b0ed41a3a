"""Metrics of the controller, the quorum and the log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.metrics import families as f
from ottla.common.slices import Slices
from ottla.metadata.image import NO_LEADER
from ottla.metrics.exposition import Samples, labelled
from ottla.raft import Role

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.log import LogManager

# Partitions between two looks at the clock: a part of a millisecond.
_AT_ONCE: Final = 1_000
_OBSERVER: Final = "observer"


def add_directories(samples: Samples, logs: LogManager) -> None:
    """Add the state and the volume of each log directory."""
    offline = 0
    for directory in logs.directories():
        offline += not directory.online
        samples.add(f.DIRECTORY_OFFLINE, int(not directory.online), labelled(logDirectory=directory.path))
        if directory.online:
            labels = labelled(directory=directory.path)
            samples.add(f.DIRECTORY_TOTAL, directory.total_bytes, labels)
            samples.add(f.DIRECTORY_USABLE, directory.usable_bytes, labels)
    samples.add(f.OFFLINE_DIRECTORIES, offline)


def add_quorum(samples: Samples, metadata: MetadataShell) -> None:
    """Add this node's view of the quorum."""
    raft = metadata.raft
    leader = raft.leader
    election = raft.election
    samples.add(f.RAFT_LEADER, -1 if leader is None else leader[0])
    samples.add(f.RAFT_EPOCH, raft.epoch)
    samples.add(f.RAFT_VOTE, election.voted.node_id if election.has_voted else -1)
    state = raft.role.value if raft.is_voter or raft.role is not Role.FOLLOWER else _OBSERVER
    samples.add(f.RAFT_STATE, 1, labelled(current_state=state))
    samples.add(f.RAFT_HIGH_WATERMARK, raft.high_watermark)
    samples.add(f.RAFT_END, raft.end.offset)
    samples.add(f.RAFT_VOTERS, len(raft.voters.ids))
    samples.add(f.LAST_APPLIED, metadata.image.offset)


def add_controller(samples: Samples, metadata: MetadataShell) -> Slices[None]:
    """Add what the active controller knows of the cluster; zeros on other nodes, so that sums are right."""
    is_active = metadata.is_active_controller
    image = metadata.image
    topics = list(image.topics_by_name.values()) if is_active else []
    brokers = list(image.brokers.values()) if is_active else []
    partitions = offline = not_preferred = 0
    for topic in topics:
        for partition in topic.partitions.values():
            partitions += 1
            offline += partition.leader == NO_LEADER
            not_preferred += partition.leader != partition.replicas[0]
            if partitions % _AT_ONCE == 0:
                yield
    fenced = sum(broker.fenced for broker in brokers)
    samples.add(f.ACTIVE_CONTROLLER, int(is_active))
    samples.add(f.ACTIVE_BROKERS, len(brokers) - fenced)
    samples.add(f.FENCED_BROKERS, fenced)
    samples.add(f.GLOBAL_TOPICS, len(topics))
    samples.add(f.GLOBAL_PARTITIONS, partitions)
    samples.add(f.OFFLINE_PARTITIONS, offline)
    samples.add(f.PREFERRED_IMBALANCE, not_preferred)
