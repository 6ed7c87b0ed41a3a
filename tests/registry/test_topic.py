"""The topic of schemas, created beside brokers that do not know it yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.clients.errors import UnknownTopicOrPartition
from ottla.registry.topic import TopicSettings, prepare_topic


def test_new_topic_is_asked_for_again_until_brokers_know_it(ottla: Any) -> None:
    with ottla.faults.fail("DescribeConfigs", "UNKNOWN_TOPIC_OR_PARTITION", times=2) as fault:
        prepared = asyncio.run(prepare_topic(ottla.settings(), TopicSettings("_new", 1), 20.0))
        assert fault.count == 2
    assert prepared.largest_bytes > 0


def test_topic_that_no_broker_learns_of_is_an_error(ottla: Any) -> None:
    with (
        ottla.faults.fail("DescribeConfigs", "UNKNOWN_TOPIC_OR_PARTITION", times=None),
        pytest.raises(UnknownTopicOrPartition),
    ):
        asyncio.run(prepare_topic(ottla.settings(), TopicSettings("_lost", 1), 1.0))
