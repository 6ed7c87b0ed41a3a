"""The dispatcher: requests with a response, and requests that close the connection."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import dispatch, handlers, served
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller import Outcome
from ottla.metadata.features import default_levels
from ottla.network.connection import SOFTWARE_NAME
from ottla.protocol import frames, registry
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.protocol.metadata_records import FeatureLevelRecord
from ottla.protocol.wire import DecodeError
from ottla.records import BatchProducer

from .harness import START_MS, BrokerHarness


def frame(key: int, version: int, body: bytes = b"") -> memoryview:
    return memoryview(bytearray(key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\x4d\xff\xff" + body))


def test_every_handler_file_is_served_under_its_own_api() -> None:
    files = {path.stem for path in Path(handlers.__file__).parent.glob("*.py")} - {"__init__"}
    assert {*served.HANDLERS.values(), *served.CONTROLLER_HANDLERS.values()} == files
    for key, name in served.HANDLERS.items():
        assert re.sub("(?<=[a-z])(?=[A-Z])", "_", registry.API[key].name).lower().removesuffix("_request") == name


def test_preload_loads_the_served_apis_before_their_first_requests(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = importlib.import_module

    def note(name: str) -> object:
        loaded.append(name.rpartition(".")[2])
        return load(name)

    monkeypatch.setattr(importlib, "import_module", note)
    controller = dispatch.Dispatcher(harness.broker, served.CONTROLLER_SERVED, served.CONTROLLER_HANDLERS)
    harness.dispatch.preload(served.NEEDED_AT_FAILOVER)
    assert {"produce", "fetch", "init_producer_id", "find_coordinator"} <= set(loaded)
    assert "vote" not in loaded
    controller.preload(served.NEEDED_AT_FAILOVER)
    assert {"vote", "metadata_fetch", "broker_heartbeat"} <= set(loaded)


def test_unknown_api_or_version_closes_the_connection(harness: BrokerHarness) -> None:
    for key, version in ((999, 0), (4, 0), (0, 2), (0, 14), (1, 3), (22, 6)):
        with pytest.raises(KafkaError) as error:
            harness.dispatch(harness.client, frame(key, version, b"\0"))  # type: ignore[arg-type]
        assert error.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_api_versions_of_the_future_is_answered_in_version_0(harness: BrokerHarness) -> None:
    (answer,) = harness.dispatch(harness.client, frame(18, 99, b"\0"))  # type: ignore[arg-type, misc]
    response = ApiVersionsResponse.decode(memoryview(answer)[8:], 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert next(api for api in response.api_keys if api.api_key == 18).max_version == ApiVersionsRequest.MAX_VERSION


def test_invalid_request_body_closes_the_connection(harness: BrokerHarness) -> None:
    for body in (b"", b"\xff\xff\xff\xff\0\x7f\xff\xff\xff"):
        with pytest.raises(DecodeError):
            harness.dispatch(harness.client, frame(2, 5, body))  # type: ignore[arg-type]


def test_error_of_a_completion_reaches_the_connection(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    later: Completion[Any] = Completion()
    monkeypatch.setattr("ottla.broker.handlers.list_offsets.handle", lambda *_: later)
    request = frame(2, 5, ListOffsetsRequest().encode(5))
    answer = harness.dispatch(harness.client, request)  # type: ignore[arg-type]
    assert isinstance(answer, Completion)
    later.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    with pytest.raises(KafkaError):
        answer.result()
    # A completion that is done with a response that cannot be encoded must be an error, too.
    done = Completion.of("no message")
    monkeypatch.setattr("ottla.broker.handlers.list_offsets.handle", lambda *_: done)
    harness.dispatch._apis.clear()
    with pytest.raises(AttributeError):
        harness.dispatch(harness.client, request)  # type: ignore[arg-type]


def test_api_versions_contains_served_apis_and_features(harness: BrokerHarness) -> None:
    for version in range(5):
        request = ApiVersionsRequest(client_software_name="kafka-x", client_software_version="1.0")
        response = harness.ask(request, version)
        assert response.error_code == 0
        told = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert told == served.SERVED | {0: (0, served.SERVED[0][1])}
        if version >= 3:
            assert "metadata.version" in {feature.name for feature in response.finalized_features}
            assert all(feature.min_version > 0 or version >= 4 for feature in response.supported_features)
            assert harness.client.state[SOFTWARE_NAME] == "kafka-x"


def test_api_versions_advertises_no_level_that_is_not_served(harness: BrokerHarness) -> None:
    levels = {
        "group.version": 1, "share.version": 2, "streams.version": 2, "transaction.version": 2, "metadata.version": 30,
        "eligible.leader.replicas.version": 1, "feature.of.the.future": 3,
    }  # fmt: skip
    records: list[Message] = [FeatureLevelRecord(name, level) for name, level in levels.items()]
    harness.broker.metadata.submit(lambda _: Outcome(records, None)).result()
    assert harness.broker.metadata.image.features == levels, "Kafka finds the levels unchanged"
    response = harness.ask(ApiVersionsRequest(client_software_name="kafka-x", client_software_version="1.0"), 4)
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert finalized == default_levels()
    assert {f.name: f.max_version for f in response.supported_features}["streams.version"] == 1


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a b", "1"), ("x", ""), ("x", "-1"), ("x\n", "1"), ("ü", "1")]
)
def test_malformed_software_name_is_an_invalid_request(harness: BrokerHarness, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert harness.ask(request, 4).error_code == ErrorCode.INVALID_REQUEST


def test_describe_log_dirs_returns_sizes_of_requested_partitions(harness: BrokerHarness) -> None:
    harness.create("a", 2)
    harness.create("b")
    harness.append("a", b"x" * 100, index=1)

    def sizes(topics: Any) -> Any:
        (result,) = harness.ask(DescribeLogDirsRequest(topics=topics)).results
        assert (result.error_code, result.log_dir) == (0, harness.partition("a").log.log_directory.path)
        assert result.total_bytes >= result.usable_bytes > 0
        return {(t.name, p.partition_index): p.partition_size for t in result.topics for p in t.partitions}

    size = harness.partition("a", 1).log.size
    assert sizes(None) == {("a", 0): 0, ("a", 1): size, ("b", 0): 0}
    assert sizes([DescribableLogDirTopic("a", [1, 7]), DescribableLogDirTopic("none", [0])]) == {("a", 1): size}
    assert sizes([]) == {}


def test_failed_directory_is_described_without_its_partitions(harness: BrokerHarness) -> None:
    harness.create("a")
    harness.partition("a").log.log_directory.fail(OSError(5, "Input/output error"))
    (result,) = harness.ask(DescribeLogDirsRequest(topics=None)).results
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def test_producers_of_a_partition(harness: BrokerHarness) -> None:
    harness.create("a")
    harness.append("a", b"1", b"2", producer=BatchProducer(9, 3, 0))
    harness.append("a", b"3", producer=BatchProducer(8, 0, 0), attributes=0x10)
    harness.append("a", b"4")
    good, bad = harness.ask(DescribeProducersRequest([TopicRequest("a", [0, 1])])).topics[0].partitions
    assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (nameless,) = harness.ask(DescribeProducersRequest([TopicRequest("no name", [0])])).topics[0].partitions
    assert nameless.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    known = {p.producer_id: p for p in good.active_producers}
    assert {k: (p.producer_epoch, p.last_sequence, p.current_txn_start_offset) for k, p in known.items()} == {
        9: (3, 1, -1),
        8: (0, 0, 2),
    }
    assert known[9].last_timestamp == START_MS


def test_request_without_a_body_closes_the_connection(harness: BrokerHarness) -> None:
    for data in (b"", b"\0\x12\0", b"\0\x12\0\3\0\0\0\1\0\x09abc"):
        with pytest.raises(DecodeError):
            harness.dispatch(harness.client, memoryview(bytearray(data)))  # type: ignore[arg-type]
    assert frames.decode_request_header(frame(18, 0))[0].client_id is None
