"""librdkafka's share consumer (KIP-932): what it acknowledges at its close stays acknowledged."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from ottla.clients import Admin
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import WAIT_S, unique
from .test_ottla_consumer import numbered, produce
from .test_ottla_share_consumer import set_group

pytestmark = pytest.mark.both


def offsets_of(bootstrap: str, group: str, topic: str, count: int, timeout_s: float = WAIT_S) -> list[tuple[int, int]]:
    """Acknowledge records until there are `count` or the time is over, and close without a commit."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "log_level": 2,
    }
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + timeout_s
    with confluent_kafka.ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.poll(0.5):
                assert message.error() is None
                consumer.acknowledge(message)
                found.append((message.partition(), message.offset()))
    return sorted(found)


def test_close_sends_the_acknowledgements_of_the_last_poll(broker: RunningBroker, make_topic: MakeTopic) -> None:
    group, topic = unique("share"), make_topic(2)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        set_group(admin, group, "share.auto.offset.reset", "earliest")
    for partition in (0, 1):
        produce(broker.bootstrap, topic, numbered(20), partition)
    every = [(partition, offset) for partition in (0, 1) for offset in range(20)]
    assert offsets_of(broker.bootstrap, group, topic, len(every)) == every
    assert offsets_of(broker.bootstrap, group, topic, 1, timeout_s=3.0) == []
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert sum(at.lag or 0 for at in admin.list_share_group_offsets(group).values()) == 0
