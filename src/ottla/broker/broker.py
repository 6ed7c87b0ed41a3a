"""The parts of one node, and queries that several handlers share."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.auto_topic_creation import AutoTopicCreation
from ottla.broker.dispatch import Dispatcher
from ottla.broker.forwarding import Forwarding
from ottla.broker.response_cache import ResponseCache
from ottla.broker.served import CONTROLLER_ANSWERED
from ottla.cluster.control.connections import BrokerConnections
from ottla.cluster.controller_channel import ControllerChannel
from ottla.cluster.lost_brokers import LostBrokers
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.common.work import Worker
from ottla.config import TopicResolver
from ottla.coordination.coordinators import Coordinators
from ottla.coordination.internal_topic_settings import INTERNAL_TOPIC_SETTINGS, InternalTopicSettings
from ottla.coordination.transactions.producer_ids import ProducerIds
from ottla.metadata.features import GROUP_VERSION, SHARE_VERSION, SUPPORTED_FEATURES, served_level
from ottla.metadata.image import BROKER, TOPIC
from ottla.network.closing_order import ClosedFirst
from ottla.network.node_channel import NodeChannels
from ottla.partitions.fetch_session import FetchSessionCache
from ottla.partitions.partitions import Partitions
from ottla.partitions.replication.directory_moves import DirectoryMoves, MovePorts
from ottla.partitions.replication.quotas import ReplicationQuotas
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.broker.envelope import Client
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.common.timers import CallLater
    from ottla.config import BrokerConfig, Listener
    from ottla.coordination.group_runtime import GroupRuntime
    from ottla.coordination.peers.requests import PeerRequests
    from ottla.coordination.shares.groups import ShareGroups
    from ottla.coordination.transactions.runtime import TransactionRuntime
    from ottla.log import LogManager
    from ottla.metadata.image import Endpoint, MetadataImage
    from ottla.protocol.frames import RequestHeader
    from ottla.protocol.messages.create_topics import CreateTopicsResponse

logger = logging.getLogger(__name__)

# One thread per disk that a broker may have; a thread in fsync does not hold the interpreter's lock.
FLUSH_THREADS = 4
# How long this broker's own requests wait for the active controller.
CONTROLLER_TIMEOUT_S = 30.0
PRODUCER_EXPIRATION = "producer.id.expiration.ms"


class FlushThreads:
    """Runs blocking file work in threads; results are delivered on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = FLUSH_THREADS) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="ottla-flush")

    def run(self, work: Callable[[], object]) -> Completion[None]:
        """Run `work` in a thread; the completion completes on the event loop."""
        completion: Completion[None] = Completion()

        def hand_over(future: Future[object]) -> None:
            error = future.exception()
            if isinstance(error, Exception):
                completion.fail(error)
            else:
                completion.complete(None)

        future = self._executor.submit(work)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(hand_over, done))
        return completion

    def close(self) -> None:
        """Wait for the work in progress."""
        self._executor.shutdown(wait=True)


class Schedulers(NamedTuple):
    """Who runs work later: threads, timers of the event loop, and the worker that runs long requests in slices."""

    flush_threads: FlushThreads
    call_later: CallLater
    worker: Worker


class Broker:
    """The parts of one node, for handlers to use."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        logs: LogManager,
        metadata: MetadataShell,
        cluster_id: str,
        schedulers: Schedulers,
    ) -> None:
        flush_threads, call_later, worker = schedulers
        self.static_config = config
        # The static settings with the dynamic ones applied.
        self.config = config
        self.clock = clock
        self.logs = logs
        self.metadata = metadata
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.flush_threads = flush_threads
        self.worker = worker
        self.partitions = Partitions(
            node_id=self.node_id,
            logs=logs,
            clock=clock,
            topic_values=self.topic_values,
            flush_in_thread=flush_threads.run,
            later=self.worker.later,
        )
        self.replication_quotas = ReplicationQuotas(config, lambda: self.config, clock)
        self.directory_moves = DirectoryMoves(
            MovePorts(
                self.node_id,
                logs,
                self.partitions,
                call_later,
                flush_threads.run,
                lambda: self.metadata.image,
                self.replication_quotas.moves,
            )
        )
        self.fetch_sessions = FetchSessionCache(
            config.int("max.incremental.fetch.session.cache.slots"), lambda: int.from_bytes(os.urandom(4), "big") >> 1
        )
        self.response_cache = ResponseCache()
        self.lost_brokers = LostBrokers(call_later)
        self.closed_first = ClosedFirst()
        self.coordinators = Coordinators(self, call_later)
        self._topic_resolver: TopicResolver | None = None
        self.controller = ControllerChannel(metadata, clock, call_later, NodeChannels(f"broker-{self.node_id}"))
        """Sends the requests of this broker to the active controller."""
        self._forwarding_channel = ControllerChannel(
            metadata, clock, call_later, NodeChannels(f"broker-{self.node_id}-forwarding")
        )
        self.forwarding = Forwarding(self._forwarding_channel)
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self._controller_dispatcher = Dispatcher(self, CONTROLLER_ANSWERED)
        self.auto_topic_creation = AutoTopicCreation(self.auto_create_topics)
        # Listeners of this node that are not registered in the metadata, by name.
        self.unregistered_endpoints: dict[str, Endpoint] = {}
        self.supported_features = SUPPORTED_FEATURES
        self.broker_connections = BrokerConnections()
        self.controller_endpoints: list[Listener] = []
        """The controller's own listeners, with their bound ports."""

    @property
    def groups(self) -> GroupRuntime:
        """The group coordinator."""
        return self.coordinators.groups

    def serves_consumer_groups(self) -> bool:
        """Whether groups of the consumer protocol (KIP-848) are enabled."""
        level = self.metadata.image.features.get(GROUP_VERSION, 0)
        return level >= 1 and "consumer" in self.static_config.items("group.coordinator.rebalance.protocols")

    @property
    def shares(self) -> ShareGroups:
        """What this node does for share groups."""
        return self.coordinators.shares

    def serves_share_groups(self) -> bool:
        """Whether share groups (KIP-932) are enabled."""
        return self.feature_level(SHARE_VERSION) >= 1

    @property
    def transactions(self) -> TransactionRuntime:
        """The transaction coordinator."""
        return self.coordinators.transactions

    @property
    def peers(self) -> PeerRequests:
        """What this broker asks of other brokers."""
        return self.coordinators.peers

    # -- settings ----------------------------------------------------------------------------------------------

    def topic_values(self, topic: str) -> dict[str, object]:
        """The effective settings of a topic: its own, the broker's dynamic and static ones, Kafka's defaults."""
        image = self.metadata.image
        resolved = self.topic_resolver(image).resolve(image.config(TOPIC, topic))
        values: dict[str, object] = {name: entry.value for name, entry in resolved.items()}
        values[PRODUCER_EXPIRATION] = self.config.int(PRODUCER_EXPIRATION)
        return values

    def topic_resolver(self, image: MetadataImage) -> TopicResolver:
        """Return the resolver for topic settings; cached until the broker's settings in the image change."""
        own, cluster = image.config(BROKER, str(self.node_id)), image.config(BROKER, "")
        if self._topic_resolver is None or not self._topic_resolver.is_of(own, cluster):
            self._topic_resolver = TopicResolver(own, cluster, self.static_config)
        return self._topic_resolver

    def follow_configs(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Apply changed dynamic settings of the broker; called with each image, before the partitions see it."""
        if old is None or old.configs is not new.configs:
            self.replication_quotas.publish(new)
            self.config = self.static_config.with_dynamic(new.config(BROKER, str(self.node_id)), new.config(BROKER, ""))
            cordoned = {os.path.normpath(path) for path in self.config.cordoned_log_dirs}
            for directory in self.logs.log_directories():
                directory.is_cordoned = os.path.normpath(directory.path) in cordoned

    # -- queries that handlers share ----------------------------------------------------------------------------

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """The address of a registered node for clients of `listener`; None if the node has no such listener."""
        if node_id == self.node_id and listener in self.unregistered_endpoints:
            return self.unregistered_endpoints[listener]
        return self.metadata.image.brokers[node_id].endpoint(listener)

    def live_endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """The address of a node for clients of `listener`; None if it is unknown or fenced, or without the listener."""
        broker = self.metadata.image.brokers.get(node_id)
        return None if broker is None or broker.fenced else self.endpoint(node_id, listener)

    def address(self, node_id: int, listener: str) -> tuple[str, int, str | None] | None:
        """(host, port, rack) of a node for clients of `listener`; None if it is unknown. KIP-951."""
        registered = self.metadata.image.brokers.get(node_id)
        endpoint = self.endpoint(node_id, listener) if registered is not None else None
        if registered is None or endpoint is None:
            return None
        return endpoint.host, endpoint.port, registered.rack

    def endpoints(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """(node id, host, port, rack) of every broker that is not fenced, for clients of `listener`."""
        return self._endpoints(listener, fenced=())

    def listed_endpoints(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """The same with the brokers that were fenced just now: see `LostBrokers`."""
        return self._endpoints(listener, fenced=self.lost_brokers.just_fenced)

    def _endpoints(self, listener: str, fenced: Collection[int]) -> list[tuple[int, str, int, str | None]]:
        found = []
        for node_id, broker in self.metadata.image.brokers.items():
            endpoint = self.endpoint(node_id, listener)
            if endpoint is not None and (not broker.fenced or node_id in fenced):
                found.append((node_id, endpoint.host, endpoint.port, broker.rack))
        return found

    def controller_id(self, available: Collection[int]) -> int:
        """The broker that clients use as the controller; -1 if none is available.

        Brokers forward requests, so it may be any broker. This one saves a hop where it is the active controller.
        """
        return self.node_id if self.node_id in available else next(iter(available), -1)

    def is_controller_listener(self, listener: str) -> bool:
        """Whether requests on that listener are for the controller, not for the broker."""
        return any(endpoint.name == listener for endpoint in self.controller_endpoints)

    def feature_level(self, name: str) -> int:
        """The level of a feature that is in effect."""
        return served_level(name, self.metadata.image.features.get(name, 0))

    def topic_id(self, name: str) -> Uuid | None:
        """The id of the topic of this name, if it exists."""
        topic = self.metadata.image.topics_by_name.get(name)
        return topic.topic_id if topic is not None else None

    def advertised_endpoint(self, listener: str) -> tuple[str, int]:
        """(host, port) of this node for clients of `listener`."""
        endpoint = self.endpoint(self.node_id, listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Node {self.node_id} has no listener {listener}")
        return endpoint.host, endpoint.port

    def auto_create_topics(self, names: Iterable[str]) -> Completion[dict[str, KafkaError]]:
        """Create topics with the broker's defaults; completes with the errors by topic, except TOPIC_ALREADY_EXISTS."""
        request = CreateTopicsRequest(topics=[self._topic_to_create(name) for name in names])
        return self.controller.send(request, timeout_s=CONTROLLER_TIMEOUT_S).then(_failures)

    def _allocate_producer_ids(self) -> Completion[AllocateProducerIdsResponse]:
        registered = self.metadata.image.brokers.get(self.node_id)
        request = AllocateProducerIdsRequest(self.node_id, -1 if registered is None else registered.epoch)

        def check(response: AllocateProducerIdsResponse) -> AllocateProducerIdsResponse:
            if response.error_code:
                raise KafkaError(_retriable(response.error_code), "The controller allocated no producer ids")
            return response

        def failed(error: KafkaError) -> AllocateProducerIdsResponse:
            raise KafkaError(_retriable(error.code), error.message) from error

        return self.controller.send(request, timeout_s=CONTROLLER_TIMEOUT_S).then(check).otherwise(failed)

    def handle_forwarded(self, client: Client, data: bytes) -> tuple[RequestHeader, Any]:
        """Handle a client's request that another broker forwarded; see `Dispatcher.handle_forwarded`."""
        return self._controller_dispatcher.handle_forwarded(client, data)

    def close_channels(self) -> None:
        """Close the connections to the active controller; requests that wait for it fail."""
        self.controller.close()
        self._forwarding_channel.close()

    def create_internal_topic(self, name: str) -> Completion[None]:
        """Create a coordinator's topic; the completion fails with the KafkaError of the topic."""

        def created(failures: dict[str, KafkaError]) -> None:
            if failures:
                raise failures[name]

        return self.auto_create_topics([name]).then(created)

    def _topic_to_create(self, name: str) -> CreatableTopic:
        if name not in INTERNAL_TOPIC_SETTINGS:
            return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        wanted = InternalTopicSettings.of(name, self.config.__getitem__)
        return CreatableTopic(
            name=name,
            num_partitions=wanted.partitions,
            replication_factor=wanted.replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in wanted.configs.items()],
        )


def _retriable(code: int) -> ErrorCode:
    """The error of InitProducerId, which clients retry where the controller is only not reached yet, as in Kafka."""
    temporary = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH)
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in temporary else ErrorCode(code)


def _failures(response: CreateTopicsResponse) -> dict[str, KafkaError]:
    fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    return {
        topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message)
        for topic in response.topics
        if topic.error_code not in fine
    }
