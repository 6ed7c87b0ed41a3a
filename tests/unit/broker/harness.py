"""A broker without a network: real metadata and logs on disk, and an event loop whose clock the test advances.

`harness.ask(request, version)` encodes the request and decodes the response in that version, as a client does.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from ottla.broker.composition import create_broker
from ottla.broker.dispatch import Dispatcher
from ottla.cluster.config_rules import BrokerConfigRules
from ottla.cluster.metadata.log import MetadataShell
from ottla.cluster.metadata.options import MetadataOptions, NodeIdentity
from ottla.cluster.node.schedulers import Schedulers
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.work import Worker
from ottla.config import BrokerConfig
from ottla.controller import ControllerSettings
from ottla.log import Files, LogConfig, LogManager, LogManagerPorts
from ottla.partitions.partition import Partition
from ottla.protocol import frames, registry
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records import decode_batch, encode_batch, iter_batches
from tests.unit.controller.support import registration

START_MS = 1_700_000_000_000
LONG = 60_000


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualLoop:
    """The part of an event loop that the broker uses; it is also the clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._soon: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Timer, Callable[[], object]]] = []
        self._sequence = count()

    def wall_ms(self) -> int:
        return START_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        self._soon.append(lambda: callback(*arguments))

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> Timer:
        timer = Timer()
        when = self.now_ms + delay_s * 1000
        heapq.heappush(self._timers, (when, next(self._sequence), timer, lambda: callback(*arguments)))
        return timer

    def run(self) -> None:
        """Run callbacks until none is due."""
        while self._soon:
            self._soon.popleft()()

    def advance(self, milliseconds: int) -> None:
        end = self.now_ms + milliseconds
        self.run()
        while self._timers and self._timers[0][0] <= end:
            when, _, timer, callback = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, round(when))
            if not timer.cancelled:
                callback()
                self.run()
        self.now_ms = end

    @property
    def pending_timers(self) -> int:
        return sum(not timer.cancelled for _, _, timer, _ in self._timers)


class Connection:
    """A client's connection; `drop` disconnects the client."""

    def __init__(self) -> None:
        self.state: dict[str, object] = {}
        self.closed = False
        self.descriptor: int | None = None
        self.listener = "PLAINTEXT"
        self.remote_host = "127.0.0.1"
        self.remote_port = 50_000
        self.principal = "User:ANONYMOUS"
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        self.closed = True

    def drop(self) -> None:
        self.closed = True
        for callback in self._callbacks:
            callback()


class Threads:
    """Runs work at once, or while `held` is set, when the test calls `finish`, as an fsync waits for the disk."""

    def __init__(self) -> None:
        self.held = False
        self.work: list[tuple[Callable[[], object], Completion[None]]] = []

    def run(self, work: Callable[[], object]) -> Completion[None]:
        completion: Completion[None] = Completion()
        self.work.append((work, completion))
        if not self.held:
            self.finish()
        return completion

    def finish(self) -> None:
        """Run the waiting work; work that it adds waits for the next call."""
        pending, self.work = self.work, []
        for work, completion in pending:
            try:
                work()
            except (KafkaError, OSError) as error:
                completion.fail(error)
            else:
                completion.complete(None)


class HastyFiles(Files):
    """Skips every fsync: these tests do not cut the power."""

    def fsync(self, fd: int) -> None:
        pass

    def fsync_directory(self, path: str) -> None:
        pass


class BrokerHarness:
    """One node without a network. `broker` is the real `Broker`."""

    def __init__(self, directory: str, settings: Mapping[str, str] | None = None) -> None:
        self.loop = ManualLoop()
        self.threads = Threads()
        self.client = Connection()
        defaults = {"node.id": "1", "log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0"}
        config = BrokerConfig(defaults | dict(settings or {}))
        files = HastyFiles()
        directories = directory.split(",")
        ports = LogManagerPorts(self._directory_failed)
        logs = LogManager(directories, self.loop, LogConfig(), ports, files=files)
        logs.acquire()
        for number, each in enumerate(logs.log_directories()):
            each.directory_id = bytes([number + 1] * 16)
        identity = NodeIdentity(1, "cluster")
        metadata = MetadataShell.open(
            directories[0],
            identity,
            BrokerConfigRules(config),
            self.loop,
            MetadataOptions(
                files=HastyFiles(),
                controller_settings=ControllerSettings.from_config(config),
            ),
        )
        schedulers = Schedulers(self.threads, self.loop.call_later, Worker(self.loop))  # type: ignore[arg-type]
        self.broker = create_broker(config, identity, metadata, logs, self.loop, schedulers)
        logs.load()
        request = registration(1)
        request.log_dirs = [each.directory_id for each in logs.log_directories()]
        metadata.register(request, clean_shutdown=True)
        metadata.subscribe(self.broker.publish)
        self.broker.directory_moves.start()
        self.dispatch = Dispatcher(self.broker)

    def _directory_failed(self, directory: Any, error: OSError) -> None:
        self.broker.directory_failed(directory.path)

    def close(self) -> None:
        self.broker.metadata.close()
        self.broker.logs.abandon()

    # -- requests ----------------------------------------------------------------------------------------------

    def start(self, request: Any, version: int | None = None, client: Connection | None = None) -> Any:
        """Send the request; returns the response, a completion of it, or None."""
        key = request.API_KEY
        version = request.MAX_VERSION if version is None else version
        frame = memoryview(bytearray(b"".join(frames.encode_request(request, version, 77, "test"))))[4:]
        answer = self.dispatch(client or self.client, frame)  # type: ignore[arg-type]
        if not isinstance(answer, Completion):
            return received(key, version, answer)
        later: Completion[Any] = Completion()
        answer.on_done(lambda done: later.complete(received(key, version, done.result())))
        return later

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Return the response, which must be complete without advancing the clock."""
        answer = self.start(request, version)
        self.loop.run()
        if isinstance(answer, Completion):
            assert answer.done, "the response is not complete"
            return answer.result()
        return answer

    def use_worker(self, worker: Worker) -> None:
        """Run long requests on `worker` from now on."""
        self.broker.schedulers.worker = self.broker.metadata._operations.worker = worker
        self.dispatch = Dispatcher(self.broker)

    # -- shortcuts ---------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic and return its id. Configs have Kafka's names, with underscores for dots."""
        settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequest(topics=[CreatableTopic(name, partitions, 1, configs=settings)])
        created = self.broker.metadata.create_topics(request)
        self.loop.run()
        topic = created.result().topics[0]
        assert topic.error_code == 0, topic.error_message
        return topic.topic_id

    def delete(self, name: str) -> None:
        assert not self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])).responses[0].error_code

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.broker.partitions.get(topic, index)

    def append(self, topic: str, *values: bytes, index: int = 0, **options: Any) -> int:
        """Append one batch without a request; returns its first offset."""
        data = batch(*values, **options)
        return self.partition(topic, index).append(memoryview(data), origin="client").first_offset

    def produce(
        self, *topics: tuple[str, Mapping[int, bytes | bytearray | None]], acks: int = -1, version: int = 12
    ) -> Any:
        request = produce_request(*topics, acks=acks)
        return self.start(request, version)


def received(key: int, version: int, answer: Any) -> Any:
    """Decode the response in a frame."""
    if answer is None:
        return None
    frame = b"".join(answer)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = frames.decode_response_header(frame, key, version, 4)
    assert correlation_id == 77
    return registry.response_class(key).decode(memoryview(frame)[position:], version)


def produce_request(*topics: tuple[str, Mapping[int, Any]], acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(i, data) for i, data in parts.items()])
            for name, parts in topics
        ],
    )


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int = START_MS, **options: Any) -> bytearray:
    return bytearray(encode_batch([(timestamp, key, value, []) for value in values], **options))


def records_of(data: Any) -> list[tuple[int, bytes | None]]:
    """Return offset and value of each record in a fetched field."""
    return [
        (record.offset, record.value)
        for position, _ in iter_batches(data or b"")
        for record in decode_batch(data, position)
    ]


@contextmanager
def open_harness(
    directory: str | os.PathLike[str], settings: Mapping[str, str] | None = None
) -> Iterator[BrokerHarness]:
    harness = BrokerHarness(str(directory), settings)
    asyncio.events._set_running_loop(harness.loop)  # type: ignore[arg-type]
    try:
        yield harness
    finally:
        asyncio.events._set_running_loop(None)
        harness.close()
