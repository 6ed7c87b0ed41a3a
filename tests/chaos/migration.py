"""A cluster of stock Kafka under load whose nodes are replaced by Ottla, and back; and the check of its records.

Writers and groups of consumers run the whole time. `settle` after each step waits until all replicas are in sync and
every client made progress, so that the next step takes no second replica away.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from ottla.clients import Admin, Consumer, TopicPartition
from ottla.clients.errors import ClientError
from ottla.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.cluster.processes import ClusterNode, wait_until
from tests.peers.kafka import StockKafka

from .cluster_load import (
    PARTITIONS,
    TOPIC,
    IdempotentWriter,
    LibrdkafkaWriter,
    TransactionalWriter,
    Writer,
    check,
    stored,
)

WAIT_S = 60.0
PROGRESS = 10
ALL = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
TOPICS = [TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC]
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
}


class Reader(threading.Thread):
    """A member of a group that reads and commits until `stop`; it has no offset reset, so that lost offsets show."""

    def __init__(self, group: str, protocol: str, bootstrap: str) -> None:
        super().__init__(name=group, daemon=True)
        self.group = group
        self.values: Counter[str] = Counter()
        self.committed: dict[TopicPartition, int] = {}
        self.problems: list[str] = []
        self._protocol = protocol
        self._servers = bootstrap
        self._stop_event = threading.Event()

    def stop(self) -> None:
        self._stop_event.set()

    def run(self) -> None:
        while not self._stop_event.is_set():
            try:
                self._read()
            except ClientError as error:
                self.problems.append(repr(error))
                time.sleep(0.1)

    def _read(self) -> None:
        with Consumer(
            bootstrap_servers=self._servers,
            group_id=self.group,
            group_protocol=self._protocol,
            auto_offset_reset="none",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe(TOPIC)
            while not self._stop_event.is_set():
                records = consumer.poll(0.2)
                self.values.update((record.value or b"").decode() for record in records)
                if records:
                    consumer.commit()
                    self.committed = {
                        each: position for each in consumer.assignment() if (position := consumer.position(each))
                    }


class Migration:
    """A stock cluster, the Ottla nodes that replaced some of its nodes, and their clients."""

    def __init__(self, stock: StockKafka) -> None:
        self.stock = stock
        self.nodes: dict[int, ClusterNode] = {}
        self.bootstrap = stock.bootstrap
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self._admin = Admin(bootstrap_servers=stock.bootstrap)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in (*self.writers, *self.readers):
            client.stop()
        self._admin.close()
        for node in self.nodes.values():
            if error is not None:
                print(f"== the log of node {node.node_id}\n{node.log_tail(limit=4_000)}")
            if node.is_running:
                node.kill()

    def start_load(self) -> None:
        """Create the topic and the groups, start all clients, and wait until they have written and read."""
        self._admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        self.readers = [Reader(f"group-{each}", each, self.bootstrap) for each in ("classic", "consumer")]
        self.writers = [
            IdempotentWriter("ottla", self.bootstrap),
            LibrdkafkaWriter("librdkafka", self.bootstrap),
            TransactionalWriter("transactions", self.bootstrap, seed=1),
        ]
        for reader in self.readers:
            self._admin.alter_group_offsets(reader.group, dict.fromkeys(ALL, 0))
        for client in (*self.writers, *self.readers):
            client.start()

    def to_ottla(self, node_id: int, *, kill: bool = False) -> None:
        """Replace a stock node by Ottla with the same server.properties and the same directory."""
        (self.stock.kill_node if kill else self.stock.stop_node)(node_id)
        node = self.nodes.setdefault(node_id, ClusterNode(node_id, self.stock.directory / f"node-{node_id}", {}))
        node.launch()
        node.wait_until_ready(WAIT_S)

    def to_stock(self, node_id: int, *, kill: bool = False) -> None:
        """Replace an Ottla node by stock Kafka, as before."""
        node = self.nodes[node_id]
        if kill:
            node.kill()
        else:
            assert node.stop() == 0
        self.stock.start_node(node_id)

    def settle(self, node_ids: Iterable[int] = (1, 2, 3)) -> None:
        """Wait until these nodes have all replicas in sync, and every client made progress with its offsets kept."""
        wanted = sorted(node_ids)
        self.wait_until(lambda: self._in_sync() == {tuple(wanted)}, "some replicas are not in sync")
        for reader in self.readers:
            known = reader.committed
            found = self._offsets(reader.group)
            behind = {each: (found[each], offset) for each, offset in known.items() if found[each] < offset}
            assert not behind, f"{reader.name}: committed offsets went back: {behind}"
        before = [self._progress(client) for client in (*self.writers, *self.readers)]
        self.wait_until(
            lambda: all(
                self._progress(client) >= count + PROGRESS
                for client, count in zip((*self.writers, *self.readers), before, strict=True)
            ),
            "a client makes no progress",
        )

    def _in_sync(self) -> set[tuple[int, ...]]:
        topics = self._admin.describe_topics(TOPICS).values()
        return {tuple(sorted(each.isr)) for topic in topics for each in topic.partitions}

    def _offsets(self, group: str) -> dict[TopicPartition, int]:
        return {each: found.offset for each, found in self._admin.list_group_offsets(group).items()}

    @staticmethod
    def _progress(client: Writer | Reader) -> int:
        return client.values.total() if isinstance(client, Reader) else len(client.acknowledged)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until the condition is true; clients' errors meanwhile count as false."""
        try:
            wait_until(condition, WAIT_S)
        except TimeoutError as error:
            clients = {each.name: (self._progress(each), each.problems[-2:]) for each in (*self.writers, *self.readers)}
            raise AssertionError(f"{what}: {error}; clients: {clients}") from None

    def finish(self) -> None:
        """Stop the clients, and check every record, transaction, group and log."""
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.join(WAIT_S)
            assert not writer.is_alive(), f"{writer.name} does not stop"
        found = stored(self.bootstrap)
        check(self.writers, found)
        expected = {f"{name}:{number}" for name, numbers in found.items() for number in numbers}
        for reader in self.readers:
            self.wait_until(lambda reader=reader: expected <= reader.values.keys(), f"{reader.name} skipped records")  # type: ignore[misc]
            reader.stop()
        for reader in self.readers:
            reader.join(WAIT_S)
            assert not reader.is_alive(), f"{reader.name} does not stop"
            assert reader.values.keys() == expected, f"{reader.name} read records that are not stored"
            print(f"{reader.name}: {reader.values.total() - len(expected)} repeated, errors: {reader.problems[:3]}")
        for writer in self.writers:
            print(f"{writer.name}: {len(writer.acknowledged)} acknowledged, errors: {writer.problems[:3]}")
        for node in self.nodes.values():
            node.assert_no_traceback()
