"""Error messages that scripts match: names of topics and resources, lists of settings, log levels.

The texts are stock Kafka's; each test runs on both brokers. Values of settings are compared in
`tests/interop/test_setting_values.py`.
"""

from __future__ import annotations

import pytest

from ottla.protocol.messages import alter_configs, create_topics, describe_cluster, describe_configs
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conftest import RunningBroker

from .test_answers_in_detail import Asking

pytestmark = pytest.mark.both

INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST = 17, 40, 42
TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OTHER_CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
LONG = "a" * 250
NO_LEVEL = "as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"

Answer = tuple[int, str | None]
Change = tuple[str, int, str | None]


def change(broker: RunningBroker, kind: int, resource: str, *changes: Change) -> Answer:
    """Return error code and message of a validate-only IncrementalAlterConfigs. NODE and OTHER stand for broker ids."""
    with Asking(broker.bootstrap) as connection:
        name = resource.replace("NODE", node_id(connection)).replace("OTHER", "77")
        what = AlterConfigsResource(kind, name, [AlterableConfig(*each) for each in changes])
        (answer,) = connection.send_message(IncrementalAlterConfigsRequest([what], validate_only=True), 1).responses
        return answer.error_code, _without_node(answer.error_message, connection)


def replace_all(broker: RunningBroker, kind: int, resource: str, *settings: tuple[str, str | None]) -> Answer:
    """Return error code and message of a validate-only AlterConfigs."""
    with Asking(broker.bootstrap) as connection:
        configs = [alter_configs.AlterableConfig(name=name, value=value) for name, value in settings]
        what = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=configs)
        request = alter_configs.AlterConfigsRequest(resources=[what], validate_only=True)
        (answer,) = connection.send_message(request, 2).responses
        return answer.error_code, answer.error_message


def describe(broker: RunningBroker, kind: int, resource: str) -> Answer:
    """Return error code and message of DescribeConfigs."""
    with Asking(broker.bootstrap) as connection:
        name = resource.replace("NODE", node_id(connection)).replace("OTHER", "77")
        what = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        (answer,) = connection.send_message(describe_configs.DescribeConfigsRequest(resources=[what]), 4).results
        return answer.error_code, _without_node(answer.error_message, connection)


def node_id(connection: Asking) -> str:
    return str(connection.send_message(describe_cluster.DescribeClusterRequest(), 0).controller_id)


def _without_node(message: str | None, connection: Asking) -> str | None:
    node = node_id(connection)
    return message and message.replace(f"xpected {node}", "xpected NODE")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        (LONG, f"the length of '{LONG}' is longer than the max allowed length 249"),
        ("a b", f"'a b' {OTHER_CHARACTERS}"),
        ("\u00e4", f"'\u00e4' {OTHER_CHARACTERS}"),
        ("it's", f"'it's' {OTHER_CHARACTERS}"),
        ("a\x00b", f"'a\x00b' {OTHER_CHARACTERS}"),
    ],
    ids=["empty", "dot", "dots", "long", "blank", "umlaut", "quote", "null"],
)
def test_invalid_topic_name_is_rejected_with_kafkas_message(broker: RunningBroker, name: str, problem: str) -> None:
    topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)
    with Asking(broker.bootstrap) as connection:
        (created,) = connection.send_message(request, 5).topics
    expected = INVALID_TOPIC, f"Topic name is invalid: {problem}"
    assert (created.error_code, created.error_message) == expected
    assert describe(broker, TOPIC, name) == expected
    if name:
        assert change(broker, TOPIC, name, ("retention.ms", SET, "1")) == expected
        assert replace_all(broker, TOPIC, name, ("retention.ms", "1")) == expected


@pytest.mark.parametrize(
    ("kind", "resource", "changes", "expected"),
    [
        (TOPIC, "", [("retention.ms", SET, "1")], (INVALID_REQUEST, "Default topic resources are not allowed.")),
        (GROUP, "", [("share.session.timeout.ms", SET, "1")],
         (INVALID_REQUEST, "Default group resources are not allowed.")),
        (TOPIC, "t", [("a", SET, None), ("b", SET, None)],
         (INVALID_REQUEST, "Null value not supported for : a, b")),
        (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
         (INVALID_REQUEST, "Error due to duplicate config keys")),
        (TOPIC, "t", [("retention.ms", SET, "x"), ("nonsense", SET, "1")],
         (INVALID_CONFIG, "Unknown topic config name: nonsense")),
        (TOPIC, "t", [("retention.ms", APPEND, "1")],
         (INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST.")),
        (BROKER, "", [("message.max.bytes", APPEND, "1")],
         (INVALID_CONFIG, "Config value append is not allowed for config key: message.max.bytes")),
        (BROKER, "NODE", [("message.max.bytes", SUBTRACT, "1")],
         (INVALID_CONFIG, "Config value subtract is not allowed for config key: message.max.bytes")),
        (BROKER, "", [("nonsense", APPEND, "1")], (INVALID_CONFIG, "Unknown config name: nonsense")),
        (BROKER, "", [("message.max.bytes", 7, "1")], (INVALID_REQUEST, "Unknown operations type 7")),
        (BROKER, "x", [("message.max.bytes", SET, "1")],
         (INVALID_REQUEST, "Node id must be an integer, but it is: x")),
        (BROKER, "OTHER", [("message.max.bytes", SET, "1")],
         (INVALID_REQUEST, "Unexpected broker id, expected NODE, but received 77")),
        (BROKER_LOGGER, "x", [("root", SET, "WARN")], (INVALID_REQUEST, "Node id must be an integer, but it is: x")),
        (BROKER_LOGGER, "OTHER", [("root", SET, "WARN")],
         (INVALID_REQUEST, "Unexpected node id. Expected NODE, but received 77")),
        (BROKER_LOGGER, "NODE", [("no.such", SET, "WARN")], (INVALID_CONFIG, "Logger no.such does not exist!")),
        (BROKER_LOGGER, "NODE", [("root", SET, "LOUD")],
         (INVALID_CONFIG, f"Cannot set the log level of root to LOUD {NO_LEVEL}")),
        (BROKER_LOGGER, "NODE", [("root", APPEND, "WARN")],
         (INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource")),
        (BROKER_LOGGER, "NODE", [("no.such", SUBTRACT, "WARN")],
         (INVALID_REQUEST, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource")),
        (99, "x", [("retention.ms", APPEND, "1")], (INVALID_REQUEST, "Unknown resource type 99")),
    ],
)  # fmt: skip
def test_invalid_config_change_is_rejected_with_kafkas_message(
    broker: RunningBroker, kind: int, resource: str, changes: list[Change], expected: Answer
) -> None:
    assert change(broker, kind, resource, *changes) == expected


@pytest.mark.parametrize(
    ("kind", "resource", "message"),
    [
        (BROKER, "x", "Broker id must be an integer, but it is: x"),
        (BROKER, "OTHER", "Unexpected broker id, expected NODE or empty string, but received 77"),
        (BROKER_LOGGER, "", "Broker id must not be empty"),
        (BROKER_LOGGER, "x", "Broker id must be an integer, but it is: x"),
        (BROKER_LOGGER, "OTHER", "Unexpected broker id, expected NODE but received 77"),
        (GROUP, "", "Group name must not be empty"),
    ],
)
def test_invalid_describe_configs_is_rejected_with_kafkas_message(
    broker: RunningBroker, kind: int, resource: str, message: str
) -> None:
    assert describe(broker, kind, resource) == (INVALID_REQUEST, message)


def test_invalid_alter_configs_is_rejected_with_kafkas_message(broker: RunningBroker) -> None:
    nulls = replace_all(broker, TOPIC, "t", ("a", None), ("b", None))
    assert nulls == (INVALID_REQUEST, "Null value not supported for : a, b")
    assert replace_all(broker, BROKER_LOGGER, "1", ("root", "WARN")) == (INVALID_REQUEST, "Unknown resource type 8")
