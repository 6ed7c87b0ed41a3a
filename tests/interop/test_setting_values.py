"""Every setting with good and bad values: Ottla accepts and refuses what stock Kafka does, in the same words.

Stock's own classes judge files of settings, topics and groups (`Oracle`); running brokers judge changes. The tables
below have the intended differences, each with its reason; docs/compatibility.md says the same to users.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pytest

from ottla.common.errors import KafkaError
from ottla.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    ServerSetting,
    check_group,
    check_group_together,
    check_topic,
    check_topic_together,
    resolve_group,
    resolve_topic,
)
from ottla.protocol.messages import create_topics, describe_cluster
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.clients.support import unique, wait_until
from tests.clients.test_answers_in_detail import Asking
from tests.conftest import KAFKA, OTTLA, Brokers

from .setting_values import Oracle, attempts

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

TOPIC, BROKER, GROUP = 2, 4, 32
SET = 0

# The settings of the oracle's broker beside the settings in question.
LEAST = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "log.dirs": "/tmp/config-oracle",
}

# Stock knows these only where they are changed: a file may say anything.
DYNAMIC_ONLY = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
# Ottla refuses more: the setting, and why.
STRICTER = {
    "authorizer.class.name": "stock loads the Java class later; Ottla has one authorizer, and those in Python",
    "group.max.session.timeout.ms": "below group.min.session.timeout.ms no classic member could join",
    "group.min.session.timeout.ms": "above group.max.session.timeout.ms no classic member could join",
    "log.flush.interval.ms": "stock takes a negative interval dynamically, and does not start with it in its file",
    "replica.selector.class": "stock loads the Java class later; Ottla has one selector",
}
# Ottla accepts more.
WEAKER = {
    "controller.quorum.voters": "one node is its own quorum by default",
    "metric.reporters": "Java classes, which are not loaded",
}
# Both refuse, in other words.
OTHER_WORDS = {
    "log.cleaner.threads": "stock divides by zero",
    "log.flush.interval.ms": "stock names the topic's setting",
    "log.flush.scheduler.interval.ms": "stock names the topic's setting",
    "max.connections.per.ip.overrides": "stock shows its parser's exception",
    "node.id": "stock names its synonym",
    **dict.fromkeys(
        (
            "group.consumer.assignors",
            "group.coordinator.rebalance.protocols",
            "group.share.assignors",
            "offsets.topic.compression.codec",
            "share.coordinator.state.topic.compression.codec",
        ),
        "stock does not name the setting",
    ),
    "process.roles": "one node has both roles",
    **dict.fromkeys(
        (
            "advertised.listeners",
            "controller.listener.names",
            "controller.quorum.bootstrap.servers",
            "controller.quorum.voters",
            "early.start.listeners",
            "inter.broker.listener.name",
            "listener.security.protocol.map",
            "listeners",
            "security.inter.broker.protocol",
        ),
        "Ottla's messages about listeners name the setting and its form",
    ),
}


class Attempt(NamedTuple):
    """A setting and a value tried for it, and what each broker said; None where it was accepted."""

    setting: ServerSetting
    text: str
    stock: str | None
    ours: str | None


def _differs(attempt: Attempt) -> str | None:
    """Describe a difference that should not exist, as a line."""
    setting, text, stock, ours = attempt
    name, shown = setting.name, f"{setting.name}={text!r}"
    if stock is None and ours is not None:
        if name in STRICTER or setting.status == "refused" or (setting.type == "double" and "NaN" in text):
            return None
        return f"{shown}: stock accepts it, Ottla says {ours!r}"
    if stock is not None and ours is None:
        # Whether a class exists is not known without Java.
        return None if name in WEAKER or setting.type == "class" else f"{shown}: Ottla accepts it, stock says {stock!r}"
    if stock == ours or name in OTHER_WORDS or setting.status == "refused" or setting.type == "class":
        return None
    if setting.type == "double" and "NaN" in text:
        return None
    return f"{shown}: stock says {stock!r}, Ottla {ours!r}"


def _check(attempts_made: Iterable[Attempt], at_least: int) -> None:
    made = list(attempts_made)
    assert len(made) > at_least
    assert [line for line in map(_differs, made) if line] == []


def _refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except KafkaError as error:
        return error.message
    except ConfigError as error:
        return str(error) if len(str(error).splitlines()) == 1 else f"more than one line: {error!r}"
    return None


def _of_start(settings: Mapping[str, str]) -> str | None:
    return _refusal(lambda: BrokerConfig({**LEAST, **settings}))


def _of_topic(settings: Mapping[str, str]) -> str | None:
    def check() -> None:
        for name, text in settings.items():
            check_topic(name, text)
        check_topic_together("orders", resolve_topic(settings, {}, {}, BrokerConfig({})))

    return _refusal(check)


def _of_group(settings: Mapping[str, str]) -> str | None:
    def check() -> None:
        for name, text in settings.items():
            check_group(name, text)
        check_group_together(resolve_group(settings, {}, {}, BrokerConfig({})), BrokerConfig({}))

    return _refusal(check)


def _of_kafka(table: dict[str, ServerSetting]) -> dict[str, ServerSetting]:
    """Omit the settings of Confluent Server and of Ottla, which stock Kafka does not have."""
    return {name: row for name, row in table.items() if not name.startswith(("confluent.", "ottla."))}


JUDGES: dict[str, tuple[dict[str, ServerSetting], Callable[[Mapping[str, str]], str | None], int]] = {
    "static": (_of_kafka(BROKER_SETTINGS), _of_start, 19_000),
    "topic": (_of_kafka(TOPIC_SETTINGS), _of_topic, 1_900),
    "group": (GROUP_SETTINGS, _of_group, 900),
}


@pytest.mark.parametrize("kind", JUDGES)
def test_every_setting_accepts_and_refuses_the_values_that_stock_does(kind: str) -> None:
    table, judge, count = JUDGES[kind]
    oracle = Oracle()
    tried = [(setting, text) for setting in table.values() for text in attempts(setting)]
    tried = [(s, text) for s, text in tried if kind != "static" or s.name not in DYNAMIC_ONLY]
    for setting, text in tried:
        oracle.ask(kind, {setting.name: text})
    _check(
        (
            Attempt(setting, text, stock, judge({setting.name: text}))
            for (setting, text), stock in zip(tried, oracle.answers(), strict=True)
        ),
        count,
    )


TOGETHER: list[tuple[str, dict[str, str]]] = [
    ("topic", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}),
    ("topic", {"local.retention.ms": "10", "retention.ms": "9"}),
    ("topic", {"local.retention.bytes": "10", "retention.bytes": "9"}),
    ("topic", {"remote.storage.enable": "true", "cleanup.policy": "compact"}),
    ("topic", {"remote.log.copy.disable": "true", "remote.log.delete.on.disable": "true"}),
    ("topic", {"segment.jitter.ms": "100", "segment.ms": "1"}),
    ("topic", {"no.such.setting": "1", "retention.ms": "x"}),
    ("group", {"no.such.setting": "1"}),
    ("group", {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15001"}),
    ("static", {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "9"}),
    ("static", {"log.cleaner.dedupe.buffer.size": "3000000", "log.cleaner.threads": "2"}),
    ("static", {"log.cleaner.dedupe.buffer.size": "2097153", "log.cleaner.threads": "2"}),
    ("static", {"log.retention.hours": "0", "log.retention.minutes": "1"}),
    ("static", {"log.retention.hours": "1", "log.retention.minutes": "0"}),
    ("static", {"log.retention.ms": "-5"}),
    ("static", {"log.retention.minutes": "-5"}),
    ("static", {"broker.id": "1"}),
    ("static", {"broker.id": "7"}),
    ("static", {"queued.max.request.bytes": "100", "socket.request.max.bytes": "101"}),
    ("static", {"queued.max.request.bytes": "100", "socket.request.max.bytes": "100"}),
    ("static", {"connections.max.idle.ms": "100", "connection.failed.authentication.delay.ms": "99"}),
    ("static", {"connections.max.idle.ms": "100", "connection.failed.authentication.delay.ms": "100"}),
    ("static", {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:3"}),
    ("static", {"max.connections.per.ip.overrides": "x:-3, y : +7,::1:5"}),
    ("static", {"max.connections.per.ip.overrides": "x:3,b@d:3"}),
    ("static", {"max.connections.per.ip.overrides": "[::1]:3"}),
    ("static", {"broker.heartbeat.interval.ms": "9000", "broker.session.timeout.ms": "9"}),
    ("static", {"log.local.retention.ms": "10", "log.retention.ms": "9"}),
    ("static", {"cordoned.log.dirs": "*"}),
    ("static", {"cordoned.log.dirs": "*,a"}),
    ("static", {"cordoned.log.dirs": "/tmp/config-oracle"}),
    ("static", {"group.share.assignors": "simple,simple"}),
    ("static", {"group.consumer.max.session.timeout.ms": "8", "group.consumer.min.session.timeout.ms": "9"}),
    *(
        ("static", {
            f"group.{kind}.session.timeout.ms": "50000",
            f"group.{kind}.heartbeat.interval.ms": "50000",
            f"group.{kind}.max.heartbeat.interval.ms": "55000",
        })
        for kind in ("consumer", "share", "streams")
    ),
]  # fmt: skip


def test_settings_that_contradict_each_other_are_refused_as_by_stock() -> None:
    oracle = Oracle()
    for kind, settings in TOGETHER:
        oracle.ask(kind, settings)
    stock = oracle.answers()
    assert [JUDGES[kind][1](settings) for kind, settings in TOGETHER] == stock
    assert stock.count(None) > 10
    assert len(stock) - stock.count(None) > 15


NODES = {
    "listeners": "INSIDE://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
}
MECHANISMS: list[dict[str, str]] = [
    {},
    {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
    {"sasl.mechanism.inter.broker.protocol": "scram-sha-512"},
    {"sasl.mechanism.inter.broker.protocol": "GSSAPI"},
    {"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.enabled.mechanisms": "SCRAM-SHA-512, PLAIN"},
    {"sasl.mechanism.inter.broker.protocol": "PLAIN", "listener.name.inside.sasl.enabled.mechanisms": "PLAIN"},
    {"listener.name.inside.sasl.enabled.mechanisms": "PLAIN"},
    {"sasl.mechanism.controller.protocol": "PLAIN"},
    {"listener.name.controller.sasl.enabled.mechanisms": "PLAIN"},
]


def test_mechanisms_between_nodes_are_refused_as_by_stock() -> None:
    oracle = Oracle()
    for change in MECHANISMS:
        oracle.ask("static", {**NODES, **change})
    stock = oracle.answers()
    assert [_of_start({**NODES, **change}) is None for change in MECHANISMS] == [each is None for each in stock]
    assert stock.count(None) == 5


# -- changes while the broker runs -----------------------------------------------------------------------------


class Changing(Asking):
    """A connection that tries changes without making them."""

    def node_id(self) -> str:
        return str(self.send_message(describe_cluster.DescribeClusterRequest(), 0).controller_id)

    def create_topic(self, name: str) -> None:
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        assert [each.error_code for each in self.send_message(request, 5).topics] == [0]

    def try_change(self, kind: int, resource: str, name: str, text: str) -> tuple[int, str | None]:
        """Error code and message of a change that is only validated."""
        change = AlterConfigsResource(kind, resource, [AlterableConfig(name, SET, text)])
        (answer,) = self.send_message(
            IncrementalAlterConfigsRequest(resources=[change], validate_only=True), 1
        ).responses
        return answer.error_code, answer.error_message


def _changes(setting: ServerSetting, kind: int, *, cluster_wide: bool) -> list[str]:
    values = attempts(setting)
    # Read-only settings are refused by their name; settings that all brokers share are judged as settings of one
    # broker.
    return values[:3] if kind == BROKER and (setting.update == "read-only" or cluster_wide) else values


def test_running_broker_refuses_the_changes_that_stock_refuses(brokers: Brokers) -> None:
    topic = unique("values")
    answers: dict[str, dict[tuple[int, bool, str, str], tuple[int, str | None]]] = defaultdict(dict)
    for broker in (KAFKA, OTTLA):
        with Changing(brokers.get(broker).bootstrap) as connection:
            connection.create_topic(topic)
            wait_until(lambda: connection.try_change(TOPIC, topic, "retention.ms", "1")[0] == 0, "the new topic")
            for kind, resource, table in (
                (TOPIC, topic, _of_kafka(TOPIC_SETTINGS)),
                (GROUP, "group", GROUP_SETTINGS),
                (BROKER, connection.node_id(), _of_kafka(BROKER_SETTINGS)),
                (BROKER, "", _of_kafka(BROKER_SETTINGS)),
            ):
                for setting in table.values():
                    for text in _changes(setting, kind, cluster_wide=not resource):
                        key = (kind, not resource, setting.name, text)
                        answers[broker][key] = connection.try_change(kind, resource, setting.name, text)
    tables: dict[int, dict[str, ServerSetting]] = {
        TOPIC: TOPIC_SETTINGS,
        GROUP: GROUP_SETTINGS,
        BROKER: BROKER_SETTINGS,
    }
    _check(
        (
            Attempt(tables[kind][name], text, _as_text(answers[KAFKA][key]), _as_text(answers[OTTLA][key]))
            for key in answers[KAFKA]
            for kind, _, name, text in [key]
        ),
        9_000,
    )


def _as_text(answer: tuple[int, str | None]) -> str | None:
    return f"{answer[0]}: {answer[1]}" if answer[0] else None
