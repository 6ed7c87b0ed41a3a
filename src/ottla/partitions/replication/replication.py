"""The replication of one broker: its fetchers, its changes of in-sync replicas, and the check for followers that lag.

    replication = Replication(ports)
    replication.start()     # once the metadata contains this broker's registration
    await replication.close(timeout_s)

Fetches and changes of the ISR contain the broker epoch. Until the metadata contains the registration of this process,
it has the epoch of an earlier process, which had records that this one may lack (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.cluster.controller_channel import ControllerChannel
from ottla.common.slices import Slices
from ottla.network.node_channel import NodeChannel, NodeChannels
from ottla.partitions.replication.alter_partitions import AlterPartitions
from ottla.partitions.replication.context import Channel, FetcherContext
from ottla.partitions.replication.fetchers import ReplicaFetchers
from ottla.replication.session import FetchSettings

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.node.endpoints import NodeEndpoints
    from ottla.cluster.node.schedulers import Schedulers
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.clock import Clock
    from ottla.common.timers import TimerHandle
    from ottla.config import BrokerConfig
    from ottla.log import LogManager
    from ottla.partitions.partitions import Partitions
    from ottla.partitions.replication.quotas import ReplicationQuotas

SLICE_PARTITIONS = 100


class ReplicationPorts(Protocol):
    """The parts of the node that its replication uses."""

    settings: NodeSettings
    metadata: MetadataShell
    clock: Clock
    schedulers: Schedulers
    endpoints: NodeEndpoints
    logs: LogManager
    partitions: Partitions
    replication_quotas: ReplicationQuotas


class Replication:
    """See the module's docstring. Partitions are led and followed whether it runs or not; it moves their records."""

    def __init__(self, ports: ReplicationPorts) -> None:
        self._ports = ports
        self._timer: TimerHandle | None = None
        config, call_later = ports.settings.static, ports.schedulers.call_later
        cluster = ports.partitions.cluster
        cluster.lag_time_max_ms = config.int("replica.lag.time.max.ms")
        to_controllers = ports.settings.peers.controllers
        self._channels = NodeChannels(f"broker-{config.node_id}-alter-partition", options=to_controllers)
        self._controller = ControllerChannel(ports.metadata, ports.clock, call_later, self._channels)
        self._alter_partitions = AlterPartitions(self._controller, cluster, call_later)
        context = FetcherContext(
            cluster=cluster,
            logs=ports.logs,
            clock=ports.clock,
            call_later=call_later,
            worker=ports.schedulers.worker,
            settings=fetch_settings(config),
            request_timeout_s=config.int("replica.socket.timeout.ms") / 1000,
            connect=self._connect,
            quota=ports.replication_quotas.follower,
            on_lost=ports.endpoints.lost_brokers.lost,
            on_answer=ports.endpoints.lost_brokers.answered,
        )
        self._fetchers = ReplicaFetchers(context, lambda: ports.settings.current.int("num.replica.fetchers"))

    def start(self) -> None:
        """Fetch from the leaders, and report to the controller which followers are in sync."""
        partitions = self._ports.partitions
        partitions.send_proposal = self._alter_partitions.propose
        partitions.listen(self._fetchers)
        self._schedule_check()

    async def close(self, timeout_s: float) -> None:
        """Stop fetching and changing the ISR; the logs can be closed afterwards."""
        if self._timer is not None:
            self._timer.cancel()
        self._ports.partitions.send_proposal = None
        self._alter_partitions.close()
        self._fetchers.close()
        self._controller.close()
        await self._channels.aclose(timeout_s)

    def _connect(self, node_id: int, client_id: str) -> Channel | None:
        node = self._ports.metadata.image.brokers.get(node_id)
        endpoint = node.endpoint(self._ports.settings.static.inter_broker_listener) if node is not None else None
        if endpoint is None:
            return None
        options = self._ports.settings.peers.brokers
        return NodeChannel(endpoint.host, endpoint.port, client_id=client_id, options=options)

    def _schedule_check(self) -> None:
        # Twice in replica.lag.time.max.ms, as `Leader.check_lag` requires.
        self._timer = self._ports.schedulers.call_later(
            self._ports.partitions.cluster.lag_time_max_ms / 2000, self._check_lag
        )

    def _check_lag(self) -> None:
        self._schedule_check()
        self._ports.schedulers.worker.submit(self._check_in_slices()).on_done(lambda done: done.result())

    def _check_in_slices(self) -> Slices[None]:
        for count, partition in enumerate(list(self._ports.partitions)):
            if count % SLICE_PARTITIONS == 0:
                yield
            partition.check_lag()


def fetch_settings(config: BrokerConfig) -> FetchSettings:
    """The settings of the fetchers."""
    return FetchSettings(
        wait_max_ms=config.int("replica.fetch.wait.max.ms"),
        min_bytes=config.int("replica.fetch.min.bytes"),
        max_bytes=config.int("replica.fetch.max.bytes"),
        response_max_bytes=config.int("replica.fetch.response.max.bytes"),
        backoff_ms=config.int("replica.fetch.backoff.ms"),
    )
