"""Writers of a cluster under faults, each of which knows the fate of its records; and the check of the stored records.

Each value is `writer:number`. A writer's numbers ascend, and number N is in partition N mod PARTITIONS. A record is
acknowledged or in doubt. After the faults, each acknowledged record must be stored once, and in order.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import confluent_kafka

from ottla.clients import Consumer, Producer
from ottla.clients.errors import ClientError
from tests.cluster.processes import Cluster

TOPIC, PARTITIONS = "chaos", 4
ABORTED = "aborted"
BATCH = 5
TIMEOUT_S = 60.0


class Writer(threading.Thread):
    """Writes until `stop`; `acknowledged` has the numbers that are stored for certain."""

    pause_s = 0.002

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.acknowledged: list[int] = []
        self.problems: list[str] = []
        self._next = 0
        self._stop_event = threading.Event()

    def stop(self) -> None:
        self._stop_event.set()

    def run(self) -> None:
        while not self._stop_event.is_set():
            try:
                self.write(self._stop_event.is_set)
            except (ClientError, confluent_kafka.KafkaException) as error:
                self.problems.append(repr(error))
                time.sleep(0.1)

    def write(self, stopped: Callable[[], bool]) -> None:
        """Write with one producer until it fails or the writer is stopped."""
        raise NotImplementedError

    def value(self) -> tuple[int, bytes]:
        number = self._next
        self._next += 1
        return number, f"{self.name}:{number}".encode()


class IdempotentWriter(Writer):
    """Ottla's producer with acks=all."""

    def write(self, stopped: Callable[[], bool]) -> None:
        with Producer(bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True) as producer:
            while not stopped():
                sent = []
                for _ in range(BATCH):
                    number, value = self.value()
                    sent.append((number, producer.send(TOPIC, value, partition=number % PARTITIONS)))
                for number, record in sent:
                    record.result(TIMEOUT_S)
                    self.acknowledged.append(number)
                time.sleep(self.pause_s)


class LibrdkafkaWriter(Writer):
    """librdkafka's idempotent producer."""

    def write(self, stopped: Callable[[], bool]) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )

        def report(number: int) -> Callable[[object, object], None]:
            def delivered(error: object, _message: object) -> None:
                if error is None:
                    self.acknowledged.append(number)
                else:
                    self.problems.append(str(error))

            return delivered

        while not stopped():
            for _ in range(BATCH):
                number, value = self.value()
                producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=report(number))
            producer.poll(self.pause_s)
            while len(producer) > 200 and not stopped():
                producer.poll(0.1)
        producer.flush(TIMEOUT_S)


class TransactionalWriter(Writer):
    """Transactions of BATCH records, of which a third is aborted. A transaction is committed, aborted, or in doubt."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        super().__init__(name, bootstrap)
        self.aborted: list[int] = []
        self.transactions: list[list[int]] = []
        self._random = random.Random(seed)

    def write(self, stopped: Callable[[], bool]) -> None:
        with contextlib.closing(
            Producer({"transactional.id": self.name}, bootstrap_servers=self.bootstrap)
        ) as producer:
            producer.init_transactions(TIMEOUT_S)
            while not stopped():
                producer.begin_transaction()
                numbers = []
                for _ in range(BATCH):
                    number, value = self.value()
                    numbers.append(number)
                    producer.send(TOPIC, value, partition=number % PARTITIONS)
                self.transactions.append(numbers)
                if self._random.random() < 1 / 3:
                    producer.abort_transaction(TIMEOUT_S)
                    self.aborted += numbers
                else:
                    producer.commit_transaction(TIMEOUT_S)
                    self.acknowledged += numbers
                time.sleep(self.pause_s)


def three_writers(bootstrap: str, seed: int, before: Sequence[Writer] = ()) -> list[Writer]:
    """A writer of each kind, which are not started; they continue the numbers of the writers `before`."""
    writers: list[Writer] = [
        IdempotentWriter("ottla", bootstrap),
        LibrdkafkaWriter("librdkafka", bootstrap),
        TransactionalWriter("transactions", bootstrap, seed),
    ]
    for writer, previous in zip(writers, before, strict=False):
        writer.acknowledged, writer._next = previous.acknowledged, previous._next
        if isinstance(writer, TransactionalWriter) and isinstance(previous, TransactionalWriter):
            writer.aborted, writer.transactions = previous.aborted, previous.transactions
    return writers


def stop(writers: Sequence[Writer]) -> None:
    """Stop the writers, and wait for the fate of their records."""
    for writer in writers:
        writer.stop()
    for writer in writers:
        writer.join(2 * TIMEOUT_S)
        assert not writer.is_alive(), f"{writer.name} does not stop"


def finish(cluster: Cluster, writers: list[Writer]) -> None:
    """Stop the writers, end the open transactions, and wait until all replicas are in sync."""
    stop(writers)
    with Producer({"transactional.id": "transactions"}, bootstrap_servers=cluster.bootstrap) as producer:
        producer.init_transactions(TIMEOUT_S)
    brokers = [node.node_id for node in cluster.nodes.values() if node.is_broker]
    cluster.wait_until(
        lambda: all(cluster.in_sync(TOPIC, partition) == brokers for partition in range(PARTITIONS)), TIMEOUT_S
    )


def stored(bootstrap: str) -> dict[str, list[int]]:
    """The committed numbers of each writer, in the order of each partition, partitions one after the other."""
    found: dict[str, list[int]] = {}
    with Consumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + TIMEOUT_S
        while any(consumer.position(each) < ends[each] for each in partitions):  # type: ignore[operator]
            assert time.monotonic() < deadline, "the records cannot be read"
            for record in consumer.poll(1.0) or ():
                name, _, number = (record.value or b"").decode().partition(":")
                assert int(number) % PARTITIONS == record.partition
                found.setdefault(name, []).append(int(number))
    return found


def check(writers: list[Writer], found: dict[str, list[int]]) -> None:
    """Nothing acknowledged is lost, repeated or out of order; transactions are whole, aborted ones invisible."""
    for writer in writers:
        numbers = found.get(writer.name, [])
        counts = Counter(numbers)
        lost = [number for number in writer.acknowledged if not counts[number]]
        assert not lost, f"{writer.name}: acknowledged and lost: {lost[:20]} ({len(lost)})"
        repeated = [number for number, count in counts.items() if count > 1]
        assert not repeated, f"{writer.name}: repeated: {repeated[:20]}"
        certain = set(writer.acknowledged)
        for partition in range(PARTITIONS):
            ordered = [number for number in numbers if number % PARTITIONS == partition and number in certain]
            assert ordered == sorted(ordered), f"{writer.name}: out of order in partition {partition}"
        if isinstance(writer, TransactionalWriter):
            seen = [number for number in writer.aborted if counts[number]]
            assert not seen, f"{writer.name}: aborted and visible: {seen[:20]}"
            torn = [each for each in writer.transactions if 0 < sum(counts[n] for n in each) < len(each)]
            assert not torn, f"{writer.name}: torn transactions: {torn[:5]}"
