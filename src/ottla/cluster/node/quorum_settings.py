"""The quorum of a node, from its settings. KIP-595, KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft import Endpoint, QuorumConfig, VoterSet
from ottla.raft.values import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.cluster.metadata.options import NodeIdentity
    from ottla.config import BrokerConfig, Listener

# Bootstrap servers have ids below -1: their node ids are unknown.
_FIRST_SERVER = -2


def quorum_settings(config: BrokerConfig, node: NodeIdentity, own: Sequence[Listener]) -> QuorumConfig | None:
    """The settings of this node's replica; None if it is a quorum of its own. `own` are its controller listeners."""
    roles = config.roles
    if roles.is_single:
        return None
    listener = config.items("controller.listener.names")[0].upper()
    addresses = {node_id: (address.host, address.port) for node_id, address in roles.voters.items()}
    if config.formats_itself and not addresses and own:
        # This directory was formatted by its first start, which wrote no voters.
        addresses[config.node_id] = (own[0].host, own[0].port)
    servers = [Node(_FIRST_SERVER - i, *address) for i, address in enumerate(roles.bootstrap_servers)]
    servers += [Node(node_id, *address) for node_id, address in roles.voters.items() if node_id != config.node_id]
    return QuorumConfig(
        config.node_id,
        node.directory_id,
        node.cluster_id,
        static_voters=VoterSet.of_addresses(listener, addresses),
        bootstrap=tuple(servers),
        endpoints=tuple(Endpoint(each.name, each.host, each.port) for each in own),
        listener=listener,
        can_become_voter=roles.is_controller,
        auto_join=config.bool("controller.quorum.auto.join.enable"),
        election_timeout_ms=config.int("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.int("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.int("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.int("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.int("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=config.int("controller.quorum.fetch.snapshot.max.bytes"),
    )
