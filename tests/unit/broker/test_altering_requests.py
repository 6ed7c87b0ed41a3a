"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs: the parts that the broker handles, not the controller."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.common.errors import ErrorCode
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC
from ottla.protocol.messages import alter_configs as legacy
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from .harness import BrokerHarness

SET, DELETE, APPEND = 0, 1, 2
LOGGER = "ottla.broker.auto_topic_creation"


@pytest.fixture(autouse=True)
def level_as_before() -> Iterator[None]:
    logger = logging.getLogger(LOGGER)
    before = logger.level
    yield
    logger.setLevel(before)


def change(harness: BrokerHarness, *resources: tuple[int, str, list[tuple[str, int, str | None]]]) -> list[int]:
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[incremental.AlterableConfig(key, operation, value) for key, operation, value in configs],
            )
            for kind, name, configs in resources
        ]
    )
    answers = {(row.resource_type, row.resource_name): row.error_code for row in harness.ask(request).responses}
    return [answers[kind, name] for kind, name, _ in resources]


def replace(harness: BrokerHarness, kind: int, name: str, **configs: str) -> int:
    settings = [legacy.AlterableConfig(key.replace("_", "."), value) for key, value in configs.items()]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=settings)
    code: int = harness.ask(legacy.AlterConfigsRequest(resources=[resource])).responses[0].error_code
    return code


def test_settings_of_another_broker_are_refused_here(harness: BrokerHarness) -> None:
    threads = [("log.cleaner.backoff.ms", SET, "100")]
    for name in ("2", "one"):
        assert change(harness, (BROKER, name, threads)) == [ErrorCode.INVALID_REQUEST]
        assert replace(harness, BROKER, name, log_cleaner_backoff_ms="100") == ErrorCode.INVALID_REQUEST
    for name, others in (("1", {}), ("", {"min_insync_replicas": "1"})):
        assert change(harness, (BROKER, name, threads)) == [ErrorCode.NONE]
        assert replace(harness, BROKER, name, log_cleaner_backoff_ms="100", **others) == ErrorCode.NONE


def test_broker_setting_is_checked_together_with_its_other_settings(harness: BrokerHarness) -> None:
    per_ip, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    refused = [ErrorCode.INVALID_REQUEST]
    assert change(harness, (BROKER, "1", [(overrides, SET, "x:y")])) == refused
    assert change(harness, (BROKER, "1", [("log.roll.ms", SET, "-7")])) == refused
    assert change(harness, (BROKER, "", [("num.io.threads", SET, "17")])) == refused
    assert change(harness, (BROKER, "1", [(per_ip, SET, "0")])) == refused
    assert change(harness, (BROKER, "", [(overrides, SET, "10.0.0.1:5")])) == [ErrorCode.NONE]
    assert change(harness, (BROKER, "1", [(per_ip, SET, "0")])) == [ErrorCode.NONE]
    assert change(harness, (BROKER, "", [(overrides, DELETE, None)])) == refused
    assert change(harness, (BROKER, "1", [(per_ip, DELETE, None)])) == [ErrorCode.NONE]
    assert change(harness, (BROKER, "", [(overrides, DELETE, None)])) == [ErrorCode.NONE]


def test_topic_setting_is_checked_together_with_broker_settings(harness: BrokerHarness) -> None:
    harness.create("t")
    lags = [("log.cleaner.min.compaction.lag.ms", SET, "5000")]
    assert change(harness, (BROKER, "", lags)) == [ErrorCode.NONE]
    assert change(harness, (TOPIC, "t", [("max.compaction.lag.ms", SET, "4999")])) == [ErrorCode.INVALID_CONFIG]
    assert change(harness, (TOPIC, "t", [("max.compaction.lag.ms", SET, "5000")])) == [ErrorCode.NONE]


def test_one_request_changes_log_levels_and_settings(harness: BrokerHarness) -> None:
    harness.create("t")
    codes = change(harness, (BROKER_LOGGER, "1", [(LOGGER, SET, "DEBUG")]), (TOPIC, "t", [("retention.ms", SET, "7")]))
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert logging.getLogger(LOGGER).level == logging.DEBUG
    assert harness.broker.settings.topic_values("t")["retention.ms"] == 7
    assert replace(harness, BROKER_LOGGER, "1", level="INFO") == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([(LOGGER, SET, "DEBUG"), (LOGGER, SET, "ERROR")], ErrorCode.INVALID_REQUEST),
        ([(LOGGER, SET, None)], ErrorCode.INVALID_REQUEST),
        ([(LOGGER, APPEND, "DEBUG")], ErrorCode.INVALID_REQUEST),
        ([(LOGGER, SET, "LOUD")], ErrorCode.INVALID_CONFIG),
        ([("ottla.unknown", SET, "DEBUG")], ErrorCode.INVALID_CONFIG),
        ([("root", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_change_of_log_levels_changes_none(
    harness: BrokerHarness, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    before = logging.getLogger(LOGGER).level
    assert change(harness, (BROKER_LOGGER, "1", changes)) == [code]
    assert logging.getLogger(LOGGER).level == before


def test_duplicate_resource_is_rejected_both_times(harness: BrokerHarness) -> None:
    harness.create("t")
    levels = (BROKER_LOGGER, "1", [(LOGGER, SET, "DEBUG")])
    retention = (TOPIC, "t", [("retention.ms", SET, "7")])
    before = logging.getLogger(LOGGER).level
    assert change(harness, levels, retention, levels, retention) == [ErrorCode.INVALID_REQUEST] * 4
    assert logging.getLogger(LOGGER).level == before
    assert harness.broker.settings.topic_values("t")["retention.ms"] != 7


def test_client_metrics_without_configuration_have_their_defaults(harness: BrokerHarness) -> None:
    resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name="m", configuration_keys=None)
    (result,) = harness.ask(DescribeConfigsRequest(resources=[resource])).results
    assert result.error_code == ErrorCode.NONE
    assert {row.name: (row.value, row.config_source) for row in result.configs} == {
        "interval.ms": ("300000", 5),
        "match": ("", 5),
        "metrics": ("", 5),
    }
