"""Kafka -> Ottla -> Kafka: features, groups of every kind, transactions and offsets are as they were.

Stock Kafka 4.3 makes what Ottla does not serve: KIP-848 groups, a share group, open, committed and aborted
transactions, with eligible leader replicas on. Ottla compacts the internal topics and applies retention with eager
settings. A second story goes the other way: stock Kafka raises the features of a directory that Ottla made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

from tests.clients.support import wait_until
from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import OttlaProcess
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .conftest import Tools
from .test_stock_directory import OttlaOnStock

# One story: each test goes on where the previous one stopped.
pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-round-trip")]

STOCK_PROPERTIES = {
    **TEST_PROPERTIES,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 2,
    # Ottla compacts what stock Kafka wrote.
    "log.cleaner.enable": "false",
}
# kraft.version 1, as `kafka-storage format --standalone` makes it: the voter is in the log, not in the settings.
STANDALONE = {**STOCK_PROPERTIES, "controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "127.0.0.1:1"}
EAGER = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.001,
    "log.retention.ms": 1000,
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
    "metadata.log.max.snapshot.interval.ms": 1000,
}
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
LINES = [f"key {i}\tvalue {i}" for i in range(30)]
KIP_848 = ("--command-property", "group.protocol=consumer")
TIMEOUT_S = 40.0


class EagerOttla(OttlaOnStock):
    """Ottla on a stock directory, with settings that clean and delete whatever may be."""

    def command(self) -> list[str]:
        return [*super().command(), *(word for name, value in EAGER.items() for word in ("-X", f"{name}={value}"))]


class Seen(NamedTuple):
    """The contents of a directory as stock Kafka shows them."""

    features: dict[str, str]
    groups: list[list[str]]
    offsets: list[list[str]]
    share_offsets: list[list[str]]
    transactions: list[list[str]]

    @classmethod
    def by(cls, tools: Tools) -> Seen:
        return cls(
            levels(tools),
            listed_groups(tools),
            sorted(row[:4] for group in ("classic", "modern", "pending") for row in described(tools, group)),
            sharers(tools),
            sorted(tools.rows("transactions", "list")),
        )


def levels(tools: Tools) -> dict[str, str]:
    """The finalized level of each feature."""
    return {row[1]: row[7] for line in tools.ok("features", "describe").splitlines() if (row := line.split())}


def listed_groups(tools: Tools) -> list[list[str]]:
    """Name, type and protocol of each group but those that the console consumer makes for itself."""
    return sorted(row for row in tools.rows("groups", "--list") if not row[0].startswith("console-consumer"))


def described(tools: Tools, group: str) -> list[list[str]]:
    return tools.rows("consumer-groups", "--describe", "--group", group)


def sharers(tools: Tools) -> list[list[str]]:
    """The start offset of each partition of the share group."""
    return [row[:4] for row in tools.rows("share-groups", "--describe", "--group", "sharers", "--offsets")]


def shared(tools: Tools, count: int) -> list[str]:
    """The values that a member of the share group reads and accepts."""
    read = tools.ok("console-share-consumer", "--topic", "guarded", "--group", "sharers", "--max-messages", count)
    return read.splitlines()


def values(lines: list[str]) -> list[str]:
    return [line.split("\t")[1] for line in lines]


def transaction(bootstrap: str, transactional_id: str) -> confluent_kafka.Producer:
    """A producer with a record in an open transaction. It times out after 15 minutes, the longest that is allowed."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    producer = confluent_kafka.Producer({**settings, "transaction.timeout.ms": 900_000})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("ledger", key=transactional_id, value="v")
    producer.flush(TIMEOUT_S)
    return producer


def commit_in(producer: confluent_kafka.Producer, bootstrap: str, group: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    position = confluent_kafka.TopicPartition("guarded", 0, offset)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), TIMEOUT_S)
    consumer.close()


def read_committed(tools: Tools, count: int) -> list[str]:
    return [line.split("\t")[0] for line in tools.consume("ledger", count, "--isolation-level", "read_committed")]


def write_what_ottla_does_not_serve(tools: Tools) -> None:
    tools.create_topic("guarded", min_insync_replicas=1, retention_ms=-1)
    tools.create_topic("ledger", retention_ms=-1)
    default = ("--entity-type", "brokers", "--entity-default")
    tools.ok("configs", "--alter", *default, "--add-config", "min.insync.replicas=1")
    tools.produce("guarded", LINES)
    sharers = ("--entity-type", "groups", "--entity-name", "sharers")
    tools.ok("configs", "--alter", *sharers, "--add-config", "share.auto.offset.reset=earliest")
    transaction(tools.bootstrap, "committed").commit_transaction(TIMEOUT_S)
    tools.consume("guarded", 3, "--group", "classic")
    tools.ok("console-share-consumer", "--topic", "guarded", "--group", "sharers", "--max-messages", 2)
    for topic in INTERNAL:
        # The following records go into further segments, which the cleaner may touch.
        tools.ok(
            "configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "segment.ms=50"
        )
    tools.consume("guarded", 2, "--group", "classic")
    tools.consume("guarded", 7, "--group", "modern", *KIP_848)
    tools.consume("guarded", 8, "--group", "moving", *KIP_848)
    tools.consume("guarded", 2, "--group", "doomed", *KIP_848)
    tools.ok("console-share-consumer", "--topic", "guarded", "--group", "sharers", "--max-messages", 2)
    for i in range(3):
        transaction(tools.bootstrap, "committed").commit_transaction(TIMEOUT_S)
        aborted = transaction(tools.bootstrap, "aborted")
        commit_in(aborted, tools.bootstrap, "classic", 20 + i)
        aborted.abort_transaction(TIMEOUT_S)
    load = ("--num-records", 10, "--record-size", 10, "--throughput", -1)
    tools.ok(
        "producer-perf-test", "--topic", "ledger", *load, "--transactional-id", "java", "--transaction-duration-ms", 50
    )


class RoundTrip(NamedTuple):
    stock: kafka.StockKafka
    ottla: EagerOttla
    before: Seen
    tools: Tools


@pytest.fixture(scope="module")
def jvm() -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


@pytest.fixture(scope="module")
def trip(tmp_path_factory: pytest.TempPathFactory, jvm: None) -> Iterator[RoundTrip]:
    """Stock Kafka wrote and is stopped; a consumer of KIP-848 and a transaction were left open; Ottla runs."""
    directory = tmp_path_factory.mktemp("round-trip")
    stock = kafka.StockKafka(directory / "stock", overrides=STANDALONE, format_options=("--standalone",))
    with ExitStack() as stack:
        with stock:
            tools = Tools(stock.bootstrap)
            write_what_ottla_does_not_serve(tools)
            left_open = transaction(stock.bootstrap, "open")
            commit_in(left_open, stock.bootstrap, "pending", 4)
            crashed = tools.start("console-consumer", "--topic", "guarded", "--group", "crashed", *KIP_848)
            stack.callback(kafka.stop_process, crashed)
            wait_until(
                lambda: "Stable" in tools.run("consumer-groups", "--describe", "--group", "crashed", "--state").stdout,
                "group crashed is stable",
                TIMEOUT_S,
            )
            crashed.kill()
            crashed.wait(TIMEOUT_S)
            assert crashed.stdout is not None
            crashed.stdout.close()
            before = Seen.by(tools)
        ottla = EagerOttla(directory / "ottla", directory / "stock" / "node-1" / "server.properties")
        with ottla:
            yield RoundTrip(stock, ottla, before, Tools(ottla.bootstrap))
        ottla.assert_no_traceback()
    del left_open


def test_features_are_advertised_as_they_are_served(trip: RoundTrip) -> None:
    rows = [line.split() for line in trip.tools.ok("features", "describe").splitlines() if line]
    shown = {row[1]: (row[5], row[7]) for row in rows}
    assert shown.pop("metadata.version") == ("4.3-IV0", "4.3-IV0")
    assert shown.pop("transaction.version") == ("2", "2")
    assert shown.pop("group.version") == ("1", "1")
    assert shown.pop("share.version") == ("1", "1")
    assert shown.pop("eligible.leader.replicas.version") == ("1", "1")
    assert shown.pop("kraft.version") == ("1", "1")
    assert shown.pop("streams.version") == ("1", "1")
    assert not shown, "the highest supported level, and the finalized one"


def test_min_insync_replicas_follows_the_rules_of_eligible_leader_replicas(trip: RoundTrip) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "guarded")
    trip.tools.ok("configs", "--alter", *topic, "--add-config", "min.insync.replicas=1")
    default = ("--entity-type", "brokers", "--entity-default")
    refused = trip.tools.fails("configs", "--alter", *default, "--delete-config", "min.insync.replicas")
    assert "Cluster-level min.insync.replicas cannot be removed while ELR is enabled." in refused


def test_groups_of_every_kind_are_listed_and_offsets_of_consumer_groups_read(trip: RoundTrip) -> None:
    groups = {row[0]: row[1] for row in trip.tools.rows("groups", "--list")}
    kinds = {
        "classic": "Classic",
        "modern": "Consumer",
        "moving": "Consumer",
        "crashed": "Consumer",
        "sharers": "Share",
    }
    assert kinds.items() <= groups.items()
    (row,) = described(trip.tools, "modern")
    assert row[3:6] == ["7", "30", "23"]
    (row,) = described(trip.tools, "classic")
    assert row[3] == "5", "the aborted transactions did not move it"


def test_consumer_group_continues_and_a_share_group_refuses_classic_members(trip: RoundTrip) -> None:
    def consume(group: str, *options: str) -> str:
        wanted = ("--topic", "guarded", "--group", group, "--max-messages", 1, "--timeout-ms", 10_000, *options)
        done = trip.tools.run("console-consumer", *wanted)
        return done.stdout + done.stderr

    assert LINES[7].partition("\t")[2] in consume("modern", *KIP_848)
    (row,) = described(trip.tools, "modern")
    assert row[3] == "8"
    back = ("--reset-offsets", "--to-offset", 7, "--topic", "guarded", "--execute")
    trip.tools.ok("consumer-groups", "--group", "modern", *back)
    assert "supported protocols are incompatible" in consume("sharers")


def test_share_group_continues_where_it_was(trip: RoundTrip) -> None:
    assert shared(trip.tools, 2) == values(LINES[4:6])


def test_empty_consumer_group_goes_on_with_the_classic_protocol(trip: RoundTrip) -> None:
    assert trip.tools.consume("guarded", 5, "--group", "moving") == LINES[8:13]
    (row,) = described(trip.tools, "moving")
    assert row[3] == "13"


def test_empty_consumer_group_is_deleted(trip: RoundTrip) -> None:
    assert "was successful" in trip.tools.ok("consumer-groups", "--delete", "--group", "doomed")


def test_committed_records_are_read_up_to_the_open_transaction(trip: RoundTrip) -> None:
    committed = ["committed"] * 4 + ["null"] * 10
    assert read_committed(trip.tools, len(committed)) == committed


def test_transactions_of_stock_kafka_are_known(trip: RoundTrip) -> None:
    states = {row[0]: row[3] for row in trip.tools.rows("transactions", "list")}
    expected = {"committed": "CompleteCommit", "aborted": "CompleteAbort", "java": "CompleteCommit", "open": "Ongoing"}
    assert states == expected
    (row,) = trip.tools.rows("transactions", "describe", "--transactional-id", "open")
    assert row[4] == "Ongoing"
    assert "ledger-0" in row[-1]


def test_internal_topics_are_compacted_and_the_metadata_have_a_snapshot(trip: RoundTrip) -> None:
    checkpoint = trip.stock.data() / "cleaner-offset-checkpoint"

    def cleaned() -> bool:
        topics = {line.split()[0] for line in checkpoint.read_text().splitlines()[2:]} if checkpoint.exists() else set()
        return {"__consumer_offsets", "__transaction_state"} <= topics

    wait_until(cleaned, "the cleaner has compacted the internal topics", TIMEOUT_S)
    metadata = trip.stock.data() / "__cluster_metadata-0"
    wait_until(lambda: len([*metadata.glob("*.checkpoint")]) > 1, "the metadata have a snapshot", TIMEOUT_S)
    shown = trip.tools.ok("topics", "--describe", "--topic", "__share_group_state")
    assert "cleanup.policy=delete" in shown
    assert "retention.ms=-1" in shown


def test_stock_kafka_finds_everything_as_it_was(trip: RoundTrip) -> None:
    # Clients may have converted the one and deleted the other, and shared records; nothing else changes.
    listed = {row[0]: row for row in listed_groups(trip.tools)}
    (position,) = described(trip.tools, "moving")
    assert trip.ottla.stop() == 0
    with trip.stock as stock:
        tools = Tools(stock.bootstrap)
        groups = [listed["moving"] if row[0] == "moving" else row for row in trip.before.groups]
        groups = [row for row in groups if row[0] != "doomed" or "doomed" in listed]
        # Kafka lists no groups of partitions that it is still loading.
        wait_until(lambda: len(listed_groups(tools)) >= len(groups), "Kafka has loaded the groups", TIMEOUT_S)
        seen = Seen.by(tools)
        assert seen == trip.before._replace(groups=groups, share_offsets=seen.share_offsets)
        share_offset = int(seen.share_offsets[0][3])
        assert share_offset in (4, 6), "a member may have accepted two records on Ottla"
        assert tools.consume("guarded", 23, "--group", "modern", *KIP_848) == LINES[7:]
        (row,) = described(tools, "moving")
        assert row[3] == position[3]
        assert shared(tools, 3) == values(LINES[share_offset : share_offset + 3])
        # A new producer of the same id aborts the open transaction; what it committed to a group is void.
        transaction(stock.bootstrap, "open").commit_transaction(TIMEOUT_S)
        assert described(tools, "pending") == []
        assert read_committed(tools, 15) == ["committed"] * 4 + ["null"] * 10 + ["open"]
        load = ("--num-records", 10, "--record-size", 10, "--throughput", -1)
        tools.ok("producer-perf-test", "--topic", "ledger", *load, "--transactional-id", "java")
        assert len(read_committed(tools, 25)) == 25
    log = (stock.directory / "node-1" / "server.log").read_text()
    assert " ERROR " not in log
    assert "Exception" not in log


def test_stock_kafka_raises_the_features_of_a_directory_that_ottla_made(tmp_path: Path, jvm: None) -> None:
    stock = kafka.StockKafka(tmp_path, overrides=STOCK_PROPERTIES)
    ottla = OttlaProcess(tmp_path / "node-1", {**TEST_PROPERTIES, "node.id": 1, "offsets.topic.num.partitions": 8})
    with ottla:
        tools = Tools(ottla.bootstrap)
        tools.create_topic("guarded", min_insync_replicas=1)
        tools.produce("guarded", LINES)
        tools.consume("guarded", 5, "--group", "classic")
        stock.cluster_id = tools.ok("cluster", "cluster-id").removeprefix("Cluster ID: ").strip()
        assert ottla.stop() == 0
    with stock:
        tools = Tools(stock.bootstrap)
        assert tools.consume("guarded", 5, "--group", "classic") == LINES[5:10]
        tools.ok("features", "upgrade", "--release-version", "4.3")
        # The broker follows its controller; until it does, it refuses the consumer protocol.
        wait_until(lambda: levels(tools)["group.version"] == "1", "the broker has the levels", TIMEOUT_S)
        assert tools.consume("guarded", 7, "--group", "modern", *KIP_848) == LINES[:7]
        finalized = levels(tools)
        assert finalized["group.version"] == finalized["kraft.version"] == "1"
    with ottla:
        tools = Tools(ottla.bootstrap)
        assert tools.consume("guarded", 5, "--group", "classic") == LINES[10:15]
        (row,) = described(tools, "modern")
        assert row[3] == "7"
        # Kafka then takes the broker's shutdown for an unclean one, with eligible leader replicas on.
        ottla.kill()
    ottla.assert_no_traceback()
    with stock:
        tools = Tools(stock.bootstrap)
        assert levels(tools) == finalized
        assert tools.consume("guarded", 7, "--group", "modern", *KIP_848) == LINES[7:14]
        assert tools.consume("guarded", 5, "--group", "classic") == LINES[15:20]
