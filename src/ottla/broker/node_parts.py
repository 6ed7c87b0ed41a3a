"""Parts of a node that exist from some step of its start on: logs, background work, the reason to stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.broker.maintenance import MaintenanceTasks
from ottla.cluster.node.directories import close_unopened
from ottla.cluster.node.membership import Membership
from ottla.log import Files, LogManager
from ottla.partitions.replication.replication import Replication

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.health import NodeProbes
    from ottla.broker.metrics.meter import Meter
    from ottla.broker.metrics.node import NodeMetrics
    from ottla.network.server import Server


@dataclass(slots=True)
class Stopping:
    """`event` is set when the node has to stop, after `failure` if a disk or the metadata log failed."""

    event: asyncio.Event
    failure: str | None = None
    leaves: bool = True
    """Whether a clean stop moves leaderships to other nodes first."""

    def fail(self, problem: str) -> None:
        """Stop because of `problem`."""
        self.failure = problem
        self.event.set()


@dataclass(slots=True)
class Background:
    """Measurements, endpoints, membership in a cluster, replication, periodic tasks; each is None before it starts."""

    meter: Meter | None = None
    metrics: NodeMetrics | None = None
    probes: NodeProbes | None = None
    membership: Membership | None = None
    replication: Replication | None = None
    maintenance: MaintenanceTasks | None = None

    def open_endpoints(self, broker: Broker) -> None:
        """Answer scrapes and probes."""
        if self.metrics is not None:
            self.metrics.open(broker)
        if self.probes is not None:
            self.probes.open(broker)

    def report_started(self, network: Server | None) -> None:
        """Let scrapes and probes report the node as running, with its connections."""
        if self.metrics is not None:
            self.metrics.started(network)
        if self.probes is not None:
            self.probes.enter("running")

    def report_stopping(self) -> None:
        """Let scrapes and probes report the node as stopping."""
        if self.metrics is not None:
            self.metrics.stopping()
        if self.probes is not None:
            self.probes.enter("stopping")

    async def close(self, timeout_s: float) -> None:
        """Stop in the reverse order of the start; each part gets `timeout_s` seconds."""
        if self.probes is not None:
            await self.probes.close()
        if self.metrics is not None:
            await self.metrics.close()
        if self.replication is not None:
            await self.replication.close(timeout_s)
        if self.membership is not None:
            await self.membership.close(timeout_s)
        if self.maintenance is not None:
            self.maintenance.close()


@dataclass(slots=True)
class NodeLogs:
    """The logs of the node's directories, which are locked when `manager` is set, and read when `is_loaded`."""

    files: Files
    manager: LogManager | None = None
    is_loaded: bool = False

    def close(self, broker_epoch: int | None) -> None:
        """Close cleanly with the epoch of this broker, or as after a kill (None): the next start recovers the logs."""
        if self.manager is None:
            return
        if broker_epoch is None:
            self.manager.abandon()
        elif self.is_loaded:
            self.manager.close(broker_epoch)
        else:
            close_unopened(self.files, self.manager)
