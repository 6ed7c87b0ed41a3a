"""Requests that are handled in slices: the same responses as in one step, and no conflict with requests in between."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers import fetch as fetch_handler
from ottla.broker.handlers import produce as produce_handler
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.work import SLICE_MS, Worker
from ottla.partitions import fetching
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest

from .harness import BrokerHarness, Connection, batch, open_harness, records_of

PARTITIONS = 30
UNKNOWN = 7


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    with open_harness(str(tmp_path)) as harness:
        yield harness


@pytest.fixture
def slow(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> BrokerHarness:
    """A harness in which each step takes a whole slice, so that all work is interrupted at every possible point."""
    for module in (fetching, fetch_handler, produce_handler):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 3)
        monkeypatch.setattr(module, "SLICE_PARTITIONS", 2)
    passing = count(step=SLICE_MS)
    monkeypatch.setattr(harness.loop, "monotonic_ms", lambda: next(passing))
    harness.use_worker(Worker(harness.loop, harness.loop.call_soon))
    return harness


def fetch(*, session: int = 0, epoch: int = 0, offset: int = 0, partitions: int = PARTITIONS + UNKNOWN) -> FetchRequest:
    rows = [FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=1000) for i in range(partitions)]
    topics = [FetchTopic(topic="t", partitions=rows)] if partitions else []
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session, session_epoch=epoch, topics=topics
    )


def fetched(response: Any) -> dict[int, tuple[int, int, list[tuple[int, bytes | None]]]]:
    return {
        row.partition_index: (row.error_code, row.high_watermark, records_of(row.records))
        for topic in response.responses
        for row in topic.partitions
    }


def fill(harness: BrokerHarness) -> None:
    harness.create("t", PARTITIONS)
    for index in range(0, PARTITIONS, 3):
        harness.append("t", b"%d" % index, index=index)


def test_fetch_in_slices_returns_the_same_response(slow: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(slow)
    answer = slow.start(fetch(), 12)
    assert isinstance(answer, Completion)
    assert not answer.done, "the fetch is handled in slices"
    slow.loop.run()
    response = answer.result()
    for module in (fetching, fetch_handler):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 1000)
    at_once = slow.ask(fetch(), 12)
    assert fetched(response) == fetched(at_once)
    assert len(fetched(response)) == PARTITIONS + UNKNOWN
    # The session continues after the response.
    monkeypatch.setattr(fetch_handler, "MOST_AT_ONCE", 3)
    slow.append("t", b"more", index=1)
    following = slow.ask(fetch(session=response.session_id, epoch=1, partitions=0), 12)
    assert fetched(following)[1] == (0, 1, [(0, b"more")])


def test_session_that_is_read_in_slices_rejects_other_requests(slow: BrokerHarness) -> None:
    fill(slow)
    session_id = slow.ask(fetch(), 12).session_id
    answer = slow.start(fetch(session=session_id, epoch=1, offset=1), 12)
    assert not answer.done
    other = slow.ask(fetch(session=session_id, epoch=2, partitions=0), 12)
    assert other.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    slow.loop.run()
    assert answer.result().error_code == ErrorCode.NONE
    assert slow.ask(fetch(session=session_id, epoch=2, partitions=0), 12).error_code == ErrorCode.NONE


def test_closing_a_session_during_its_fetch_ends_the_fetch(slow: BrokerHarness) -> None:
    fill(slow)
    session_id = slow.ask(fetch(), 12).session_id
    answer = slow.start(fetch(session=session_id, epoch=1), 12)
    slow.broker.fetch_sessions.remove(session_id)
    slow.loop.run()
    assert answer.result().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not any(slow.partition("t", index).watchers for index in range(PARTITIONS))


def test_fetch_of_a_disconnected_client_watches_no_partition(slow: BrokerHarness) -> None:
    fill(slow)
    client = Connection()
    slow.start(fetch(epoch=-1), 12, client)
    client.drop()
    slow.loop.run()
    assert not any(slow.partition("t", index).watchers for index in range(PARTITIONS))


def test_produce_in_slices_keeps_its_batches(slow: BrokerHarness) -> None:
    slow.create("t", PARTITIONS)
    frame_parts = {index: batch(b"%d" % index) for index in range(PARTITIONS + UNKNOWN)}
    answer = slow.produce(("t", frame_parts))
    assert not answer.done
    slow.loop.run()
    rows = answer.result().responses[0].partition_responses
    assert [row.index for row in rows] == list(range(PARTITIONS + UNKNOWN))
    assert [row.error_code for row in rows].count(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == UNKNOWN
    stored = fetched(slow.ask(fetch(partitions=PARTITIONS), 12))
    assert {index: row[2] for index, row in stored.items()} == {i: [(0, b"%d" % i)] for i in range(PARTITIONS)}


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1) for name in names], timeout_ms=1000)


def test_operations_of_the_controller_wait_for_each_other(slow: BrokerHarness) -> None:
    first = slow.start(create("a", "b", "c"))
    second = slow.start(create("c", "d"))
    third = slow.start(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]))
    assert not first.done
    assert not second.done
    slow.loop.run()
    assert [topic.error_code for topic in first.result().topics] == [0, 0, 0]
    assert [topic.error_code for topic in second.result().topics] == [ErrorCode.TOPIC_ALREADY_EXISTS, 0]
    assert third.result().responses[0].error_code == 0
    assert set(slow.broker.metadata.image.topics_by_name) == {"b", "c", "d"}
    slow.broker.metadata.image.validate()


def test_metadata_that_is_read_in_slices_is_from_one_image(slow: BrokerHarness) -> None:
    for name in "abcdef":
        slow.create(name)
    answer = slow.start(MetadataRequest(topics=None))
    assert not answer.done
    slow.loop.call_soon(lambda: slow.start(DeleteTopicsRequest(topics=[DeleteTopicState(name="f")])))
    slow.loop.run()
    assert [topic.name for topic in answer.result().topics] == list("abcdef")
    assert [topic.name for topic in slow.ask(MetadataRequest(topics=None)).topics] == list("abcde")


def test_operation_in_progress_when_the_node_stops_fails(slow: BrokerHarness) -> None:
    answer = slow.start(create(*(f"t{i}" for i in range(20))))
    queued = slow.start(create("u"))
    slow.broker.metadata.close()
    slow.loop.run()
    assert {topic.error_code for topic in answer.result().topics} == {ErrorCode.NOT_CONTROLLER}
    assert queued.result().topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_duplicate_resource_is_described_each_time(harness: BrokerHarness) -> None:
    harness.create("plain")
    harness.create("own", retention_ms="1000")
    names = ["plain", "own", "plain", "own", "none"]
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(2, name, None) for name in names]
        + [DescribeConfigsResource(2, "own", ["retention.ms"])]
    )
    results = harness.ask(request).results
    assert [result.resource_name for result in results] == [*names, "own"]
    assert results[0].configs == results[2].configs
    assert results[1].configs == results[3].configs != results[0].configs
    assert [(config.name, config.value) for config in results[5].configs] == [("retention.ms", "1000")]
    assert [result.error_code for result in results] == [0, 0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
