"""DescribeTopicPartitions: its pages contain each partition once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.handlers.describe_topic_partitions import handle
from ottla.broker.operations import TOPIC_OPERATIONS
from ottla.broker.security import Security
from ottla.common.errors import ErrorCode
from ottla.common.slices import finish
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)

from .harness import BrokerHarness
from .metadata_support import create, open_shell, register


def test_pages_cover_every_partition_once(tmp_path: Path) -> None:
    shell = open_shell(str(tmp_path))
    register(shell)
    for name, partitions in (("a", 3), ("b", 1), ("c", 7)):
        create(shell, name, partitions)
    broker: Any = SimpleNamespace(
        security=Security(),
        metadata=shell,
        settings=SimpleNamespace(current=SimpleNamespace(int=lambda _: 4)),
        endpoints=SimpleNamespace(available=lambda _: [(1, "localhost", 9092, None)]),
    )
    context: Any = SimpleNamespace(listener="PLAINTEXT")
    seen: list[tuple[str | None, int]] = []
    cursor: RequestCursor | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=100, cursor=cursor)
        page = finish(handle(broker, context, request))
        assert sum(len(topic.partitions) for topic in page.topics) <= 4
        seen += [(topic.name, partition.partition_index) for topic in page.topics for partition in topic.partitions]
        following = page.next_cursor
        cursor = RequestCursor(following.topic_name, following.partition_index) if following else None
        pages += 1
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), *(("c", i) for i in range(7))]
    assert pages == 3
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest("nope"), TopicRequest("b")])
    page = finish(handle(broker, context, request))
    assert [(topic.name, topic.error_code) for topic in page.topics] == [
        ("b", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    shell.close()


def test_invalid_cursor_is_an_error_for_every_requested_topic(harness: BrokerHarness) -> None:
    harness.create("a")
    harness.create("b")
    topics = [TopicRequest("a"), TopicRequest("b")]
    elsewhere = DescribeTopicPartitionsRequest(topics=topics, cursor=RequestCursor("c", 0))
    negative = DescribeTopicPartitionsRequest(topics=topics, cursor=RequestCursor("a", -1))
    for request in (elsewhere, negative):
        answer = harness.ask(request)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("a", ErrorCode.INVALID_REQUEST),
            ("b", ErrorCode.INVALID_REQUEST),
        ]
        assert answer.next_cursor is None
    # If all topics are requested, the topic of the cursor may have been deleted.
    everything = harness.ask(DescribeTopicPartitionsRequest(topics=[], cursor=RequestCursor("aa", 3)))
    assert [(topic.name, len(topic.partitions)) for topic in everything.topics] == [("b", 1)]


def test_operations_on_an_unknown_topic_are_returned_too(harness: BrokerHarness) -> None:
    harness.create("a")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest("a"), TopicRequest("nope")])
    assert [topic.topic_authorized_operations for topic in harness.ask(request).topics] == [TOPIC_OPERATIONS] * 2
