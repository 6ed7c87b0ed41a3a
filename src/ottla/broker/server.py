"""Starts and stops a node: a broker, a controller, or both.

The order of the start matters:

1. Lock the log directories, before any file in them is read or changed.
2. Bind the listeners, so that port 0 is replaced by a real port before the broker registers.
3. Load the metadata, recover the logs, register the broker, and open its partitions.
4. Accept connections.

Stopping has the reverse order; the clean-shutdown file is written last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cache

from ottla import __version__
from ottla.broker.broker import Broker, FlushThreads
from ottla.broker.config_rules import BrokerConfigRules
from ottla.broker.controller_log import log_changes
from ottla.broker.descriptors import ReservedFiles
from ottla.broker.dispatch import Dispatcher
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.listening import Listeners
from ottla.broker.maintenance import MaintenanceTasks
from ottla.broker.metadata_log import MetadataShell
from ottla.broker.metadata_options import MetadataOptions, NodeIdentity
from ottla.broker.metadata_snapshotting import MetadataLogSettings
from ottla.broker.node.bootstrap import Bootstrap
from ottla.broker.node.directories import directory_id, missing_directories, open_directories
from ottla.broker.node.registration import registration
from ottla.broker.served import CONTROLLER_SERVED
from ottla.broker.work import Worker
from ottla.common.clock import Clock, SystemClock
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.config import BrokerConfig
from ottla.controller import ControllerSettings
from ottla.log import DirectoryInfo, Files, LogConfig, LogManager, StorageError
from ottla.metadata.image import MetadataImage
from ottla.network.connection import Connection, Dispatch
from ottla.network.limits import Limits
from ottla.network.server import Server
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest

logger = logging.getLogger(__name__)

ANSWER_WITHIN_S = 2.0


async def serve(config: BrokerConfig, ready: Callable[[Bootstrap], None], stop: asyncio.Event) -> None:
    """Run a broker until `stop` is set; `ready` is called once it serves.

    Raises StorageError, OSError (an address in use) or KafkaError if the broker cannot start. Raises StorageError if
    the disk of the metadata log, or the last log directory, fails later.
    """
    node = Node(config, SystemClock(), stop)
    try:
        ready(await node.start())
        await stop.wait()
    finally:
        await node.close()
    if node.failure is not None:
        raise StorageError(node.failure)


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
        self.failure: str | None = None
        self._stop = stop
        self._wrap = wrap
        self._loop = asyncio.get_running_loop()
        self._worker = Worker(clock, self._loop.call_soon)
        self._threads = FlushThreads(self._loop)
        # The metadata log must not wait for the flushes of a thousand logs: one thread syncs it, one writes snapshots.
        self._metadata_threads = FlushThreads(self._loop, 2)
        self._housekeeping = Housekeeping(self._loop)
        self._listeners = Listeners(config)
        self._logs: LogManager | None = None
        self._metadata: MetadataShell | None = None
        self.network: Server | None = None
        self._maintenance: MaintenanceTasks | None = None
        self._started = False
        self.broker: Broker

    # -- starting ----------------------------------------------------------------------------------------------

    async def start(self) -> Bootstrap:
        """Start the node; when this returns, it accepts connections at the returned address."""
        config = self.config
        role = "broker" if config.roles.is_broker else "controller"
        logger.info("[%s id=%d] Starting %s. Ottla version: %s", self._kind, config.node_id, role, __version__)
        if len(config.roles.roles) < 2 or not set(config.roles.voters) <= {config.node_id}:
            raise StorageError("A node of a cluster with other controllers cannot be started yet")
        self._logs, cluster_id = open_directories(config, self.clock, self.files, self._threads, self._directory_failed)
        self._listeners.bind()
        self._metadata = metadata = self._open_metadata(cluster_id)
        self.broker = Broker(
            config,
            self.clock,
            logs=self._logs,
            metadata=metadata,
            cluster_id=cluster_id,
            flush_threads=self._threads,
            call_later=self._loop.call_later,
            worker=self._worker,
        )
        self.broker.controller_endpoints = self._listeners.advertised_controllers
        if config.roles.is_broker:
            self._start_broker(self._logs, metadata)
        else:
            metadata.subscribe(self._publish)
        return self._serve()

    def _open_metadata(self, cluster_id: str) -> MetadataShell:
        config = self.config
        return MetadataShell.open(
            config.metadata_log_dir,
            NodeIdentity(config.node_id, cluster_id, directory_id(self.files, config.metadata_log_dir)),
            BrokerConfigRules(config),
            self.clock,
            MetadataOptions(
                settings=MetadataLogSettings.from_config(config),
                controller_settings=ControllerSettings(
                    num_partitions=config.int("num.partitions"),
                    default_replication_factor=config.int("default.replication.factor"),
                    delete_topic_enable=config.bool("delete.topic.enable"),
                ),
                files=self.files,
                run_in_thread=self._metadata_threads.run,
                on_failure=lambda error: self._give_up(str(error)),
                worker=self._worker,
            ),
        )

    def _start_broker(self, logs: LogManager, metadata: MetadataShell) -> None:
        """Load the partitions, register the broker, and start what it does in the background."""
        broker = self.broker
        logs.load(cache(self._log_config), self._is_stray)
        missing = missing_directories(logs, metadata.image, self.config.node_id)
        online = [directory for directory in logs.log_directories() if directory.online]
        broker.partitions.directory_is_missing = bool(missing) or len(online) < len(logs.log_directories())
        self._register(
            registration(self.config, broker.cluster_id, self._listeners.advertised, online, missing),
            clean_shutdown=all(directory.was_clean for directory in online),
        )
        metadata.subscribe(self._publish)
        broker.coordinators.start()
        self._started = True
        self._maintenance = MaintenanceTasks(broker, self._housekeeping, self._threads)
        self._maintenance.start()

    def _serve(self) -> Bootstrap:
        """Accept connections; returns the address that clients connect to first."""
        broker = self.broker
        dispatcher = Dispatcher(broker)
        self.network = Server(self._wrap(dispatcher) if self._wrap else dispatcher, Limits.from_config(broker.config))
        ReservedFiles.divide(broker.logs, self.network)
        self._listeners.open(self.network, Dispatcher(broker, CONTROLLER_SERVED))
        logger.info("[%s id=%d] Transition from STARTING to STARTED", self._kind, self.config.node_id)
        if not self.config.roles.is_broker:
            first = self._listeners.advertised_controllers[0]
            return Bootstrap(first.host, first.port)
        return Bootstrap(*broker.advertised_endpoint(self.config.listeners[0].name))

    @property
    def _kind(self) -> str:
        return "BrokerServer" if self.config.roles.is_broker else "ControllerServer"

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_topic_config(self.broker.topic_values(topic))

    def _is_stray(self, partition: TopicPartition, topic_id: Uuid) -> bool:
        topic = self.broker.metadata.image.topics_by_name.get(partition.topic)
        # A log without an id lost it in a power cut before its first flush. Its name identifies the topic: the log of a
        # deleted topic has another name.
        if topic is None or topic_id not in (topic.topic_id, ZERO_UUID):
            return True
        image = topic.partitions.get(partition.partition)
        return image is None or self.config.node_id not in image.replicas

    def _register(self, request: BrokerRegistrationRequest, *, clean_shutdown: bool) -> None:
        assert self._metadata is not None
        response = self._metadata.register(request, clean_shutdown=clean_shutdown)
        if response.error_code:
            raise StorageError(f"The controller refused this broker with error {response.error_code}")
        text = "[BrokerLifecycleManager id=%d] Successfully registered broker %d with broker epoch %d"
        logger.info(text, self.config.node_id, self.config.node_id, response.broker_epoch)

    def _publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Notify the parts of the broker of a new image, partitions before coordinators."""
        broker = self.broker
        log_changes(self.config.node_id, old, new)
        broker.follow_configs(old, new)
        if old is None or old.configs is not new.configs:
            if self.network is not None:
                self.network.limits = Limits.from_config(broker.config)
            if self._maintenance is not None:
                self._maintenance.configure(broker.config)
        broker.partitions.publish(old, new)
        if old is not None:
            broker.coordinators.publish(old, new)

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
        self.broker.partitions.directory_failed(directory.path)
        if not any(each.online for each in self.broker.logs.log_directories()):
            self._give_up(f"The last log directory, {directory.path}, failed: {error}")

    def _give_up(self, problem: str) -> None:
        logger.error("Stopping: %s", problem)
        self.failure = problem
        self._stop.set()

    # -- stopping ----------------------------------------------------------------------------------------------

    async def close(self, *, clean: bool = True) -> None:
        """Answer the requests in progress, then close everything; also after a failed start.

        Without `clean` the effect is that of a kill: no request is answered, nothing is synced, and the next start
        recovers the logs.
        """
        node_id = self.config.node_id
        logger.info("[%s id=%d] Transition from STARTED to SHUTTING_DOWN", self._kind, node_id)
        self._housekeeping.stop()
        if not clean:
            self.drop_connections()
        if self.network is not None:
            await self.network.close(ANSWER_WITHIN_S)
        if self._maintenance is not None:
            self._maintenance.close()
        if self._started:
            self.broker.coordinators.close()
            self.broker.close_channels()
            self.broker.partitions.close()
        self._listeners.close()
        self._threads.close()
        self._metadata_threads.close()
        epoch = -1
        if self._metadata is not None:
            registered = self._metadata.image.brokers.get(self.config.node_id)
            epoch = registered.epoch if registered is not None else -1
            self._metadata.close()
        if self._logs is not None:
            if self._started and clean:
                self._logs.close(epoch)
            else:
                self._logs.abandon()
        logger.info("[%s id=%d] shut down completed", self._kind, node_id)
