"""Random requests get the same answers from stock Kafka 4.3 and from the transaction coordinator's core.

There is one difference, which `Pair.end` explains. Each request waits until the markers of the previous one are
written, so that both are in the same state. `OTTLA_SEEDS=80` compares for longer.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.transaction import AddPartitions, DescribeTransaction
from ottla.protocol.frames import decode_response_header, encode_request
from ottla.protocol.message import Message
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.clients.wire import Connection
from tests.conftest import TEST_PROPERTIES
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm
from tests.simulation.world.transactions import TransactionDriver

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("transaction-decisions")]
SEEDS = int(os.environ.get("OTTLA_SEEDS", "3"))
REQUESTS = 150
TIMEOUT_S = 40.0
UNKNOWN_ID = 1 << 40
ATTEMPTS = itertools.count()


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.StockKafka]:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    with kafka.StockKafka(tmp_path_factory.mktemp("stock"), overrides=TEST_PROPERTIES) as running:
        Tools(running.bootstrap).create_topic("ledger", 2)
        # It creates the coordinator's topic.
        first = confluent_kafka.Producer(
            {"bootstrap.servers": running.bootstrap, "transactional.id": "first", "log_level": 0}
        )
        first.init_transactions(TIMEOUT_S)
        yield running


class Pair:
    """One transactional id at stock Kafka and at the core. Producer ids are the core's."""

    def __init__(self, connection: Connection, transactional_id: str, seed: int) -> None:
        self.connection = connection
        self.name = transactional_id
        self.random = random.Random(seed)
        self.driver = TransactionDriver()
        self.stock_ids = {-1: -1, UNKNOWN_ID: UNKNOWN_ID}
        self.identities = [(-1, -1)]

    def ask_stock(self, request: Message, version: int, response_class: type[Message]) -> Any:
        self.connection.send(b"".join(encode_request(request, version, 7, "pair")))
        answer = self.connection.receive()
        position = decode_response_header(answer, request.API_KEY, version)[1]
        return response_class.decode_from(answer, position, version)[0]

    def identity(self) -> tuple[int, int]:
        """Mostly the present producer id and epoch, sometimes earlier or wrong ones."""
        producer_id, epoch = self.identities[-1]
        chance = self.random.random()
        if chance < 0.65 or producer_id == -1:
            return producer_id, epoch
        if chance < 0.85:
            return producer_id, max(epoch + self.random.choice((-2, -1, -1, 1)), 0)
        return (UNKNOWN_ID, 0) if chance < 0.9 else self.random.choice(self.identities)

    def take(self, mine: Any, theirs: Any) -> None:
        if mine.producer_id >= 0 and mine.error_code == ErrorCode.NONE:
            assert self.stock_ids.setdefault(mine.producer_id, theirs.producer_id) == theirs.producer_id
            self.identities.append((mine.producer_id, mine.producer_epoch))

    # -- requests --------------------------------------------------------------------------------------------------

    def init(self) -> tuple[object, object]:
        producer_id, epoch = self.identity() if self.random.random() < 0.5 else (-1, -1)
        version = self.random.choice((3, 4, 5))
        mine = self.driver.ask(InitProducerIdRequest(self.name, 60_000, producer_id, epoch), version)
        request = InitProducerIdRequest(self.name, 60_000, self.stock_ids[producer_id], epoch)
        theirs = self.ask_stock(request, version, InitProducerIdResponse)
        self.take(mine, theirs)
        return (mine.error_code, mine.producer_epoch), (theirs.error_code, theirs.producer_epoch)

    def end(self) -> tuple[object, object]:
        producer_id, epoch = self.identity()
        version, commit = self.random.choice((1, 4, 5, 5)), self.random.random() < 0.5
        metadata = self.driver.shard.transactions.get(self.name)
        if metadata is not None and version == 5 and metadata.client_transaction_version == 0:
            # The transaction did not bump the epoch, but Kafka takes the previous epoch for a retry, so that it gives
            # the epoch of a producer to its predecessor. The core does not.
            epoch = max(epoch, metadata.producer_epoch)
        mine = self.driver.ask(EndTxnRequest(self.name, producer_id, epoch, commit), version)
        request = EndTxnRequest(self.name, self.stock_ids[producer_id], epoch, commit)
        theirs = self.ask_stock(request, version, EndTxnResponse)
        self.take(mine, theirs)
        return (mine.error_code, mine.producer_epoch), (theirs.error_code, theirs.producer_epoch)

    def add(self) -> tuple[object, object]:
        producer_id, epoch = self.identity()
        version, verifies = self.random.choice((1, 3, 5, 5)), False
        if version == 5:
            verifies = self.random.random() < 0.4
        indexes = self.random.choice(([0], [1], [0, 1]))
        rows = tuple(("ledger", index) for index in indexes)
        question = AddPartitions(self.name, producer_id, epoch, rows, verifies, 2 if version == 5 else 0)
        mine = self.driver.ask(question, version)
        topics = [AddPartitionsToTxnTopic(name="ledger", partitions=indexes)]
        stock_id = self.stock_ids[producer_id]
        if version == 5:
            row = AddPartitionsToTxnTransaction(self.name, stock_id, epoch, verifies, topics)
            request = AddPartitionsToTxnRequest(transactions=[row])
            results = self.ask_stock(request, version, AddPartitionsToTxnResponse).results_by_transaction[0]
            found = results.topic_results[0].results_by_partition
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=stock_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            response = self.ask_stock(request, version, AddPartitionsToTxnResponse)
            found = response.results_by_topic_v3_and_below[0].results_by_partition
        theirs = {("ledger", row.partition_index): row.partition_error_code for row in found}
        return mine, theirs

    def described(self) -> tuple[object, object]:
        """Return the descriptions of the transaction by both, once stock Kafka has written its markers."""
        mine = self.driver.ask(DescribeTransaction(self.name))
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            request = DescribeTransactionsRequest(transactional_ids=[self.name])
            (theirs,) = self.ask_stock(request, 0, DescribeTransactionsResponse).transaction_states
            if not theirs.transaction_state.startswith("Prepare"):
                break
            assert time.monotonic() < deadline
            time.sleep(0.001)
        if mine.error_code == ErrorCode.NONE:
            assert self.stock_ids[mine.producer_id] == theirs.producer_id
        return tuple(
            (
                row.error_code,
                row.transaction_state,
                row.producer_epoch,
                {(topic.topic, index) for topic in row.topics for index in topic.partitions},
            )
            for row in (mine, theirs)
        )  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_answers_are_the_same(stock: kafka.StockKafka, seed: int) -> None:
    with Connection(stock.bootstrap) as connection:
        # A test that is run again needs a new id.
        pair = Pair(connection, f"pair-{seed}-{next(ATTEMPTS)}", seed)
        seen = set()
        for number in range(REQUESTS):
            action = pair.random.choice((pair.init, pair.add, pair.add, pair.add, pair.end, pair.end))
            mine, theirs = action()
            assert mine == theirs, f"{action.__name__} of request {number} of {pair.identities[-5:]}"
            seen.add(repr(mine))
            mine, theirs = pair.described()
            assert mine == theirs, f"after {action.__name__} of request {number}"
        assert len(seen) > 10, "the requests have to reach different answers"
