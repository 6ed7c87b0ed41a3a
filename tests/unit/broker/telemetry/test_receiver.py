"""GetTelemetrySubscriptions and PushTelemetry to a broker, and the values in its scrape."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.telemetry.receiver import MOST_DECOMPRESSED
from ottla.broker.telemetry.series import LONGEST_LABEL
from ottla.common.errors import ErrorCode
from ottla.common.ids import METADATA_TOPIC_ID, ZERO_UUID, uuid_to_text
from ottla.common.slices import Slices
from ottla.metrics.exposition import OPENMETRICS
from ottla.protocol import otlp
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.records import Codec
from ottla.records.codecs import compress
from tests.unit.broker.harness import BrokerHarness, Connection, open_harness
from tests.unit.broker.metrics.test_scrape import scrape, sources_of

CLIENT_METRICS, SET, DELETE = 16, 0, 1
MAX_BYTES = 2_000
POINTS = [
    otlp.Point("org.apache.kafka.producer.connection.creation.total", 3, is_counter=True),
    otlp.Point("org.apache.kafka.producer.connection.creation.rate", 0.5),
]
METRICS = otlp.encode(POINTS, {"client_rack": "r"}, 1, 2)


@pytest.fixture
def receiving(tmp_path: Path) -> Iterator[BrokerHarness]:
    """A broker with a metrics endpoint, and one subscription."""
    settings = {"ottla.metrics.listener": "127.0.0.1:0", "telemetry.max.bytes": str(MAX_BYTES)}
    with open_harness(tmp_path, settings) as harness:
        subscribe(harness, metrics="org.apache.kafka.producer.", interval_ms="1000")
        yield harness


def subscribe(harness: BrokerHarness, name: str = "s", **configs: str | None) -> None:
    changes = [
        incremental.AlterableConfig(key.replace("_", "."), DELETE if value is None else SET, value)
        for key, value in configs.items()
    ]
    resource = incremental.AlterConfigsResource(CLIENT_METRICS, name, changes)
    (answer,) = harness.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def ask(harness: BrokerHarness, instance_id: bytes = ZERO_UUID) -> Any:
    return harness.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


def push(harness: BrokerHarness, subscribed: Any, metrics: bytes = METRICS, **options: Any) -> int:
    values = {"client_instance_id": subscribed.client_instance_id, "subscription_id": subscribed.subscription_id}
    error: int = harness.ask(PushTelemetryRequest(**values | {"metrics": metrics} | options)).error_code
    return error


def test_subscription_has_what_kafka_says_and_a_new_client_instance_id(receiving: BrokerHarness) -> None:
    found = ask(receiving)
    assert found.error_code == ErrorCode.NONE
    assert found.client_instance_id != ZERO_UUID
    assert (found.requested_metrics, found.push_interval_ms) == (["org.apache.kafka.producer."], 1_000)
    assert (found.accepted_compression_types, found.telemetry_max_bytes) == ([4, 3, 1, 2], MAX_BYTES)
    assert ask(receiving, found.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ask(receiving).client_instance_id != found.client_instance_id
    receiving.loop.advance(1_000)
    assert ask(receiving, found.client_instance_id) == found


@pytest.mark.parametrize("codec", Codec)
def test_pushed_metrics_are_in_the_scrape(receiving: BrokerHarness, codec: Codec) -> None:
    found = ask(receiving)
    assert push(receiving, found, bytes(compress(codec, METRICS)), compression_type=int(codec)) == ErrorCode.NONE
    labels = f'{{client_id="test",client_instance_id="{uuid_to_text(found.client_instance_id)}",client_rack="r"}}'
    for kind in ("", OPENMETRICS):
        samples = scrape(sources_of(receiving), kind)
        assert samples[f"kafka_client_producer_connection_creation_total{labels}"] == 3
        assert samples[f"kafka_client_producer_connection_creation_rate{labels}"] == 0.5
        assert samples["kafka_server_client_metrics_instance_count"] == 1
        assert samples['ottla_client_telemetry_pushes_total{error="NONE"}'] == 1
        assert [name for name in samples if name.startswith('ottla_client_telemetry_info{client_id="test"')]


def test_next_push_has_to_wait_for_the_interval_unless_it_is_the_last(receiving: BrokerHarness) -> None:
    found = ask(receiving)
    assert push(receiving, found) == ErrorCode.NONE
    assert push(receiving, found) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(receiving, found, terminating=True) == ErrorCode.NONE
    receiving.loop.advance(1_000)
    assert push(receiving, found) == ErrorCode.INVALID_REQUEST


def test_client_asks_at_once_after_a_change_of_its_subscription(receiving: BrokerHarness) -> None:
    found = ask(receiving)
    assert push(receiving, found) == ErrorCode.NONE
    subscribe(receiving, metrics="*")
    assert push(receiving, found) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    new = ask(receiving, found.client_instance_id)
    assert (new.error_code, new.requested_metrics) == (ErrorCode.NONE, ["*"])
    receiving.loop.advance(1_000)
    assert push(receiving, new) == ErrorCode.NONE
    subscribe(receiving, metrics=None, interval_ms=None)
    assert push(receiving, new) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert ask(receiving, found.client_instance_id).requested_metrics == []


def test_client_continues_after_a_restart_without_asking(receiving: BrokerHarness, tmp_path: Path) -> None:
    """The state is in memory; the subscription id depends only on the subscription and the client."""
    found = ask(receiving)
    with open_harness(tmp_path / "other", {"ottla.metrics.listener": "127.0.0.1:0"}) as other:
        assert push(other, found) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        subscribe(other, metrics="org.apache.kafka.producer.", interval_ms="1000")
        assert push(other, found) == ErrorCode.NONE


@pytest.mark.parametrize("instance_id", [ZERO_UUID, METADATA_TOPIC_ID])
def test_push_needs_a_client_instance_id(receiving: BrokerHarness, instance_id: bytes) -> None:
    request = PushTelemetryRequest(client_instance_id=instance_id, metrics=METRICS)
    assert receiving.ask(request).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("metrics", "compression", "error"),
    [
        (METRICS, 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (METRICS, -1, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"x" * (MAX_BYTES + 1), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (METRICS, int(Codec.ZSTD), ErrorCode.INVALID_RECORD),
        (b"\x0a\x7f", 0, ErrorCode.INVALID_RECORD),
        (b"", 0, ErrorCode.NONE),
    ],
)
def test_bad_push_gets_its_error(receiving: BrokerHarness, metrics: bytes, compression: int, error: ErrorCode) -> None:
    found = ask(receiving)
    assert push(receiving, found, metrics, compression_type=compression) == error
    assert scrape(sources_of(receiving))[f'ottla_client_telemetry_pushes_total{{error="{error.name}"}}'] == 1


def test_push_that_grows_when_decompressed_is_refused_without_the_memory(receiving: BrokerHarness) -> None:
    found = ask(receiving)
    small = bytes(compress(Codec.ZSTD, bytes(2_000_000)))
    assert len(small) < MAX_BYTES
    tracemalloc.start()
    try:
        assert push(receiving, found, small, compression_type=int(Codec.ZSTD)) == ErrorCode.TELEMETRY_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 100 * MOST_DECOMPRESSED * MAX_BYTES
    finally:
        tracemalloc.stop()


def test_push_of_fields_without_points_lets_other_work_run(tmp_path: Path) -> None:
    """Without points in it, a push must yield, too."""
    empty = compress(Codec.ZSTD, b"\x12\x00" * 500_000)
    assert len(empty) < 200
    with open_harness(tmp_path, {"ottla.metrics.listener": "127.0.0.1:0"}) as harness:
        subscribe(harness, metrics="*")
        found = ask(harness)
        telemetry = harness.broker.telemetry
        assert telemetry is not None
        request = PushTelemetryRequest(found.client_instance_id, found.subscription_id, False, Codec.ZSTD, bytes(empty))
        context: Any = SimpleNamespace(connection=harness.client, client_id="test", client_host="h", principal="p")

        def pauses() -> Slices[None]:
            code = yield from telemetry.push(context, request)
            assert code == ErrorCode.INVALID_RECORD

        assert len(list(pauses())) >= otlp.MOST_FIELDS // otlp.FIELDS_AT_ONCE - 1


def test_disconnected_client_is_forgotten_and_its_values_remain_for_a_minute(receiving: BrokerHarness) -> None:
    found = ask(receiving)
    assert push(receiving, found) == ErrorCode.NONE
    receiving.client.drop()
    samples = scrape(sources_of(receiving))
    assert samples["kafka_server_client_metrics_instance_count"] == 0
    assert [name for name in samples if name.startswith("kafka_client_")]
    receiving.loop.advance(60_000)
    assert not [name for name in scrape(sources_of(receiving)) if name.startswith("kafka_client_")]


def test_connection_with_another_instance_id_releases_the_previous_one(receiving: BrokerHarness) -> None:
    for _ in range(3):
        assert push(receiving, ask(receiving)) == ErrorCode.NONE
    samples = scrape(sources_of(receiving))
    assert samples["kafka_server_client_metrics_instance_count"] == 1
    assert len([name for name in samples if name.startswith("ottla_client_telemetry_info{")]) == 1


def test_labels_of_a_client_are_truncated(receiving: BrokerHarness) -> None:
    receiving.ask(ApiVersionsRequest("n" * 10_000, "1"), 4)
    assert push(receiving, ask(receiving)) == ErrorCode.NONE
    (info,) = [name for name in scrape(sources_of(receiving)) if name.startswith("ottla_client_telemetry_info{")]
    assert f'client_software_name="{"n" * LONGEST_LABEL}"' in info


def test_client_on_a_second_connection_survives_the_end_of_the_first(receiving: BrokerHarness) -> None:
    found = ask(receiving)
    second = Connection()
    request = PushTelemetryRequest(found.client_instance_id, found.subscription_id, False, 0, METRICS)
    assert receiving.start(request, client=second).error_code == ErrorCode.NONE
    receiving.client.drop()
    assert scrape(sources_of(receiving))["kafka_server_client_metrics_instance_count"] == 1
    second.drop()
    assert scrape(sources_of(receiving))["kafka_server_client_metrics_instance_count"] == 0


def advertised(harness: BrokerHarness) -> set[int]:
    return {each.api_key for each in harness.ask(ApiVersionsRequest("a", "1"), 4).api_keys}


def test_requests_are_advertised_only_by_a_broker_that_receives(receiving: BrokerHarness, tmp_path: Path) -> None:
    assert advertised(receiving) >= {71, 72}
    with open_harness(tmp_path / "other") as other:
        assert not advertised(other) & {71, 72}
        assert ask(other).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert other.ask(PushTelemetryRequest()).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_selectors_see_the_software_of_the_connection(receiving: BrokerHarness) -> None:
    subscribe(receiving, metrics=None, interval_ms=None)
    subscribe(receiving, "v", metrics="*", match="client_software_name=mine,client_software_version=1\\..*")
    assert ask(receiving).requested_metrics == []
    receiving.ask(ApiVersionsRequest("mine", "1.2"), 4)
    assert ask(receiving).requested_metrics == ["*"]
