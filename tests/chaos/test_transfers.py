"""Transfers between accounts in transactions, while the broker is killed: committed readers always see the same sum.

Each transaction moves an amount from one account to another: a debit in one partition, a credit in another. Some are
aborted. In the end the broker must show each committed transfer exactly once, none that was aborted, and both halves
of each.
"""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Producer

from tests.ottla_process import OttlaProcess

from .support import WAIT_S, create_topic
from .transactional import (
    QUICK,
    SECONDS,
    SEED,
    Program,
    kill_repeatedly,
    process,  # noqa: F401 - a fixture
    read_committed,
    wait_until_no_transaction_is_open,
)

TOPIC = "accounts"
ACCOUNTS = 4
TRANSFERRED, ABORTED, UNKNOWN = "transferred", "aborted", "unknown"


class Teller(Program):
    """Transfers amounts; a producer that fails is replaced by a new instance."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(bootstrap)
        self.number = number
        self.outcomes: dict[int, str] = {}
        self._random = random.Random(SEED * 1_000 + number)

    def serve(self) -> None:
        settings = {"transactional.id": f"teller-{self.number}", "transaction.timeout.ms": 10_000, **QUICK}
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        producer.init_transactions(WAIT_S)
        while not self.stopping.is_set():
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


@pytest.mark.timeout(2 * SECONDS + 300)
def test_sums_balance_for_committed_readers_while_the_broker_is_killed(process: OttlaProcess) -> None:  # noqa: F811
    create_topic(process, TOPIC, ACCOUNTS)
    tellers = [Teller(process.bootstrap, number) for number in range(2)]
    for teller in tellers:
        teller.start()
    kills = kill_repeatedly(process)
    for teller in tellers:
        teller.finish()
    wait_until_no_transaction_is_open(process.bootstrap, TOPIC, ACCOUNTS)
    seen: dict[tuple[int, int], list[int]] = {}
    for _, value in read_committed(process.bootstrap, TOPIC, ACCOUNTS):
        of, number, change = map(int, value.split())
        seen.setdefault((of, number), []).append(change)
    for changes in seen.values():
        assert len(changes) == 2, "both halves of a transfer, once"
        assert sum(changes) == 0
    for teller in tellers:
        outcomes = list(teller.outcomes.values())
        print(f"{kills} kills, teller {teller.number}:", {each: outcomes.count(each) for each in sorted(set(outcomes))})
        assert outcomes.count(TRANSFERRED) > 5
        for number, outcome in teller.outcomes.items():
            is_seen = (teller.number, number) in seen
            assert is_seen or outcome != TRANSFERRED, f"transfer {number} of teller {teller.number} is lost"
            assert not is_seen or outcome != ABORTED, f"transfer {number} of teller {teller.number} was aborted"
