"""Fixtures for topics and for an admin client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import RunningBroker

from .secured import secured  # noqa: F401 - a fixture
from .secured_ottla import secured_ottla  # noqa: F401 - a fixture
from .support import WAIT_S, unique, wait_until
from .tls_ottla import tls_ottla  # noqa: F401 - a fixture
from .wire import serves


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, **config: object) -> str: ...


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    """librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": broker.bootstrap, "topic.metadata.propagation.max.ms": 0, "log_level": 2})


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return the name of a topic that does not exist."""
    return unique(request.node.originalname.removeprefix("test_")[:60])


@pytest.fixture
def make_topic(request: pytest.FixtureRequest, broker: RunningBroker, admin: AdminClient) -> Iterator[MakeTopic]:
    """Create topics (config names with _ for .) that have leaders; they are deleted after the test."""
    made: list[str] = []

    def make(partitions: int = 1, **config: object) -> str:
        name = unique(request.node.originalname.removeprefix("test_")[:60])
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([new])[name].result(WAIT_S)
        made.append(name)

        wait_until(lambda: serves(broker.bootstrap, name, partitions), f"leaders of {name}")
        return name

    yield make
    if made:
        for future in admin.delete_topics(made).values():
            future.exception(WAIT_S)  # the test may have deleted it itself
