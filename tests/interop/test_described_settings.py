"""DescribeConfigs, field by field: values, sources, synonyms and types equal stock Kafka's, set alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.protocol.messages import create_topics
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.clients.support import wait_until
from tests.clients.test_answers_in_detail import Asking
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

SET, DELETE = 0, 1
TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
RESOURCES = {"topic": (TOPIC, "t"), "broker": (BROKER, "1"), "all brokers": (BROKER, ""), "group": (GROUP, "g")}

# The settings in the files of both brokers; the second starts with other units of the same.
FILES: list[dict[str, str]] = [
    {
        "log.flush.scheduler.interval.ms": "9000",
        "log.retention.hours": "2",
        "log.retention.minutes": "7",
        "log.roll.hours": "3",
        "log.roll.jitter.hours": "1",
        "num.io.threads": "4",
    },
    {
        "compression.type": "gzip",
        "log.flush.interval.ms": "77",
        "log.flush.scheduler.interval.ms": "9000",
        "log.retention.hours": "2",
        "log.retention.minutes": "7",
        "log.retention.ms": "5000",
        "log.roll.hours": "3",
        "log.roll.jitter.ms": "4",
        "log.roll.ms": "9000",
    },
]
CHANGES: list[tuple[str, str, str]] = [
    ("topic", "cleanup.policy", "compact , delete"),
    ("topic", "min.cleanable.dirty.ratio", " 0.25d "),
    ("topic", "retention.ms", "+11000"),
    ("topic", "segment.ms", "12000"),
    ("all brokers", "log.retention.ms", "8000"),
    ("all brokers", "log.roll.ms", "10000"),
    ("all brokers", "message.max.bytes", " +2000000 "),
    ("all brokers", "num.io.threads", "8"),
    ("broker", "log.cleaner.io.max.bytes.per.second", "1e7"),
    ("broker", "message.max.bytes", "3000000"),
    ("broker", "sasl.jaas.config", "a secret"),
    ("group", "consumer.session.timeout.ms", " 50000"),
    ("group", "share.auto.offset.reset", "earliest"),
]

# They depend on the machine, or are set apart for one node, or their defaults differ (configuration.md).
OF_THE_BROKER = {
    "advertised.listeners", "controller.listener.names", "controller.quorum.voters", "group.initial.rebalance.delay.ms",
    "inter.broker.listener.name", "listener.security.protocol.map", "listeners", "log.dirs", "node.id",
    "offsets.topic.num.partitions", "offsets.topic.replication.factor", "process.roles",
    "share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.min.isr", "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
}  # fmt: skip
# Stock sets it for all brokers as part of a feature (ELR) that Ottla does not have.
OF_FEATURES = {"min.insync.replicas"}
# Stock forgets the file's hours when the milliseconds are changed dynamically, and shows the default.
FORGOTTEN = {"log.retention.hours", "log.retention.minutes", "log.roll.hours", "log.roll.jitter.hours"}

Described = dict[str, tuple[object, ...]]


def _fields(entry: DescribeConfigsResourceResult) -> tuple[object, ...]:
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]
    value = entry.value, entry.config_source, entry.is_sensitive, entry.read_only, entry.config_type
    return (*value, synonyms, entry.documentation is None)


class Describing(Asking):
    """A connection that changes and describes settings."""

    def create_topic(self, name: str) -> None:
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        assert [each.error_code for each in self.send_message(request, 5).topics] == [0]
        wait_until(lambda: len(self.describe(TOPIC, name)) > 20, "the new topic")

    def describe(self, kind: int, name: str, *, in_full: bool = True) -> Described:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=in_full, include_documentation=in_full)
        return {entry.name: _fields(entry) for entry in self.send_message(request, 4).results[0].configs}

    def change(self, kind: int, name: str, setting: str, text: str | None) -> None:
        operation = DELETE if text is None else SET
        change = AlterConfigsResource(kind, name, [AlterableConfig(setting, operation, text)])
        (answer,) = self.send_message(IncrementalAlterConfigsRequest(resources=[change]), 1).responses
        assert (answer.error_code, answer.error_message) == (0, None), setting


def _differences(stock: Described, ours: Described, known: set[str]) -> dict[str, object]:
    """Settings whose fields differ, with both. Ottla also shows settings that stock hides as internal."""
    assert stock.keys() - known <= ours.keys()
    return {name: (stock[name], ours[name]) for name in stock.keys() - known if stock[name] != ours[name]}


@pytest.fixture(params=FILES, ids=["coarse units", "milliseconds"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a stock broker and of Ottla with the same file."""
    file: Mapping[str, str] = request.param
    ours = OttlaProcess(tmp_path / "ottla", file)
    with StockKafka(tmp_path / "kafka", overrides=file) as stock:
        ours.start()
        yield stock.bootstrap, ours.bootstrap
        assert ours.stop() == 0


def test_settings_are_described_as_by_stock(both: tuple[str, str]) -> None:
    with Describing(both[0]) as stock, Describing(both[1]) as ours:
        for connection in (stock, ours):
            connection.create_topic("t")
        known = {"topic": OF_FEATURES, "broker": OF_THE_BROKER | OF_FEATURES, "all brokers": OF_FEATURES}
        for what, (kind, name) in RESOURCES.items():
            for in_full in (True, False):
                found = [each.describe(kind, name, in_full=in_full) for each in (stock, ours)]
                assert _differences(*found, known.get(what, set())) == {}, what

        for what, setting, text in CHANGES:
            for connection in (stock, ours):
                connection.change(*RESOURCES[what], setting, text)
        # Stock applies changes a moment after it answers, in the order in which they were made.
        for connection in (stock, ours):
            wait_until(
                lambda connection=connection: (
                    connection.describe(GROUP, "g")["share.auto.offset.reset"][0] == "earliest"
                ),
                "the last change",
            )
            wait_until(
                lambda connection=connection: connection.describe(BROKER, "1")["sasl.jaas.config"][1] == 2,
                "the last change of the broker",
            )
        known["broker"] = known["broker"] | FORGOTTEN
        for what, (kind, name) in RESOURCES.items():
            found = [each.describe(kind, name) for each in (stock, ours)]
            assert _differences(*found, known.get(what, set())) == {}, what


def test_log_levels_are_described_as_by_stock(both: tuple[str, str]) -> None:
    with Describing(both[0]) as stock, Describing(both[1]) as ours:
        for in_full in (True, False):
            shapes = [
                {str(fields[1:]) for fields in each.describe(BROKER_LOGGER, "1", in_full=in_full).values()}
                for each in (stock, ours)
            ]
            assert shapes[0] == shapes[1]
            assert len(shapes[0]) == 1
