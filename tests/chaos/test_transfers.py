"""Transfers between accounts in transactions, while the broker is killed: committed readers always see the same sum.

Each transaction moves an amount from one account to another: a debit in one partition, a credit in another. Some are
aborted. In the end the broker must show each committed transfer exactly once, none that was aborted, and both halves
of each. Offsets are not part of it: librdkafka's `send_offsets_to_transaction` may wait forever after a reconnect.

`OTTLA_CHAOS_MINUTES` sets the duration, `OTTLA_CHAOS_SEED` the choice of accounts and moments.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.ottla_process import OttlaProcess

from .support import create_topic

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.15")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "3"))
TOPIC = "accounts"
ACCOUNTS = 4
WAIT_S = 20.0
TRANSFERRED, ABORTED, UNKNOWN = "transferred", "aborted", "unknown"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    settings = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}
    broker = OttlaProcess(tmp_path, settings)
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


class Teller(threading.Thread):
    """Transfers between its accounts until it is stopped; a producer that fails is replaced by a new instance."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.outcomes: dict[int, str] = {}
        self.problem: BaseException | None = None
        self._address = bootstrap
        self._random = random.Random(SEED * 1_000 + number)
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._serve()
                except KafkaException:
                    time.sleep(0.1)  # the broker is down, or this instance was fenced
        except BaseException as problem:  # noqa: BLE001 - reported by `finish`
            self.problem = problem

    def finish(self) -> None:
        self._stopping.set()
        self.join(3 * WAIT_S)
        assert not self.is_alive(), "the teller did not stop"
        if self.problem is not None:
            raise self.problem

    def _serve(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "transactional.id": f"teller-{self.number}",
                "transaction.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 200,
                "socket.timeout.ms": 5_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(WAIT_S)
        while not self._stopping.is_set():
            number = len(self.outcomes)
            self.outcomes[number] = UNKNOWN
            self._transfer(producer, number)

    def _transfer(self, producer: Producer, number: int) -> None:
        source, target = self._random.sample(range(ACCOUNTS), 2)
        amount = self._random.randrange(1, 100)
        producer.begin_transaction()
        for account, change in ((source, -amount), (target, amount)):
            value = b"%d %d %d" % (self.number, number, change)
            producer.produce(TOPIC, value, partition=account)
        if self._random.random() < 0.2:
            producer.flush(WAIT_S)  # an abort drops what was not sent
            producer.abort_transaction(WAIT_S)
            self.outcomes[number] = ABORTED
        else:
            producer.commit_transaction(WAIT_S)
            self.outcomes[number] = TRANSFERRED


def read_committed(bootstrap: str) -> dict[tuple[int, int], list[int]]:
    """The changes of each (teller, transfer) that committed readers see."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(TOPIC, account, 0) for account in range(ACCOUNTS)])
    changes: dict[tuple[int, int], list[int]] = {}
    left = set(range(ACCOUNTS))
    deadline = time.monotonic() + 3 * WAIT_S
    try:
        while left:
            assert time.monotonic() < deadline, f"no end of the partitions {left}"
            message: Message | None = reader.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                left.discard(message.partition())
                continue
            teller, number, change = map(int, message.value().split())
            changes.setdefault((teller, number), []).append(change)
    finally:
        reader.close()
    return changes


def no_transaction_is_open(bootstrap: str) -> bool:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "auditor", "log_level": 0})
    committed = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "isolation.level": "read_committed", "log_level": 0}
    )
    try:
        return all(
            reader.get_watermark_offsets(TopicPartition(TOPIC, account), WAIT_S)
            == committed.get_watermark_offsets(TopicPartition(TOPIC, account), WAIT_S)
            for account in range(ACCOUNTS)
        )
    finally:
        reader.close()
        committed.close()


def test_sums_balance_for_committed_readers_while_the_broker_is_killed(process: OttlaProcess) -> None:
    create_topic(process, TOPIC, ACCOUNTS)
    tellers = [Teller(process.bootstrap, number) for number in range(2)]
    for teller in tellers:
        teller.start()
    chance = random.Random(SEED)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.5, 3.0))
        process.kill()
        process.start()
    for teller in tellers:
        teller.finish()
    deadline = time.monotonic() + 2 * WAIT_S
    while not no_transaction_is_open(process.bootstrap):
        assert time.monotonic() < deadline, "a transaction hangs"
        time.sleep(0.5)
    seen = read_committed(process.bootstrap)
    for changes in seen.values():
        assert len(changes) == 2, "both halves of a transfer, once"
        assert sum(changes) == 0
    for teller in tellers:
        assert sum(outcome == TRANSFERRED for outcome in teller.outcomes.values()) > 5
        for number, outcome in teller.outcomes.items():
            is_seen = (teller.number, number) in seen
            assert is_seen or outcome != TRANSFERRED, f"transfer {number} of teller {teller.number} is lost"
            assert not is_seen or outcome != ABORTED, f"transfer {number} of teller {teller.number} was aborted"
