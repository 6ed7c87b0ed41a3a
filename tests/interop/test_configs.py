"""kafka-configs: settings of topics, brokers and groups with their sources, changed and taken back."""

from __future__ import annotations

import pytest

from tests.clients.support import wait_until

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]


def described(tools: Tools, *entity: str) -> dict[str, str]:
    """Setting -> value and synonyms, as kafka-configs prints them."""
    lines = tools.ok("configs", "--describe", *entity).splitlines()[1:]
    return {name: rest for name, _, rest in (line.strip().partition("=") for line in lines)}


def comes_to(tools: Tools, entity: tuple[str, ...], name: str, start: str) -> None:
    """A broker of stock Kafka applies its settings a moment after they were answered: wait for one that begins so."""
    wait_until(lambda: described(tools, *entity).get(name, "").startswith(start), f"{name}={start}")


def test_topic_setting_overrides_and_comes_off_again(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    topic = ("--entity-type", "topics", "--entity-name", name)
    tools.ok("configs", "--alter", *topic, "--add-config", "retention.ms=12345,max.message.bytes=2000")
    settings = described(tools, *topic)
    assert settings["retention.ms"].startswith(
        "12345 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=12345"
    )
    assert settings["max.message.bytes"] == (
        "2000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}"
    )
    tools.ok("configs", "--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms" not in described(tools, *topic)
    assert "max.message.bytes" in described(tools, *topic)


def test_list_settings_are_appended_to_and_subtracted_from(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    topic = ("--entity-type", "topics", "--entity-name", name)
    tools.ok("configs", "--alter", *topic, "--add-config", "cleanup.policy=[compact,delete]")
    assert described(tools, *topic)["cleanup.policy"].startswith("compact,delete ")


def test_every_topic_setting_is_shown_with_its_default(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    settings = described(tools, "--all", "--entity-type", "topics", "--entity-name", name)
    # The settings that Kafka 4.3 shows, less the tiered-storage and throttling ones.
    assert {
        "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type",
        "compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
        "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms", "min.insync.replicas", "preallocate", "retention.bytes", "retention.ms",
        "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms", "unclean.leader.election.enable",
    } <= set(settings)  # fmt: skip
    assert settings["segment.bytes"] == (
        "1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}"
    )
    assert settings["compression.type"].startswith("producer ")


@pytest.mark.parametrize("setting", ["nonsense=1", "retention.ms=soon", "cleanup.policy=shred", "max.message.bytes=-5"])
def test_bad_topic_setting_is_refused(tools: Tools, name: str, setting: str) -> None:
    tools.create_topic(name)
    topic = ("--entity-type", "topics", "--entity-name", name)
    refused = tools.fails("configs", "--alter", *topic, "--add-config", setting)
    assert "InvalidConfigurationException" in refused
    assert setting.partition("=")[0] not in described(tools, *topic)


def test_settings_of_an_unknown_topic(tools: Tools, name: str) -> None:
    topic = ("--entity-type", "topics", "--entity-name", name)
    assert "doesn't exist" in tools.ok("configs", "--describe", *topic)
    assert "UnknownTopicOrPartition" in tools.fails("configs", "--alter", *topic, "--add-config", "retention.ms=1000")


def test_broker_setting_is_changed_while_it_runs(tools: Tools, node_id: str) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", node_id)
    try:
        tools.ok("configs", "--alter", *broker, "--add-config", "log.cleaner.backoff.ms=16000")
        expected = (
            "16000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=16000, "
            "DEFAULT_CONFIG:log.cleaner.backoff.ms=15000}"
        )
        comes_to(tools, broker, "log.cleaner.backoff.ms", expected)
    finally:
        tools.ok("configs", "--alter", *broker, "--delete-config", "log.cleaner.backoff.ms")
    wait_until(lambda: "log.cleaner.backoff.ms" not in described(tools, *broker), "the setting comes off")


def test_default_of_all_brokers_reaches_topics(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    brokers = ("--entity-type", "brokers", "--entity-default")
    try:
        tools.ok("configs", "--alter", *brokers, "--add-config", "log.index.interval.bytes=8192")
        comes_to(tools, brokers, "log.index.interval.bytes", "8192 ")
        expected = "8192 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.index.interval.bytes=8192"
        comes_to(tools, ("--all", "--entity-type", "topics", "--entity-name", name), "index.interval.bytes", expected)
    finally:
        tools.ok("configs", "--alter", *brokers, "--delete-config", "log.index.interval.bytes")


def test_every_broker_setting_is_shown(tools: Tools, node_id: str) -> None:
    settings = described(tools, "--all", "--entity-type", "brokers", "--entity-name", node_id)
    assert settings["node.id"].startswith(f"{node_id} ")
    assert settings["num.partitions"].startswith("1 ")
    assert {"listeners", "log.dirs", "log.retention.hours", "message.max.bytes"} <= set(settings)


def test_fixed_broker_setting_is_refused(tools: Tools, node_id: str) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", node_id)
    refused = tools.fails("configs", "--alter", *broker, "--add-config", "broker.id=3")
    assert "Cannot update these configs dynamically" in refused


def test_group_has_settings(tools: Tools, name: str) -> None:
    group = ("--entity-type", "groups", "--entity-name", name)
    tools.ok("configs", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert described(tools, *group)["consumer.session.timeout.ms"].startswith("50000 ")
    assert "InvalidConfigurationException" in tools.fails("configs", "--alter", *group, "--add-config", "nonsense=1")
    tools.ok("configs", "--alter", *group, "--delete-config", "consumer.session.timeout.ms")
