"""Starts and stops a broker.

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
import os
from collections.abc import Callable, Collection
from functools import cache
from typing import NamedTuple

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
from ottla.broker.served import CONTROLLER_SERVED
from ottla.broker.work import Worker
from ottla.common.clock import Clock, SystemClock
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid, uuid_to_text
from ottla.config import BrokerConfig
from ottla.controller import ControllerSettings
from ottla.log import DirectoryInfo, Files, LogConfig, LogManager, StorageError
from ottla.log.storage import check_meta, format_directory, read_meta
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import MetadataImage
from ottla.network.connection import Connection, Dispatch
from ottla.network.descriptors import cached_segments, open_file_limit
from ottla.network.limits import Limits
from ottla.network.server import Server
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from ottla.protocol.messages.broker_registration import Listener as RegisteredListener

logger = logging.getLogger(__name__)

ANSWER_WITHIN_S = 2.0
PLAINTEXT = 0


class Bootstrap(NamedTuple):
    """The address that clients connect to first."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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
    """One broker in this process.

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
        """Start the broker; when this returns, it accepts connections at the returned address."""
        config = self.config
        logger.info("[BrokerServer id=%d] Starting broker. Ottla version: %s", config.node_id, __version__)
        if len(config.roles.roles) < 2 or not set(config.roles.voters) <= {config.node_id}:
            raise StorageError("A node of a cluster with other controllers cannot be started yet")
        self._logs = logs = LogManager(
            config.log_dirs,
            self.clock,
            LogConfig(file_delete_delay_ms=config.int("log.segment.delete.delay.ms")),
            on_directory_failed=self._directory_failed,
            files=self.files,
            in_background=self._threads.run,
            max_open_files=cached_segments(open_file_limit()),
        )
        logs.acquire()
        lost = {directory.path for directory in logs.log_directories() if not directory.online}
        cluster_id = identify(config, self.files, lost - {config.metadata_log_dir})
        for directory in (each for each in logs.log_directories() if each.online):
            directory.directory_id = _directory_id(self.files, directory.path)
        self._listeners.bind()
        self._metadata = metadata = MetadataShell.open(
            config.metadata_log_dir,
            NodeIdentity(config.node_id, cluster_id, _directory_id(self.files, config.metadata_log_dir)),
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
        self.broker = broker = Broker(
            config,
            self.clock,
            logs=logs,
            metadata=metadata,
            cluster_id=cluster_id,
            flush_threads=self._threads,
            call_later=self._loop.call_later,
            worker=self._worker,
        )
        broker.controller_endpoints = self._listeners.advertised_controllers
        logs.load(cache(self._log_config), self._is_stray)
        missing = self._missing_directories()
        offline = any(not directory.online for directory in logs.log_directories())
        broker.partitions.directory_is_missing = bool(missing) or offline
        self._register(cluster_id, missing)
        metadata.subscribe(self._publish)
        broker.coordinators.start()
        self._started = True
        self._maintenance = MaintenanceTasks(broker, self._housekeeping, self._threads)
        self._maintenance.start()
        dispatcher = Dispatcher(broker)
        self.network = Server(self._wrap(dispatcher) if self._wrap else dispatcher, Limits.from_config(broker.config))
        ReservedFiles.divide(logs, self.network)
        self._listeners.open(self.network, Dispatcher(broker, CONTROLLER_SERVED))
        logger.info("[BrokerServer id=%d] Transition from STARTING to STARTED", config.node_id)
        host, port = broker.advertised_endpoint(config.listeners[0].name)
        return Bootstrap(host, port)

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

    def _missing_directories(self) -> list[Uuid]:
        """The ids of directories that this broker had when it last registered, and does not have now."""
        assert self._logs is not None
        assert self._metadata is not None
        known = self._metadata.image.brokers.get(self.config.node_id)
        present = {directory.directory_id for directory in self._logs.log_directories()}
        missing = sorted(set(known.directories) - present) if known is not None else []
        for directory_id in missing:
            logger.error(
                "The log directory with id %s is missing: its partitions are offline until it is in log.dirs again"
                " or their topics are deleted",
                uuid_to_text(directory_id),
            )
        return missing

    def _register(self, cluster_id: str, missing: list[Uuid]) -> None:
        assert self._logs is not None
        assert self._metadata is not None
        directories = [directory for directory in self._logs.log_directories() if directory.online]
        response = self._metadata.register(
            BrokerRegistrationRequest(
                broker_id=self.config.node_id,
                cluster_id=cluster_id,
                incarnation_id=os.urandom(16),
                listeners=[
                    RegisteredListener(
                        name=listener.name, host=listener.host, port=listener.port, security_protocol=PLAINTEXT
                    )
                    for listener in self._listeners.advertised
                ],
                features=[
                    Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in SUPPORTED_FEATURES.items()
                ],
                rack=self.config.rack,
                log_dirs=[*(directory.directory_id for directory in directories), *missing],
                previous_broker_epoch=directories[0].broker_epoch,
            ),
            clean_shutdown=all(directory.was_clean for directory in directories),
        )
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
        logger.info("[BrokerServer id=%d] Transition from STARTED to SHUTTING_DOWN", node_id)
        self._housekeeping.stop()
        if not clean:
            self.drop_connections()
        if self.network is not None:
            await self.network.close(ANSWER_WITHIN_S)
        if self._maintenance is not None:
            self._maintenance.close()
        if self._started:
            self.broker.coordinators.close()
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
        logger.info("[BrokerServer id=%d] shut down completed", node_id)


def identify(config: BrokerConfig, files: Files | None = None, lost: Collection[str] = ()) -> str:
    """Return the cluster id of the directories; a directory without an identity gets one. `lost` ones are skipped.

    Raises StorageError if they belong to another node or to different clusters.
    """
    files = files or Files()
    directories = [path for path in dict.fromkeys([*config.log_dirs, config.metadata_log_dir]) if path not in lost]
    found = {directory: read_meta(files, directory) for directory in directories}
    cluster_id = next((meta.cluster_id for meta in found.values() if meta is not None), None)
    if cluster_id is None and not config.formats_itself:
        raise StorageError(
            f"No readable meta.properties files found in {', '.join(directories)}: format them with the id of the"
            " cluster that this node joins: ottla format --cluster-id ID"
        )
    if cluster_id is None:
        # Command-line tools would read an id that begins with "-" as an option.
        cluster_id = uuid_to_text(b"o" + os.urandom(15))
    for directory, meta in found.items():
        if meta is not None:
            check_meta(meta, directory, cluster_id, config.node_id)
        else:
            format_directory(files, directory, cluster_id, config.node_id, os.urandom(16))
    return cluster_id


def _directory_id(files: Files, directory: str) -> Uuid:
    meta = read_meta(files, directory)
    if meta is None:
        raise StorageError(f"{directory} has no meta.properties")
    return meta.directory_id
