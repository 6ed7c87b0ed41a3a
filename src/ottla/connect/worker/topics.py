"""New topics: for records of sources by `topic.creation.*` (KIP-158), for source offsets and for dead letters."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.blocking import Admin, blocking
from ottla.clients.admin.model import NewTopic
from ottla.clients.errors import NotAuthorized, TopicAlreadyExists, UnknownTopicOrPartition
from ottla.connect.config.definition import SettingError, SettingType
from ottla.connect.worker.task_settings import setting

logger = logging.getLogger("ottla.connect.worker")
_PREFIX: Final = "topic.creation."
_DEFAULT: Final = "default"
_OWN: Final = frozenset({"replication.factor", "partitions", "include", "exclude"})


@dataclass(frozen=True)
class TopicGroup:
    """How topics are created. A topic belongs to the group if a pattern includes its name and none excludes it."""

    name: str
    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    partitions: int
    replication_factor: int
    config: Mapping[str, object]

    def matches(self, topic: str) -> bool:
        """Whether a topic belongs to the group."""
        return not any(each.fullmatch(topic) for each in self.exclude) and any(
            each.fullmatch(topic) for each in self.include
        )


def topic_groups(config: Mapping[str, str]) -> tuple[TopicGroup, ...]:
    """Return the groups in order, the default last; empty if the connector does not use them. Raises SettingError."""
    if not any(name.startswith(_PREFIX) for name in config):
        return ()
    default = _group(_DEFAULT, config, None)
    listed = [each.strip() for each in config.get(f"{_PREFIX}groups", "").split(",")]
    names = dict.fromkeys(each for each in listed if each and each != _DEFAULT)
    return (*(_group(name, config, default) for name in names), default)


def _group(name: str, config: Mapping[str, str], default: TopicGroup | None) -> TopicGroup:
    prefix = f"{_PREFIX}{name}."

    def number(key: str, kind: SettingType, inherited: int | None) -> int:
        value = setting(config, prefix + key, kind, inherited)
        if value is None:
            raise SettingError(f'Missing required configuration "{prefix}{key}" which has no default value.')
        if value < 1 and value != -1:
            raise SettingError(f"Invalid value {value} for configuration {prefix}{key}: -1, or at least 1")
        return int(value)

    own = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    return TopicGroup(
        name,
        _patterns(own.get("include", ""), prefix) if default is not None else (re.compile(".*"),),
        _patterns(own.get("exclude", ""), prefix) if default is not None else (),
        number("partitions", SettingType.INT, None if default is None else default.partitions),
        number("replication.factor", SettingType.SHORT, None if default is None else default.replication_factor),
        {key: value for key, value in own.items() if key not in _OWN},
    )


def _patterns(given: str, prefix: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(each.strip()) for each in given.split(",") if each.strip())
    except re.error as error:
        raise SettingError(f"Invalid value {given} for configuration {prefix}include: {error}") from error


class TopicCreator:
    """Creates the topics of a source before its first record for each of them."""

    def __init__(self, admin: Callable[[], Admin], groups: tuple[TopicGroup, ...], used: Callable[[str], None]) -> None:
        self._admin = admin
        self._groups = groups
        self._used = used
        self._known: set[str] = set()

    def ensure(self, topic: str) -> None:
        """Create a topic that does not exist, if the connector has groups. Raises ClientError."""
        if topic in self._known:
            return
        if self._groups:
            group = next(each for each in self._groups if each.matches(topic))
            wanted = NewTopic(topic, group.partitions, group.replication_factor, group.config)
            if create_missing(self._admin(), wanted):
                logger.info("Created topic %s of group %s", topic, group.name)
        self._known.add(topic)
        self._used(topic)


async def create_if_missing(admin: AsyncAdmin, topic: NewTopic, timeout_s: float | None = None) -> bool:
    """Create a topic unless it exists; returns whether it was created. Raises ClientError.

    The creation is the first request: a description of a missing topic repeats its request for half a second. A user
    who may not create topics can use topics that exist.
    """
    try:
        await admin.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            config=topic.config,
            timeout_s=timeout_s,
        )
    except TopicAlreadyExists:
        return False
    except NotAuthorized as denied:
        try:
            await admin.describe_topic(topic.name, timeout_s=timeout_s)
        except UnknownTopicOrPartition:
            raise denied from None
        return False
    return True


create_missing = blocking(create_if_missing)
