"""Starts and stops a node: a broker, a controller, or both.

The order of the start matters:

1. Lock the log directories, before any file in them is read or changed.
2. Bind the listeners, so that port 0 is replaced by a real port before the broker registers.
3. Load the metadata and enter the quorum. A controller with other voters accepts their connections now.
4. Recover the logs, register the broker, and open its partitions. The only voter registers itself; any other node first
   registers with the active controller and catches up with it.
5. Accept connections of clients.

Stopping has the reverse order; the clean-shutdown file is written last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, cached_property

from ottla import __version__
from ottla.broker import late
from ottla.broker.broker import Broker
from ottla.broker.composition import create_broker, create_membership
from ottla.broker.descriptors import ReservedFiles
from ottla.broker.dispatch import Dispatcher
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.listening import Listeners
from ottla.broker.maintenance import MaintenanceTasks
from ottla.broker.node_metadata import NodeMetadata
from ottla.broker.node_parts import Background, NodeLogs, Stopping
from ottla.broker.served import CONTROLLER_ANSWERED, CONTROLLER_HANDLERS, NEEDED_AT_FAILOVER
from ottla.cluster.controller_log import log_changes
from ottla.cluster.metadata.log import MetadataShell
from ottla.cluster.metadata.options import NodeIdentity
from ottla.cluster.node.bootstrap import Bootstrap
from ottla.cluster.node.cordoning import report_to_itself
from ottla.cluster.node.directories import close_unopened, directory_id, missing_directories, open_directories
from ottla.cluster.node.registration import registration
from ottla.cluster.node.schedulers import FlushThreads, Schedulers
from ottla.cluster.node.waiting import NodeStoppedError, completed, finished
from ottla.common.clock import Clock, SystemClock
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.common.work import Worker
from ottla.config import BrokerConfig
from ottla.config.metrics_rows import HEALTH_LISTENER, LISTENER, SLOW_REQUEST_MS
from ottla.log import DirectoryInfo, Files, LogConfig, LogManager, StorageError
from ottla.log.creation import removed_if_refused
from ottla.metadata.image import MetadataImage
from ottla.network.connection import Connection, Dispatch
from ottla.network.limits import Limits
from ottla.network.server import Server
from ottla.partitions.replication.replication import Replication
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest

logger = logging.getLogger(__name__)

ANSWER_WITHIN_S = 2.0
CLOSE_WITHIN_S = 1.0
# How often the files of certificates are checked for changes.
WATCH_CERTIFICATES_MS = 5_000
# How long a clean stop waits until other nodes lead this node's partitions, and until the quorum has another leader.
LEAVE_WITHIN_S = 60.0


async def serve(
    config: BrokerConfig,
    ready: Callable[[Bootstrap], None],
    stop: asyncio.Event,
    leaves: Callable[[], bool] = lambda: True,
) -> None:
    """Run a node until `stop` is set; `ready` is called once it serves.

    `leaves()` tells at the end whether leaderships move to other nodes: not if all nodes of the cluster stop.

    Raises StorageError, OSError (an address in use) or KafkaError if the broker cannot start. Raises StorageError if
    the disk of the metadata log, or the last log directory, fails later.
    """
    node = Node(config, SystemClock(), stop)
    try:
        ready(await node.start())
        await stop.wait()
    except NodeStoppedError:
        logger.info("The node stopped before it was ready")
    finally:
        node.stopping.leaves = leaves()
        await node.close()
    if node.stopping.failure is not None:
        raise StorageError(node.stopping.failure)


class Node:
    """One node in this process.

    Two arguments are for tests. `wrap` returns a dispatcher that sees each request and response of the real one.
    `files` replaces the disk, except for the compaction process and the locks of the log directories.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        stop: asyncio.Event,
        wrap: Callable[[Dispatcher], Dispatch] | None = None,
        files: Files | None = None,
    ) -> None:
        self.files = files or Files()
        self.config = config
        self.clock = clock
        self.stopping = Stopping(stop)
        self._wrap = wrap
        self._loop = asyncio.get_running_loop()
        worker = Worker(clock, self._loop.call_soon)
        self._schedulers = Schedulers(FlushThreads(self._loop), self._loop.call_later, worker)
        self._metadata = NodeMetadata(config, clock, self.files)
        self._housekeeping = Housekeeping(self._loop)
        self._listeners = Listeners(config)
        self._logs = NodeLogs(self.files)
        self._background = Background()
        self.network: Server | None = None
        self._started = False
        self.broker: Broker

    # -- starting ----------------------------------------------------------------------------------------------

    async def start(self) -> Bootstrap:
        """Start the node; when this returns, it accepts connections at the returned address.

        A node of a cluster waits for the active controller until `stop` is set: raises NodeStoppedError then.
        """
        config = self.config
        role = "broker" if config.roles.is_broker else "controller"
        logger.info("[%s id=%d] Starting %s. Ottla version: %s", self._kind, config.node_id, role, __version__)
        logs, cluster_id = self._claim()
        self._logs.manager = logs
        node = NodeIdentity(config.node_id, cluster_id, directory_id(self.files, config.metadata_log_dir))
        controllers = self._listeners.advertised_controllers
        metadata = self._metadata.open(node, controllers, self._schedulers, lambda error: self._give_up(str(error)))
        self.broker = create_broker(config, node, metadata, logs, self.clock, self._schedulers)
        self.broker.endpoints.controllers = controllers
        self._background.open_endpoints(self.broker)
        self._watch_certificates()
        if self._metadata.quorum is not None or config.controller_listeners:
            self._background.membership = create_membership(self.broker, self._give_up)
            # A single node loads what it needs when it is asked. Here the clients of a node that failed would wait.
            self._dispatcher.preload(NEEDED_AT_FAILOVER)
            self._controller_dispatcher.preload(NEEDED_AT_FAILOVER)
        is_alone = False
        if not config.roles.is_broker:
            self._start_controller(metadata)
            self._open_controllers()
        elif is_alone := self._has_no_other_broker(metadata):
            self._start_broker(logs, metadata)
            self._open_controllers()
        else:
            self._open_controllers()  # the other voters have to reach this one before there is a leader
            await self._join(logs, metadata)
        self._listeners.open_clients(self.broker, self._server)
        self._background.report_started(self.network)
        if is_alone:
            # Kafka's modules of testcontainers wait for this line, and others for the last one.
            text = "[BrokerLifecycleManager id=%d] %s Transitioning from RECOVERY to RUNNING."
            logger.info(text, config.node_id, "The broker has been unfenced.")
        logger.info("[%s id=%d] Transition from STARTING to STARTED", self._kind, config.node_id)
        logger.info("[KafkaRaftServer nodeId=%d] Kafka Server started", config.node_id)
        if not config.roles.is_broker:
            first = self._listeners.advertised_controllers[0]
            return Bootstrap(first.host, first.port)
        return Bootstrap(*self.broker.endpoints.advertised(config.listeners[0].name))

    def _watch_certificates(self) -> None:
        certificates = self.broker.security.certificates = self._listeners.certificates
        if certificates is not None:
            self._housekeeping.every("certificates", WATCH_CERTIFICATES_MS, certificates.reload)
        metrics = self._background.metrics
        if metrics is not None and metrics.tls is not None:
            self._housekeeping.every("certificate of the metrics", WATCH_CERTIFICATES_MS, metrics.tls.reload)

    def _claim(self) -> tuple[LogManager, str]:
        """Lock the directories and bind the listeners. If it raises, it leaves no new files.

        Returns the logs, not loaded yet, and the cluster id.
        """
        config, run = self.config, self._schedulers.flush_threads.run
        with removed_if_refused(self.files, config.directories), ExitStack() as refused:
            if self._metadata.claim():
                refused.callback(self._metadata.unlock)
            logs, cluster_id = open_directories(config, self.clock, self.files, run, self._directory_failed)
            refused.callback(close_unopened, self.files, logs)
            self._listeners.bind()
            refused.callback(self._listeners.close)
            # Most nodes of a developer have no metrics, and need not load the code.
            if config.text(LISTENER) is not None or config.int(SLOW_REQUEST_MS) >= 0:
                meter = self._background.meter = late.create_meter(config, self._loop)
                if config.text(LISTENER) is not None:
                    self._background.metrics = late.NodeMetrics(config, self._loop, meter)
            if config.text(HEALTH_LISTENER) is not None:
                self._background.probes = late.NodeProbes(config, self._loop)
            refused.pop_all()
        return logs, cluster_id

    def _has_no_other_broker(self, metadata: MetadataShell) -> bool:
        """Whether this broker can register itself unfenced, with the in-sync replicas as they were.

        Next to other brokers it must leave the in-sync replicas first: its last records may be lost.
        """
        if not metadata.is_active_controller:
            return False
        return self._background.membership is None or metadata.image.brokers.keys() <= {self.config.node_id}

    def _start_controller(self, metadata: MetadataShell) -> None:
        """Follow the metadata; the other parts of a broker stay unused."""
        metadata.subscribe(self._publish)
        self.broker.mirrors.start(self.broker)
        self._started = True
        self._housekeeping.every("metadata snapshots", 1_000, metadata.tick, first_ms=0)
        self._expire_tokens()

    def _start_broker(self, logs: LogManager, metadata: MetadataShell) -> None:
        """Start the broker of the only voter, which registers itself without waiting."""
        self._load(logs)
        request, clean_shutdown = self._registration(logs)
        response = metadata.register(request, clean_shutdown=clean_shutdown)
        if response.error_code:
            raise StorageError(f"The controller refused this broker with error {response.error_code}")
        text = "[BrokerLifecycleManager id=%d] Successfully registered broker %d with broker epoch %d"
        logger.info(text, self.config.node_id, self.config.node_id, response.broker_epoch)
        self._run_broker(metadata)
        if self._background.membership is not None:
            self._background.membership.begin(request).adopt(response.broker_epoch)

    async def _join(self, logs: LogManager, metadata: MetadataShell) -> None:
        """Register with the active controller, catch up, load the partitions, and be unfenced."""
        assert self._background.membership is not None
        request, _ = self._registration(logs)
        lifecycle = self._background.membership.begin(request)
        lifecycle.start()
        # Before that the metadata may lack partitions, whose logs would be set aside.
        await completed(lifecycle.caught_up, self.stopping.event)
        self._load(logs)
        self._run_broker(metadata)
        lifecycle.allow_unfencing()
        await completed(lifecycle.unfenced, self.stopping.event)

    def _load(self, logs: LogManager) -> None:
        self._logs.is_loaded = True
        logs.load(cache(self._log_config), self._is_stray)

    def _registration(self, logs: LogManager) -> tuple[BrokerRegistrationRequest, bool]:
        """The registration of this start, and whether the last stop was clean."""
        directories = logs.log_directories()
        online = [directory for directory in directories if directory.online]
        missing = missing_directories(logs, self.broker.metadata.image, self.config.node_id)
        self.broker.partitions.lost_logs.directory_is_missing = bool(missing) or len(online) < len(directories)
        # The metadata of a single node does not name the directory of each replica. Its next start has to know them.
        remembered = missing if self._background.membership is None else ()
        request = registration(
            self.config, self.broker.identity.cluster_id, self._listeners.advertised, online, remembered
        )
        return request, all(directory.was_clean for directory in online)

    def _run_broker(self, metadata: MetadataShell) -> None:
        """Open the partitions, and start what the broker does in the background."""
        metadata.subscribe(self._publish)
        self.broker.coordinators.start()
        if self._background.membership is not None:
            self._background.replication = Replication(self.broker)
            self._background.replication.start()
        self.broker.directory_moves.start()
        self.broker.mirrors.start(self.broker)
        self._started = True
        self._background.maintenance = MaintenanceTasks(self.broker, self._housekeeping)
        self._background.maintenance.start()
        self._expire_tokens()
        ReservedFiles.divide(self.broker.logs, self._server)

    def _expire_tokens(self) -> None:
        """Delete expired delegation tokens at intervals, while this node is the active controller."""
        if self.broker.security.tokens is not None and self.config.roles.is_controller:
            interval_ms = self.config.int("delegation.token.expiry.check.interval.ms")
            self._housekeeping.every("expired tokens", interval_ms, self.broker.security.tokens.delete_expired)

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self.broker, meter=self._background.meter)

    @cached_property
    def _controller_dispatcher(self) -> Dispatcher:
        return Dispatcher(self.broker, CONTROLLER_ANSWERED, CONTROLLER_HANDLERS, self._background.meter)

    @cached_property
    def _server(self) -> Server:
        """The connections of this node."""
        dispatcher = self._dispatcher
        limits = Limits.from_config(self.broker.settings.current)
        # A call of a bound method costs less than the call of an object.
        self.network = Server(self._wrap(dispatcher) if self._wrap else dispatcher.__call__, limits)
        self.network.admission.refused_ms = self.broker.security.quotas.refused_ms
        return self.network

    def _open_controllers(self) -> None:
        self._listeners.open_controllers(self.broker, self._server, self._controller_dispatcher.__call__)

    @property
    def _kind(self) -> str:
        return "BrokerServer" if self.config.roles.is_broker else "ControllerServer"

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_topic_config(self.broker.settings.topic_values(topic))

    def _is_stray(self, partition: TopicPartition, topic_id: Uuid) -> bool:
        topic = self.broker.metadata.image.topics_by_name.get(partition.topic)
        # A log without an id lost it in a power cut before its first flush. Its name identifies the topic: the log of a
        # deleted topic has another name.
        if topic is None or topic_id not in (topic.topic_id, ZERO_UUID):
            return True
        image = topic.partitions.get(partition.partition)
        return image is None or self.config.node_id not in image.replicas

    def _publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Notify the broker and the parts that follow its settings of a new image."""
        broker = self.broker
        log_changes(self.config.node_id, old, new)
        broker.publish(old, new)
        if old is None or old.configs is not new.configs:
            if self.network is not None:
                self.network.connections.limits = Limits.from_config(broker.settings.current)
            if broker.security.certificates is not None:
                broker.security.certificates.follow(broker.settings.current)
            if self._background.maintenance is not None:
                self._background.maintenance.configure(broker.settings.current)
            self._loop.call_soon(self._report_cordoned)

    def _report_cordoned(self) -> None:
        broker = self.broker
        if self._background.membership is None:
            report_to_itself(self.config.node_id, broker.metadata, broker.logs, self.clock)
        elif self._background.membership.lifecycle is not None:
            self._background.membership.lifecycle.directories_changed()

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The bound address of the metrics; None without `ottla.metrics.listener`."""
        metrics = self._background.metrics
        return None if metrics is None else metrics.address

    def clock_moved(self) -> None:
        """Run due tasks after the clock jumped: the event loop's timers do not notice that."""
        self.broker.coordinators.clock_moved()
        self._housekeeping.do_all()

    def drop_connections(self, chosen: Callable[[Connection], bool] = lambda _: True) -> int:
        """Close connections at once, also with requests in progress; returns how many."""
        connections = [each for each in self.network.connections if chosen(each)] if self.network is not None else []
        for connection in connections:
            connection.abort()
        return len(connections)

    # -- errors -----------------------------------------------------------------------------------------------

    def _directory_failed(self, directory: DirectoryInfo, error: OSError) -> None:
        """May be called in a flushing thread."""
        self._loop.call_soon_threadsafe(self._take_offline, directory, error)

    def _take_offline(self, directory: DirectoryInfo, error: OSError) -> None:
        if not self._started:
            return  # `start` raises the error
        if directory.path == self.config.metadata_log_dir:
            self._give_up(f"The directory {directory.path}, which holds the metadata log, failed: {error}")
            return
        self.broker.directory_failed(directory.path)
        if self._background.membership is not None and self._background.membership.lifecycle is not None:
            self._background.membership.lifecycle.directory_failed(directory.directory_id)
        if not any(each.online for each in self.broker.logs.log_directories()):
            self._give_up(f"The last log directory, {directory.path}, failed: {error}")

    def _give_up(self, problem: str) -> None:
        logger.error("Stopping: %s", problem)
        self.stopping.fail(problem)

    # -- stopping ----------------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Move the leadership of partitions and of the quorum to other nodes, if there are any. Bounded."""
        metadata = self._metadata.shell
        if metadata is None or not self._started:
            return
        lifecycle = self._background.membership.lifecycle if self._background.membership is not None else None
        if lifecycle is not None and self._has_successors(metadata) and self.config.bool("controlled.shutdown.enable"):
            await finished(lifecycle.shut_down(), LEAVE_WITHIN_S)
        await self._metadata.resign()

    def _has_successors(self, metadata: MetadataShell) -> bool:
        """Whether a controller can move leaderships to another broker: the last nodes of a cluster must not wait."""
        others = {each.broker_id for each in metadata.image.brokers.values() if not each.fenced}
        others.discard(self.config.node_id)
        if metadata.is_active_controller:
            return any(map(self.broker.connections.heartbeats.is_connected, others))
        return bool(others) and not (metadata.leader is None and metadata.quorum.core.is_last_voter)

    async def close(self, *, clean: bool = True) -> None:
        """Answer the requests in progress, then close everything; also after a failed start.

        Without `clean` it acts like a kill: no request is answered, nothing is synced, and the next start recovers the
        logs.
        """
        node_id = self.config.node_id
        logger.info("[%s id=%d] Transition from STARTED to SHUTTING_DOWN", self._kind, node_id)
        self._background.report_stopping()
        # A node whose disk failed cannot follow the metadata, so that it would never hear that others lead.
        if clean and self.stopping.leaves and self.stopping.failure is None:
            await self._leave()
        self._housekeeping.stop()
        if not clean:
            self.drop_connections()
        if self.network is not None:
            await self.network.close(ANSWER_WITHIN_S)
        await self._background.close(CLOSE_WITHIN_S)
        if self._started:
            self.broker.close()
        self._listeners.close()
        self._schedulers.flush_threads.close()
        metadata = self._metadata.shell
        registered = metadata.image.brokers.get(node_id) if metadata is not None else None
        await self._metadata.close()
        epoch = registered.epoch if registered is not None else -1
        is_clean = clean and (not self._logs.is_loaded or (self._started and self.config.roles.is_broker))
        self._logs.close(epoch if is_clean else None)
        self._metadata.unlock()
        logger.info("[%s id=%d] shut down completed", self._kind, node_id)
