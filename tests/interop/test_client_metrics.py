"""kafka-client-metrics and kafka-configs: subscriptions to the metrics of clients, and Kafka's errors for bad ones."""

from __future__ import annotations

import pytest

from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.clients.support import wait_until
from tests.clients.test_answers_in_detail import Asking
from tests.conftest import RunningBroker

from .conftest import Tools

CLIENT_METRICS = 16
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
INVALID_CONFIG, INVALID_REQUEST = 40, 42

pytestmark = pytest.mark.both


def alter(broker: RunningBroker, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    """Change a subscription; returns the error and its message."""
    configs = [incremental.AlterableConfig(key, operation, value) for key, operation, value in changes]
    resource = incremental.AlterConfigsResource(CLIENT_METRICS, name, configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    with Asking(broker.bootstrap) as connection:
        (answer,) = connection.send_message(request, 1).responses
    return answer.error_code, answer.error_message


@pytest.mark.jvm
def test_subscription_is_created_described_listed_and_deleted(tools: Tools, name: str) -> None:
    prefixes, match = "org.apache.kafka.producer.,org.apache.kafka.consumer.", "client_id=a.*,client_software_name=x"
    words = ("--metrics", prefixes, "--interval", "30000", "--match", match)
    altered = tools.ok("client-metrics", "--alter", "--name", name, *words)
    assert altered.strip() == f"Altered client metrics config for {name}."

    def described() -> list[str]:
        return tools.ok("client-metrics", "--describe", "--name", name).splitlines()

    expected = [
        f"Client metrics configs for {name} are:",
        "  interval.ms=30000",
        f"  match={match}",
        f"  metrics={prefixes}",
    ]
    wait_until(lambda: described() == expected, "the subscription")
    assert name in tools.ok("client-metrics", "--list").splitlines()
    entity = ("--entity-type", "client-metrics", "--entity-name", name)
    shown = tools.ok("configs", "--describe", *entity).splitlines()
    assert shown[0] == f"Dynamic configs for client-metric {name} are:"
    assert sorted(line.strip() for line in shown[1:]) == [
        f"{text} sensitive=false synonyms={{DYNAMIC_CLIENT_METRICS_CONFIG:{text}}}"
        for text in (line.strip() for line in expected[1:])
    ]
    tools.ok("configs", "--alter", *entity, "--add-config", "interval.ms=1000")
    wait_until(lambda: "  interval.ms=1000" in described(), "the new interval")
    assert (
        tools.ok("client-metrics", "--delete", "--name", name).strip() == f"Deleted client metrics config for {name}."
    )
    wait_until(lambda: name not in tools.ok("client-metrics", "--list").splitlines(), "the deletion")


BAD_INTERVAL = "Invalid value {} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
NOT_A_LIST = "Can't APPEND to key interval.ms because its type is not LIST."


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([("nonsense", SET, "1")], (INVALID_REQUEST, "Unknown client metrics configuration: nonsense")),
        ([("interval.ms", SET, "99")], (INVALID_REQUEST, BAD_INTERVAL.format(99))),
        ([("interval.ms", SET, "3600001")], (INVALID_REQUEST, BAD_INTERVAL.format(3_600_001))),
        (
            [("interval.ms", SET, "soon")],
            (INVALID_CONFIG, "Invalid value soon for configuration interval.ms: Not a number of type INT"),
        ),
        ([("match", SET, "client_id")], (INVALID_CONFIG, "Illegal client matching pattern: client_id")),
        ([("match", SET, "client_id=")], (INVALID_CONFIG, "Illegal client matching pattern: client_id=")),
        ([("match", SET, "client_id=a=b")], (INVALID_CONFIG, "Illegal client matching pattern: client_id=a=b")),
        ([("match", SET, "colour=red")], (INVALID_CONFIG, "Illegal client matching pattern: colour=red")),
        ([("match", SET, "client_id=(")], (INVALID_CONFIG, "Illegal client matching pattern: client_id=(")),
        ([("metrics", SET, "a,,b")], (INVALID_CONFIG, "Configuration 'metrics' values must not be empty.")),
        ([("interval.ms", APPEND, "5")], (INVALID_CONFIG, NOT_A_LIST)),
        ([("metrics", SET, None)], (INVALID_REQUEST, "Null value not supported for : metrics")),
        ([("match", SET, "client_id=a.*,client_id=b,client_source_port=[0-9]+")], (0, None)),
        ([("match", SET, "client_id=a="), ("metrics", SET, "a,a")], (0, None)),
        ([("metrics", SET, ""), ("match", SET, ""), ("interval.ms", SET, " 100 ")], (0, None)),
    ],
)  # fmt: skip
def test_settings_of_a_subscription_are_validated(
    broker: RunningBroker, name: str, changes: list[tuple[str, int, str | None]], error: tuple[int, str | None]
) -> None:
    assert alter(broker, name, *changes) == error
    if not error[0]:
        assert alter(broker, name, *((each, DELETE, None) for each in ("metrics", "match", "interval.ms"))) == (0, None)


def test_subscription_needs_a_name(broker: RunningBroker) -> None:
    assert alter(broker, "", ("interval.ms", SET, "100"))[0] == INVALID_REQUEST


@pytest.mark.parametrize(("version", "kinds"), [(0, []), (1, [CLIENT_METRICS]), (1, [])])
def test_subscriptions_are_listed(broker: RunningBroker, name: str, version: int, kinds: list[int]) -> None:
    assert alter(broker, name, ("metrics", SET, "*")) == (0, None)

    def listed() -> bool:
        with Asking(broker.bootstrap) as connection:
            answer = connection.send_message(ListConfigResourcesRequest(resource_types=kinds), version)
        found = [each.resource_type for each in answer.config_resources if each.resource_name == name]
        return answer.error_code == 0 and found == [CLIENT_METRICS]

    wait_until(listed, "the subscription")
    assert alter(broker, name, ("metrics", DELETE, None)) == (0, None)
