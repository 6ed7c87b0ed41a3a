"""Records and offsets of one transaction count together, while the broker is killed; with Ottla's producer.

Each transaction writes its number to two partitions and commits it as the offset of a group. In the end each committed
number is in both partitions once, and the group's offset is the last one. librdkafka is not used here: its
`send_offsets_to_transaction` may send no request after a reconnect.

`OTTLA_CHAOS_MINUTES` sets the duration, `OTTLA_CHAOS_SEED` the moments of the kills.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition
from tests.ottla_process import OttlaProcess

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.1")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "4"))
SOURCE = TopicPartition("source", 0)
TARGET = "target"
WAIT_S = 30.0


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    settings = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}
    broker = OttlaProcess(tmp_path, settings)
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


class Processor(threading.Thread):
    """Commits one transaction after another until it is stopped; a producer that fails is replaced."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(daemon=True)
        self.group = f"group-{number}"
        self.committed: list[int] = []
        self.stopping = threading.Event()
        self._address = bootstrap
        self._last = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with Producer(bootstrap_servers=self._address, transactional_id=self.group) as producer:
                    producer.init_transactions(WAIT_S)
                    while not self.stopping.is_set():
                        self._process(producer)
            except ClientError:
                time.sleep(0.1)  # the outcome of the transaction is unknown

    def _process(self, producer: Producer) -> None:
        self._last += 1
        with producer.transaction():
            for partition in (0, 1):
                producer.send(TARGET, f"{self.group} {self._last}".encode(), partition=partition)
            producer.send_offsets_to_transaction({SOURCE: self._last}, self.group, WAIT_S)
        self.committed.append(self._last)


def read_committed(bootstrap: str) -> Counter[tuple[str, int]]:
    """How often committed readers see each number of a group."""
    seen: Counter[tuple[str, int]] = Counter()
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with Consumer(settings, bootstrap_servers=bootstrap) as reader:
        partitions = [TopicPartition(TARGET, partition) for partition in (0, 1)]
        reader.assign(partitions)
        ends = reader.end_offsets(partitions)
        deadline = time.monotonic() + WAIT_S
        while any(reader.position(partition) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, "the end of a partition cannot be read"
            for record in reader.poll(1.0):
                group, number = record.value.decode().split()
                seen[group, int(number)] += 1
    return seen


@pytest.mark.timeout(SECONDS + 150)
def test_records_and_offsets_of_transactions_agree_while_the_broker_is_killed(process: OttlaProcess) -> None:
    with Admin(process.bootstrap) as admin:
        admin.create_topic(SOURCE.topic, partitions=1)
        admin.create_topic(TARGET, partitions=2)
        processors = [Processor(process.bootstrap, number) for number in range(2)]
        for processor in processors:
            processor.start()
        chance = random.Random(SEED)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.3, 2.0))
            process.kill()
            process.start()
        for processor in processors:
            processor.stopping.set()
            processor.join(2 * WAIT_S)
            assert not processor.is_alive(), "the processor did not stop"
        seen = read_committed(process.bootstrap)
        assert set(seen.values()) == {2}, "both records of a transaction, once"
        for processor in processors:
            numbers = sorted(number for group, number in seen if group == processor.group)
            assert len(processor.committed) > 10
            assert set(processor.committed) <= set(numbers), "a committed transaction is lost"
            assert admin.list_group_offsets(processor.group)[SOURCE].offset == numbers[-1]
