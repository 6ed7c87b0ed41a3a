"""A missing topic is created by the first request; an existing one needs no right to create topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.clients.admin.model import NewTopic
from ottla.clients.errors import TopicAlreadyExists, TopicAuthorizationFailed, UnknownTopicOrPartition
from ottla.connect.worker.topics import create_if_missing

TOPIC = NewTopic("t", 2, 1, {"cleanup.policy": "compact"})


class Admin:
    """A cluster with one topic at most, and the requests that it has received."""

    def __init__(self, *, exists: bool, may_create: bool) -> None:
        self.requests: list[str] = []
        self._exists = exists
        self._may_create = may_create

    async def create_topic(self, name: str, **_: object) -> None:
        self.requests.append("create")
        if not self._may_create:
            raise TopicAuthorizationFailed(name)
        if self._exists:
            raise TopicAlreadyExists(name)

    async def describe_topic(self, name: str, **_: object) -> None:
        self.requests.append("describe")
        if not self._exists:
            raise UnknownTopicOrPartition(name)


@pytest.mark.parametrize(
    ("exists", "may_create", "is_created", "requests"),
    [
        (False, True, True, ["create"]),
        (True, True, False, ["create"]),
        (True, False, False, ["create", "describe"]),
    ],
)
def test_topic_is_created_or_found(*, exists: bool, may_create: bool, is_created: bool, requests: list[str]) -> None:
    admin: Any = Admin(exists=exists, may_create=may_create)
    assert asyncio.run(create_if_missing(admin, TOPIC)) is is_created
    assert admin.requests == requests


def test_missing_topic_that_the_user_may_not_create_is_that_error() -> None:
    admin: Any = Admin(exists=False, may_create=False)
    with pytest.raises(TopicAuthorizationFailed):
        asyncio.run(create_if_missing(admin, TOPIC))
