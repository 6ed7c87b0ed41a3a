"""Creates the parts of one node and connects them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker import late
from ottla.broker.broker import Broker, Caches, ConnectionsOfBrokers, Copying
from ottla.broker.controller_client import ControllerClient
from ottla.broker.mirrors.mirrors import Mirrors
from ottla.broker.quotas import Quotas
from ottla.broker.response_cache import ResponseCache
from ottla.broker.security import Security, create_authorization
from ottla.cluster.control.connections import BrokerConnections
from ottla.cluster.controller_channel import ControllerChannel
from ottla.cluster.lost_brokers import LostBrokers
from ottla.cluster.node.endpoints import NodeEndpoints
from ottla.cluster.node.membership import MemberPorts, Membership
from ottla.cluster.node.settings import NodeSettings
from ottla.common.system_random import random_uuid
from ottla.config.metrics_rows import LISTENER as METRICS_LISTENER
from ottla.controller.state import SECRET_KEY
from ottla.coordination.coordinators import Coordinators
from ottla.coordination.ports import CoordinatorPorts
from ottla.network.closing_order import ClosedFirst
from ottla.network.node_channel import NodeChannels
from ottla.partitions.fetch_session import FetchSessionCache
from ottla.partitions.partitions import Partitions, PartitionsPorts
from ottla.partitions.replication.directory_moves import DirectoryMoves, MovePorts
from ottla.partitions.replication.quotas import ReplicationQuotas

if TYPE_CHECKING:
    from ottla.broker.delegation_tokens import DelegationTokens
    from ottla.broker.telemetry.receiver import ClientTelemetry
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.metadata.options import NodeIdentity
    from ottla.cluster.node.schedulers import Schedulers
    from ottla.common.clock import Clock
    from ottla.config import BrokerConfig
    from ottla.log import LogManager


def create_broker(
    config: BrokerConfig,
    identity: NodeIdentity,
    metadata: MetadataShell,
    logs: LogManager,
    clock: Clock,
    schedulers: Schedulers,
) -> Broker:
    """Create the parts of a node over its metadata and logs; nothing runs yet."""
    node_id, call_later = identity.node_id, schedulers.call_later
    settings = NodeSettings(config, metadata)
    endpoints = NodeEndpoints(node_id, metadata, LostBrokers(call_later))
    in_thread = schedulers.flush_threads.run
    ports = PartitionsPorts(node_id, logs, clock, settings.topic_values, in_thread, schedulers.worker)
    partitions = Partitions(ports, schedulers.worker.later)
    replication_quotas = ReplicationQuotas(config, lambda: settings.current, clock)
    image = lambda: metadata.image  # noqa: E731
    moves = MovePorts(node_id, logs, partitions, call_later, in_thread, image, replication_quotas.moves)
    channels = [
        ControllerChannel(
            metadata, clock, call_later, NodeChannels(f"broker-{node_id}{purpose}", options=settings.peers.controllers)
        )
        for purpose in ("", "-forwarding")
    ]
    controller = ControllerClient(settings, metadata, *channels)
    coordinators = Coordinators(
        CoordinatorPorts(
            node_id,
            settings,
            metadata,
            endpoints,
            clock,
            schedulers,
            partitions,
            create_topic=controller.create_internal_topic,
            allocate_producer_ids=controller.allocate_producer_ids,
        )
    )
    broker = Broker(
        identity=identity,
        settings=settings,
        metadata=metadata,
        endpoints=endpoints,
        clock=clock,
        schedulers=schedulers,
        logs=logs,
        partitions=partitions,
        copying=Copying(DirectoryMoves(moves), Mirrors()),
        replication_quotas=replication_quotas,
        coordinators=coordinators,
        controller=controller,
        connections=ConnectionsOfBrokers(BrokerConnections(), ClosedFirst()),
        caches=Caches(
            FetchSessionCache(config.int("max.incremental.fetch.session.cache.slots"), _session_id),
            ResponseCache(),
            _telemetry(config, clock),
        ),
        security=Security(
            *create_authorization(config, metadata),
            tokens=_tokens(config, metadata, clock),
            quotas=Quotas.from_config(config, clock),
        ),
    )
    if config.roles.is_broker and config["confluent.schema.registry.url"] is not None:
        _ = broker.contracts  # its creation reports wrong settings
    return broker


def _tokens(config: BrokerConfig, metadata: MetadataShell, clock: Clock) -> DelegationTokens | None:
    return late.DelegationTokens.from_config(config, metadata, clock) if config.text(SECRET_KEY) else None


def _telemetry(config: BrokerConfig, clock: Clock) -> ClientTelemetry | None:
    if not config.roles.is_broker or config.text(METRICS_LISTENER) is None:
        return None
    return late.ClientTelemetry(clock, config.int("telemetry.max.bytes"), random_uuid)


def _session_id() -> int:
    return int.from_bytes(os.urandom(4), "big") >> 1


def create_membership(broker: Broker, give_up: Callable[[str], None]) -> Membership:
    """Create what connects the node with the other nodes of its cluster; `give_up(problem)` stops the node."""
    return Membership(
        MemberPorts(
            settings=broker.settings,
            metadata=broker.metadata,
            endpoints=broker.endpoints,
            clock=broker.clock,
            call_later=broker.schedulers.call_later,
            channel=broker.controller.channel,
            heartbeats=broker.connections.heartbeats,
            logs=broker.logs,
            placements=broker.directory_moves,
            give_up=give_up,
        )
    )
