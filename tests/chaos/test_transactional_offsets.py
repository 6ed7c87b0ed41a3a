"""Records and offsets of one transaction count together, while the broker is killed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer
from ottla.common import ids
from tests.clients.support import wait_until
from tests.ottla_process import OttlaProcess

from . import copier
from .copier import SOURCE, TARGET
from .support import WAIT_S, create_topic
from .transactional import (
    SECONDS,
    SEED,
    Program,
    kill_repeatedly,
    process,  # noqa: F401 - a fixture
    read_committed,
    wait_until_no_transaction_is_open,
)

PARTITIONS = 2
ROOT = Path(__file__).parents[2]
RESTART_S = 3
"""A copier makes progress in less than this time."""


class Processor(Program):
    """Ottla's producer writes its number to two partitions and commits it as the offset of a group."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(bootstrap)
        self.group = f"group-{number}"
        self.committed: list[int] = []
        self._last = 0

    def serve(self) -> None:
        with Producer(bootstrap_servers=self.bootstrap, transactional_id=self.group) as producer:
            producer.init_transactions(WAIT_S)
            while not self.stopping.is_set():
                self._process(producer)

    def _process(self, producer: Producer[bytes, bytes]) -> None:
        self._last += 1
        with producer.transaction():
            for partition in range(PARTITIONS):
                producer.send(TARGET, f"{self.group} {self._last}".encode(), partition=partition)
            producer.send_offsets_to_transaction({ids.TopicPartition(SOURCE, 0): self._last}, self.group, WAIT_S)
        self.committed.append(self._last)


@pytest.mark.timeout(2 * SECONDS + 300)
def test_records_and_offsets_of_transactions_agree_while_the_broker_is_killed(
    process: OttlaProcess,  # noqa: F811
) -> None:
    create_topic(process, SOURCE)
    create_topic(process, TARGET, PARTITIONS)
    processors = [Processor(process.bootstrap, number) for number in range(2)]
    for processor in processors:
        processor.start()
    kills = kill_repeatedly(process)
    for processor in processors:
        processor.finish()
    seen: Counter[tuple[str, int]] = Counter()
    for _, value in read_committed(process.bootstrap, TARGET, PARTITIONS):
        group, number = value.decode().split()
        seen[group, int(number)] += 1
    assert set(seen.values()) == {PARTITIONS}, "both records of a transaction, once"
    with Admin(process.bootstrap) as admin:
        for processor in processors:
            numbers = sorted(number for group, number in seen if group == processor.group)
            print(f"{kills} kills, {processor.group}: {len(processor.committed)} of {len(numbers)} known as committed")
            assert len(processor.committed) > 10
            assert set(processor.committed) <= set(numbers), "a committed transaction is lost"
            offset = admin.list_group_offsets(processor.group)[ids.TopicPartition(SOURCE, 0)].offset
            assert offset == numbers[-1]


class Copier(Program):
    """Runs `copier.py`, kills it at random moments and starts it again.

    librdkafka's `send_offsets_to_transaction` may send no request after a reconnect and then waits forever, so that a
    copier needs to be killed.
    """

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(bootstrap)
        self.kills = 0
        self._number = number
        self._random = random.Random(SEED * 1_000 + number)

    def serve(self) -> None:
        command = [sys.executable, "-m", copier.__name__, self.bootstrap, str(self._number)]
        with subprocess.Popen(command, cwd=ROOT) as running:
            try:
                code = running.wait(self._random.uniform(RESTART_S, 3 * RESTART_S))
                assert code == copier.FAILED, f"exit code {code}"
            except subprocess.TimeoutExpired:
                self.kills += 1
            finally:
                running.kill()


@pytest.mark.timeout(2 * SECONDS + 300)
def test_members_of_a_group_copy_each_record_once_while_they_and_the_broker_are_killed(
    process: OttlaProcess,  # noqa: F811
) -> None:
    for topic in (SOURCE, TARGET):
        create_topic(process, topic, PARTITIONS)
    count = round(20 * SECONDS)
    with Producer(bootstrap_servers=process.bootstrap) as producer:
        for number in range(count):
            for partition in range(PARTITIONS):
                producer.send(SOURCE, b"%d" % number, partition=partition)
    copiers = [Copier(process.bootstrap, number) for number in range(2)]
    for each in copiers:
        each.start()
    kills = kill_repeatedly(process, 2 * RESTART_S)
    with Admin(process.bootstrap) as admin:

        def offsets() -> list[int]:
            return [row.offset for row in admin.list_group_offsets(copier.GROUP).values()]

        at_end = offsets()
        wait_until(lambda: offsets() == PARTITIONS * [count], "all records are copied", 3 * WAIT_S)
    for each in copiers:
        each.finish()
    print(f"{kills} kills of the broker, {[each.kills for each in copiers]} of the copiers; {at_end} of {count} copied")
    wait_until_no_transaction_is_open(process.bootstrap, TARGET, PARTITIONS)
    copied: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for partition, value in read_committed(process.bootstrap, TARGET, PARTITIONS):
        copied[partition].append(int(value))
    for numbers in copied.values():
        assert numbers == list(range(count)), "each record once, in order"
