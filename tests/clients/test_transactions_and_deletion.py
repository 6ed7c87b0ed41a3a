"""Records of open, committed and aborted transactions are deleted or compacted, and the broker restarts in between.

In every scenario the last stable offset stays within the log and never moves back, and a committed reader sees exactly
the records below it that were not aborted. `--brokers=kafka` runs the scenarios on stock Kafka, which is not restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import ConfigResource, OffsetSpec, TransactionState
from ottla.common.ids import TopicPartition
from ottla.records import iter_batches
from tests.conftest import KAFKA
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.peers.kafka import StockKafka

from .support import WAIT_S, unique, wait_until

SETTINGS = {
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
# One broker for all of them.
pytestmark = pytest.mark.xdist_group("transactions-and-deletion")
SEGMENT_BYTES = 1 << 20
BIG = "." * 400_000  # a segment has two records of this size
HOUR_MS = 3_600_000
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


class Node(NamedTuple):
    """The broker of these tests, and a client."""

    process: OttlaProcess | StockKafka
    admin: Admin

    @property
    def is_stock(self) -> bool:
        return isinstance(self.process, StockKafka)


class Offsets(NamedTuple):
    """Log start, last stable offset and log end."""

    start: int
    stable: int
    end: int


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("deletion")
    is_stock = request.config.getoption("--brokers") == KAFKA
    process = StockKafka(directory, overrides=SETTINGS) if is_stock else ForkedOttla(directory, SETTINGS)
    with process, Admin(process.bootstrap) as admin:
        yield Node(process, admin)
    if isinstance(process, OttlaProcess):
        process.assert_no_traceback()


@pytest.fixture(params=["runs on", "is stopped", "is killed"])
def restart(request: pytest.FixtureRequest, node: Node) -> Callable[[], None]:
    """Restart the broker, after a clean stop or after a kill, or do nothing."""
    process, event = node.process, request.param

    def go_on() -> None:
        if event == "is stopped":
            process.stop()
        elif isinstance(process, OttlaProcess) and event == "is killed":
            process.kill()
        if event != "runs on":
            process.start()

    if node.is_stock and event != "runs on":
        pytest.skip("a restart of stock Kafka changes its port")
    return go_on


class Topic:
    """A topic of one partition. The value of each record begins with the fate of its transaction."""

    def __init__(self, node: Node, **config: object) -> None:
        self.partition = TopicPartition(unique("deletion"), 0)
        self.hidden = {ABORTED, OPEN}
        self._node = node
        self._stable = 0
        self.create(**config)

    def create(self, **config: object) -> None:
        self._node.admin.create_topic(self.partition.topic, partitions=1, config=_dotted(config))

    def configure(self, **config: object) -> None:
        self._node.admin.alter_config(ConfigResource.topic(self.partition.topic), _dotted(config))

    def delete_before(self, offset: int) -> None:
        assert self._node.admin.delete_records({self.partition: offset}) == {self.partition: offset}

    def start(self) -> int:
        return self._offset(OffsetSpec.EARLIEST)

    def _stable_offset(self) -> int:
        return self._offset(OffsetSpec.LATEST, read_committed=True)

    def _offset(self, spec: OffsetSpec, *, read_committed: bool = False) -> int:
        found = self._node.admin.list_offsets({self.partition: spec}, read_committed=read_committed)
        return found[self.partition].offset

    def read(self, isolation: str = "read_uncommitted") -> list[tuple[int, str]]:
        """(offset, fate) of each record that a reader sees."""
        settings = {"isolation.level": isolation, "auto.offset.reset": "earliest"}
        with Consumer(settings, bootstrap_servers=self._node.process.bootstrap) as consumer:
            consumer.assign([self.partition])
            end = consumer.end_offsets([self.partition])[self.partition]
            found: list[tuple[int, str]] = []
            deadline = time.monotonic() + WAIT_S
            while consumer.position(self.partition) < end:
                assert time.monotonic() < deadline, f"position {consumer.position(self.partition)} of {end}"
                found += [(each.offset, each.value.decode().rstrip(".")) for each in consumer.poll(0.2)]
            return found

    def markers(self) -> list[int]:
        """The offsets of the transaction markers on disk."""
        process = self._node.process
        data = process.data if isinstance(process, OttlaProcess) else process.data()
        deadline = time.monotonic() + WAIT_S
        while True:
            logs = sorted((data / f"{self.partition.topic}-0").glob("*.log"))
            try:
                batches = [header for log in logs for _, header in iter_batches(log.read_bytes())]
            except FileNotFoundError:  # a segment was deleted after it was listed
                if time.monotonic() > deadline:
                    raise
            else:
                return [header.base_offset for header in batches if header.is_control]

    def check(self) -> Offsets:
        """Compare what committed and other readers see."""
        offsets = Offsets(self.start(), self._stable_offset(), self._offset(OffsetSpec.LATEST))
        # Stock Kafka lets it stay at the start of a batch of which only the first records were deleted.
        assert offsets.start <= offsets.stable or self._node.is_stock
        assert self._stable <= offsets.stable <= offsets.end
        self._stable = offsets.stable
        visible = [(at, fate) for at, fate in self.read() if at < offsets.stable and fate not in self.hidden]
        assert self.read("read_committed") == visible
        return offsets

    def check_ended(self) -> Offsets:
        """The same after the end of all transactions."""
        wait_until(lambda: self._stable_offset() == self._offset(OffsetSpec.LATEST), "the markers are written")
        return self.check()


def _dotted(config: dict[str, object]) -> dict[str, str]:
    return {key.replace("_", "."): str(value) for key, value in config.items()}


class Writer:
    """A transactional producer."""

    def __init__(self, node: Node) -> None:
        self.transactional_id = unique("deletion")
        settings = {"transactional.id": self.transactional_id, "linger.ms": 500, "batch.size": 100_000}
        self._admin = node.admin
        self.producer: Producer[bytes, bytes] = Producer(settings, bootstrap_servers=node.process.bootstrap)
        self.producer.init_transactions(WAIT_S)

    def begin(self, *topics: Topic, count: int = 1, big: bool = False) -> None:
        self.producer.begin_transaction()
        for topic in topics:
            self.write(topic, OPEN, count=count, big=big)

    def write(self, topic: Topic, fate: str, *, count: int = 1, big: bool = False, age_ms: int = 0) -> None:
        """Write one batch of records of the same key."""
        value = (fate + BIG * big).encode()
        for _ in range(count):
            timestamp_ms = int(time.time() * 1000) - age_ms
            self.producer.send(topic.partition.topic, value, b"key", partition=0, timestamp_ms=timestamp_ms)
        self.producer.flush(WAIT_S)

    def end(self, fate: str) -> None:
        (self.producer.commit_transaction if fate == COMMITTED else self.producer.abort_transaction)(WAIT_S)

    def transact(self, topic: Topic, fate: str, *, count: int = 1, big: bool = False) -> None:
        self.producer.begin_transaction()
        self.write(topic, fate, count=count, big=big)
        self.end(fate)

    def state(self) -> TransactionState:
        return self._admin.describe_transactions([self.transactional_id])[self.transactional_id].state


@pytest.fixture
def make_writer(node: Node) -> Iterator[Callable[[], Writer]]:
    made: list[Writer] = []

    def make() -> Writer:
        made.append(Writer(node))
        return made[-1]

    yield make
    for writer in made:
        writer.producer.close(1.0)


MakeWriter = Callable[[], Writer]


@pytest.mark.parametrize(("deleted", "fate"), [(5, COMMITTED), (5, ABORTED), (12, ABORTED)])
def test_first_records_of_an_open_transaction_are_deleted(
    node: Node, restart: Callable[[], None], make_writer: MakeWriter, deleted: int, fate: str
) -> None:
    topic, writer, other = Topic(node), make_writer(), make_writer()
    other.transact(topic, ABORTED, count=2)
    writer.begin(topic, count=10)
    other.transact(topic, COMMITTED)
    other.transact(topic, ABORTED)
    topic.delete_before(topic.check().stable + deleted)
    before = topic.check()
    restart()
    assert topic.check() == before
    writer.write(topic, OPEN, count=2)
    assert topic.check().stable == before.stable
    writer.end(fate)
    if fate == COMMITTED:
        topic.hidden.remove(OPEN)
    topic.check_ended()


@pytest.mark.parametrize("policy", ["retention_bytes", "retention_ms"])
def test_segments_with_a_part_of_a_transaction_are_deleted(
    node: Node, restart: Callable[[], None], make_writer: MakeWriter, policy: str
) -> None:
    topic = Topic(node, segment_bytes=SEGMENT_BYTES)
    writer, other, spanning = make_writer(), make_writer(), make_writer()
    writer.producer.begin_transaction()
    writer.write(topic, OPEN, big=True, age_ms=2 * HOUR_MS)
    spanning.producer.begin_transaction()
    spanning.write(topic, ABORTED, big=True, age_ms=2 * HOUR_MS)
    for fate in (ABORTED, COMMITTED, ABORTED):
        other.transact(topic, fate, big=True)
    spanning.write(topic, ABORTED, big=True)
    spanning.end(ABORTED)
    other.transact(topic, COMMITTED)
    assert topic.check().stable == 0
    topic.configure(**{policy: HOUR_MS if policy == "retention_ms" else SEGMENT_BYTES})
    wait_until(lambda: topic.start() > 0, "the first segment is deleted")
    before = topic.check()
    assert before.stable == before.start < before.end
    restart()
    assert topic.check() == before
    writer.write(topic, OPEN)
    writer.end(ABORTED)
    topic.check_ended()


def test_compaction_stops_at_an_open_transaction_and_keeps_markers(
    node: Node, restart: Callable[[], None], make_writer: MakeWriter
) -> None:
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 100}
    topic = Topic(node, segment_bytes=SEGMENT_BYTES, **settings)
    writer, other = make_writer(), make_writer()
    for fate in (COMMITTED, ABORTED, COMMITTED, ABORTED):
        other.transact(topic, fate, big=True)
    writer.begin(topic, big=True)
    for fate in (COMMITTED, ABORTED, COMMITTED):
        other.transact(topic, fate, big=True)
    before = topic.check()
    wait_until(lambda: (0, COMMITTED) not in topic.read(), "compaction")
    assert topic.read() == [(4, COMMITTED), (8, OPEN), (9, COMMITTED), (11, ABORTED), (13, COMMITTED)]
    # Markers stay until a second pass finds no record of their transactions.
    assert topic.markers() == [1, 3, 5, 7, 10, 12, 14]
    restart()
    assert topic.check() == before
    writer.end(ABORTED)
    topic.check_ended()

    def markers_are_compacted() -> bool:
        other.transact(topic, COMMITTED, big=True)
        time.sleep(0.3)  # the cleaner runs once a second
        return not {1, 3} & set(topic.markers())

    wait_until(markers_are_compacted, "compaction of markers")
    offsets = [offset for offset, _ in topic.read()]
    assert (8, OPEN) not in topic.read()
    assert {offset + 1 for offset in offsets} <= set(topic.markers())
    topic.check_ended()


@pytest.mark.parametrize("is_recreated", [False, True])
def test_transaction_completes_after_its_topic_was_deleted(
    node: Node, restart: Callable[[], None], make_writer: MakeWriter, is_recreated: bool
) -> None:
    stays, deleted, writer = Topic(node), Topic(node), make_writer()
    writer.begin(stays, deleted)
    node.admin.delete_topics([deleted.partition.topic])
    if is_recreated:
        deleted.create()
    restart()
    writer.end(COMMITTED)
    wait_until(lambda: writer.state() is TransactionState.COMPLETE_COMMIT, "the transaction is complete")
    stays.hidden.remove(OPEN)
    stays.check_ended()
    if is_recreated:
        deleted.check_ended()
    writer.transact(stays, COMMITTED)
    stays.check_ended()
