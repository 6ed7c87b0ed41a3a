"""The start of a worker's store: both topics at the same time, and a topic that the user may not create."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.clients.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from ottla.common.failure import Failure
from ottla.connect.cluster import store as stores
from ottla.connect.cluster import topics
from ottla.connect.cluster.store import KafkaStore, StoreSettings
from ottla.connect.cluster.topics import TopicSettings, prepare_topic

CONFIGS = TopicSettings("configs", "config.storage.topic", "configurations", 1, 1)
STATUSES = TopicSettings("statuses", "status.storage.topic", "statuses", 5, 1)
CLIENTS = {"bootstrap.servers": "127.0.0.1:1"}


def start(prepare: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Start a store whose topics are empty; returns the topics that were read."""
    read: list[str] = []

    async def run() -> None:
        store = KafkaStore(StoreSettings(CLIENTS, CONFIGS, STATUSES), lambda: 0)
        for log in (store._config_log, store._status_log):

            async def started(partitions: int, _: float, name: str = log.topic) -> None:
                read.append(f"{name} {partitions}")

            monkeypatch.setattr(log, "start", started)
        try:
            await store.start()
        finally:
            await store.close()

    monkeypatch.setattr(stores, "prepare_topic", prepare)
    asyncio.run(asyncio.wait_for(run(), 20))
    return read


def test_both_topics_are_prepared_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = asyncio.Barrier(2)

    async def prepare(_: object, topic: TopicSettings, __: float) -> int:
        async with asyncio.timeout(10), both:
            return topic.partitions

    assert sorted(start(prepare, monkeypatch)) == ["configs 1", "statuses 5"]


def test_topic_that_cannot_be_used_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def prepare(_: object, topic: TopicSettings, __: float) -> int:
        if topic is STATUSES:
            raise Failure("it is not compacted")
        return topic.partitions

    with pytest.raises(Failure, match="not compacted"):
        start(prepare, monkeypatch)


class Admin:
    """A cluster in which the user may not create topics."""

    exists = True

    def __init__(self, _: object) -> None:
        pass

    async def start(self, _: float) -> None:
        pass

    async def close(self) -> None:
        pass

    async def create_topic(self, name: str, **_: object) -> None:
        raise TopicAuthorizationFailed(name)

    async def describe_topic(self, name: str, **_: object) -> Any:
        if not self.exists:
            raise UnknownTopicOrPartition(name)
        return SimpleNamespace(partitions=[0])

    async def describe_config(self, *_: object, **__: object) -> Any:
        return {"cleanup.policy": SimpleNamespace(value="compact")}


def test_existing_topic_needs_no_right_to_create_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "AsyncAdmin", Admin)
    assert asyncio.run(prepare_topic(CLIENTS, CONFIGS, 5.0)) == 1


def test_missing_topic_that_the_user_may_not_create_is_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "AsyncAdmin", Admin)
    monkeypatch.setattr(Admin, "exists", False)
    with pytest.raises(TopicAuthorizationFailed):
        asyncio.run(prepare_topic(CLIENTS, CONFIGS, 5.0))
