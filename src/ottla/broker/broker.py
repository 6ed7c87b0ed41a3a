"""One node: its parts, and the few things that several handlers ask of them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla.broker.fetch_session import FetchSessionCache
from ottla.broker.partitions import Partitions
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import INTERNAL_TOPICS

if TYPE_CHECKING:
    from ottla.broker.group_runtime import GroupRuntime
    from ottla.broker.metadata_log import MetadataShell
    from ottla.config import BrokerConfig
    from ottla.log import LogManager

logger = logging.getLogger(__name__)

# One thread for each disk that is likely to be there; fsync waits for the disk, not for the interpreter.
FLUSH_THREADS = 4


class FlushThreads:
    """Runs blocking file work off the loop; results come back on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(FLUSH_THREADS, thread_name_prefix="ottla-flush")

    def run(self, work: Callable[[], object]) -> Completion[None]:
        """Do `work` in a thread; the completion is done on the loop."""
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


class Broker:
    """The parts of one node, for handlers to use."""

    groups: GroupRuntime

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        logs: LogManager,
        metadata: MetadataShell,
        cluster_id: str,
        flush_threads: FlushThreads,
    ) -> None:
        self.config = config
        self.clock = clock
        self.logs = logs
        self.metadata = metadata
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.flush_threads = flush_threads
        self.partitions = Partitions(
            node_id=self.node_id,
            logs=logs,
            clock=clock,
            topic_values=self.topic_values,
            flush_in_thread=flush_threads.run,
        )
        self.fetch_sessions = FetchSessionCache(
            config.int("max.incremental.fetch.session.cache.slots"), lambda: secrets.randbelow(2**31)
        )
        self._creating: dict[str, list[Completion[None]]] = {}

    # -- settings ----------------------------------------------------------------------------------------------

    def topic_values(self, topic: str) -> dict[str, object]:
        """The effective settings of a topic: its own, the broker's dynamic and static ones, Kafka's defaults."""
        from ottla.config import resolve_topic

        resolved = resolve_topic(*self._config_layers(topic), self.config)
        return {name: entry.value for name, entry in resolved.items()}

    def _config_layers(self, topic: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        configs = self.metadata.image.configs
        return (
            dict(configs.get((2, topic), {})),
            dict(configs.get((4, str(self.node_id)), {})),
            dict(configs.get((4, ""), {})),
        )

    # -- answers that several handlers give ---------------------------------------------------------------------

    def endpoints(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """(node id, host, port, rack) of every broker, as clients of `listener` reach it."""
        found = []
        for node_id, broker in self.metadata.image.brokers.items():
            endpoint = broker.endpoint(listener)
            if endpoint is not None and not broker.fenced:
                found.append((node_id, endpoint.host, endpoint.port, broker.rack))
        return found

    def advertised_endpoint(self, listener: str) -> tuple[str, int]:
        """(host, port) of this node, as clients of `listener` reach it."""
        endpoint = self.metadata.image.brokers[self.node_id].endpoint(listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Node {self.node_id} has no listener {listener}")
        return endpoint.host, endpoint.port

    def auto_create_topics(self, names: Iterable[str]) -> Completion[dict[str, KafkaError]]:
        """Create topics that a client asked for without knowing them; the failures by name.

        A topic that somebody else is creating or has created is no failure.
        """
        from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

        topics = []
        for name in names:
            internal = name in INTERNAL_TOPICS
            topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
            if internal:
                self._as_internal(topic)
            topics.append(topic)
        request = CreateTopicsRequest(topics=topics)
        result: Completion[dict[str, KafkaError]] = Completion()

        def created(done: Completion[CreateTopicsResponse]) -> None:
            try:
                response = done.result()
            except KafkaError as error:
                result.fail(error)
                return
            fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            result.complete(
                {
                    topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message)
                    for topic in response.topics
                    if topic.error_code not in fine
                }
            )

        self.metadata.create_topics(request).on_done(created)
        return result
