"""Closed clients are freed at once, with their connections and event loops: see tests/unit/clients/test_garbage.py."""

from __future__ import annotations

from ottla.clients import Consumer, ShareConsumer
from ottla.clients.admin import Admin
from tests.conftest import RunningBroker
from tests.garbage import garbage_of

from .conftest import MakeTopic
from .support import unique


def test_closed_consumers_and_admin_clients_leave_no_garbage(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), unique("freed")
    given = {"bootstrap.servers": broker.bootstrap, "group.id": group}

    def work() -> None:
        with Consumer(given) as consumer:
            consumer.subscribe(topic)
            consumer.poll(0.1)
            consumer.partitions_of(topic)
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.describe_cluster()

    assert garbage_of(work, "ottla.", "uvloop.") == []


def test_closed_share_consumers_leave_no_garbage(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), unique("freed")

    def work() -> None:
        with ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group}) as consumer:
            consumer.subscribe(topic)
            consumer.poll(0.1)

    assert garbage_of(work, "ottla.", "uvloop.") == []
