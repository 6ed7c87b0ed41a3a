"""The transaction coordinator's core reads and writes `__transaction_state`, and decides, as stock Kafka 4.3 does.

Producers of both versions of the protocol commit and abort: librdkafka adds partitions itself, Java lets the broker
add them (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

from ottla.coordinators.events import Call, Moment, Reply
from ottla.coordinators.transaction import DescribeTransaction, TransactionConfig, TransactionShard
from ottla.coordinators.transaction.records import metadata_of, record_of
from ottla.protocol.transaction_records import TransactionLogKey, TransactionLogValue, decode_record
from ottla.records import decode_batch, iter_batches
from tests.conftest import TEST_PROPERTIES
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-transaction-state")]
TIMEOUT_S = 40.0
NAMES = ("committed", "aborted", "open", "empty", "java")


class Written(NamedTuple):
    described: dict[str, dict[str, str]]
    """The output of `kafka-transactions describe`: the values of each id by their titles."""
    records: list[tuple[bytes, bytes | None]]


def producer(tools: Tools, transactional_id: str) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": tools.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    made = confluent_kafka.Producer({**settings, "transaction.timeout.ms": 900_000})
    made.init_transactions(TIMEOUT_S)
    return made


def begin(made: confluent_kafka.Producer) -> confluent_kafka.Producer:
    made.begin_transaction()
    made.produce("ledger", value="v")
    made.flush(TIMEOUT_S)
    return made


def describe(tools: Tools, transactional_id: str) -> dict[str, str]:
    titles, values = (
        line.split()
        for line in tools.ok("transactions", "describe", "--transactional-id", transactional_id).splitlines()
    )
    return dict(zip(titles, values, strict=False))


def stored(directory: Path) -> list[tuple[bytes, bytes | None]]:
    found = []
    for path in sorted(directory.glob("__transaction_state-*/*.log")):
        data = memoryview(path.read_bytes())
        for position, _ in iter_batches(data):
            found += [(bytes(r.key or b""), r.value and bytes(r.value)) for r in decode_batch(data, position)]
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    stock = kafka.StockKafka(tmp_path_factory.mktemp("stock"), overrides=TEST_PROPERTIES)
    with stock:
        tools = Tools(stock.bootstrap)
        tools.create_topic("ledger")
        for _ in range(2):
            begin(producer(tools, "committed")).commit_transaction(TIMEOUT_S)
        begin(producer(tools, "aborted")).abort_transaction(TIMEOUT_S)
        left = begin(producer(tools, "open")), producer(tools, "empty")
        load = ("--num-records", 200, "--record-size", 10, "--throughput", 1000)
        options = ("--transactional-id", "java", "--transaction-duration-ms", 50)
        tools.ok("producer-perf-test", "--topic", "ledger", *load, *options)
        described = {name: describe(tools, name) for name in NAMES}
    yield Written(described, stored(stock.data()))
    del left


def test_replayed_transactions_are_as_stock_kafka_describes_them(written: Written) -> None:
    shard = TransactionShard(TransactionConfig(), 0, 0, lambda: 2)
    for offset, (key, value) in enumerate(written.records):
        shard.replay(key, value, offset)
    for name, expected in written.described.items():
        (reply,) = shard.step(Call(DescribeTransaction(name)), Moment(0, 0))
        assert isinstance(reply, Reply)
        row = reply.response
        partitions = ",".join(f"{topic.topic}-{index}" for topic in row.topics for index in topic.partitions)
        assert {
            "TransactionalId": row.transactional_id,
            "ProducerId": str(row.producer_id),
            "ProducerEpoch": str(row.producer_epoch),
            "TransactionState": row.transaction_state,
            "TransactionTimeoutMs": str(row.transaction_timeout_ms),
        }.items() <= expected.items()
        assert expected.get("TopicPartitions", "") == partitions
    shard.loaded(Moment(0, 0))
    shard.validate()
    assert {shard.transactions[name].state.title for name in NAMES} == {
        "CompleteCommit", "CompleteAbort", "Ongoing", "Empty"
    }  # fmt: skip


def test_records_are_encoded_as_stock_kafka_does(written: Written) -> None:
    versions = set()
    for key, value in written.records:
        decoded = decode_record(key, value)
        assert decoded is not None
        name, row = decoded
        assert isinstance(name, TransactionLogKey)
        assert isinstance(row, TransactionLogValue)
        versions.add(row.client_transaction_version)
        assert record_of(name.transactional_id, metadata_of(row), 2) == (key, value)
    assert versions == {0, 2}, "both versions of the protocol were used"
