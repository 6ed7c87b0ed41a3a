"""Connect's three topics: their settings, and how they are created or checked.

A topic that exists is used as it is, if it is compacted only: with another cleanup.policy the cluster would forget its
connectors. The topic of configurations has one partition, since its records have one order. A mirror's copy is refused:
statuses cannot be written, and each connector would run in both clusters.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.clients import AsyncAdmin
from ottla.clients.admin import ConfigResource, NewTopic
from ottla.clients.errors import InvalidReplicationFactor
from ottla.common.failure import Failure
from ottla.connect.worker.topics import create_if_missing
from ottla.metadata.mirrors import is_read_only_state
from ottla.tools.admin.topic_facts import mirror_of

logger = logging.getLogger(__name__)

_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_DEFAULT_REPLICAS: Final = 3


class TopicSettings(NamedTuple):
    """One of the topics: `setting` names the topic in the worker's configuration."""

    name: str
    setting: str
    purpose: str
    partitions: int
    """-1: the broker's default."""
    replication_factor: int | None = None
    """-1: the broker's default. None: three, or fewer in a cluster with fewer brokers."""
    config: Mapping[str, str] = {}


def config_topic(settings: Mapping[str, str]) -> TopicSettings:
    """Return the topic of configurations. Raises Failure."""
    return _topic(settings, "config.storage", "connector configurations", 1)


def status_topic(settings: Mapping[str, str]) -> TopicSettings:
    """Return the topic of statuses. Raises Failure."""
    return _topic(settings, "status.storage", "connector and task statuses", 5)


def _topic(settings: Mapping[str, str], prefix: str, purpose: str, partitions: int) -> TopicSettings:
    name = settings.get(f"{prefix}.topic", "").strip()
    if not name:
        raise Failure(f"the setting {prefix}.topic is missing", f"Name the topic of {purpose}: {prefix}.topic=NAME")
    if partitions > 1:
        partitions = _number(settings, f"{prefix}.partitions", partitions)
    replicas = f"{prefix}.replication.factor"
    given = _number(settings, replicas, 0) if replicas in settings else None
    known = {f"{prefix}.{each}" for each in ("topic", "partitions", "replication.factor")}
    config = {
        key.removeprefix(f"{prefix}."): value
        for key, value in settings.items()
        if key.startswith(f"{prefix}.") and key not in known
    }
    return TopicSettings(name, f"{prefix}.topic", purpose, partitions, given, config)


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name, str(default))
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number == 0 or number < -1:
        raise Failure(f"{name} is {text}: it must be at least 1, or -1 for the broker's default")
    return number


async def prepare_topic(clients: Mapping[str, Any], topic: TopicSettings, timeout_s: float) -> int:
    """Create or check a topic; returns its number of partitions. Raises Failure, ClientError."""
    admin = AsyncAdmin(clients)
    try:
        await admin.start(timeout_s)
        await _create(admin, topic, timeout_s)
        return await _checked(admin, topic, timeout_s)
    finally:
        await admin.close()


async def _create(admin: AsyncAdmin, topic: TopicSettings, timeout_s: float) -> None:
    replicas = topic.replication_factor
    if replicas is None:
        brokers = len((await admin.describe_cluster(timeout_s=timeout_s)).brokers)
        replicas = min(_DEFAULT_REPLICAS, brokers)
        if 1 < brokers < _DEFAULT_REPLICAS:
            logger.warning(
                "Creating the topic %s with %d replicas: there are %d brokers", topic.name, replicas, brokers
            )
    wanted = NewTopic(topic.name, topic.partitions, replicas, {**topic.config, _POLICY: _COMPACT})
    try:
        await create_if_missing(admin, wanted, timeout_s)
    except InvalidReplicationFactor as error:
        setting = topic.setting.removesuffix("topic") + "replication.factor"
        raise Failure(f"cannot create the topic {topic.name}: {error}", f"Set {setting} to fewer replicas.") from error


async def _checked(admin: AsyncAdmin, topic: TopicSettings, timeout_s: float) -> int:
    found = await admin.describe_topic(topic.name, timeout_s=timeout_s)
    partitions = len(found.partitions)
    config = await admin.describe_config(ConfigResource.topic(topic.name), timeout_s=timeout_s)
    mirror = mirror_of(config)
    if mirror is not None and is_read_only_state(mirror[1]):
        raise Failure(
            f"Topic '{topic.name}' supplied via the '{topic.setting}' property is read-only: mirror {mirror[0]} copies "
            "it from another cluster, whose workers may run its connectors.",
            f"Stop those workers, and promote the topics: ottla mirror promote {mirror[0]}",
        )
    policy = config[_POLICY].value
    if policy != _COMPACT:
        raise Failure(
            f"Topic '{topic.name}' supplied via the '{topic.setting}' property is required to have "
            f"'{_POLICY}={_COMPACT}' to guarantee consistency and durability of {topic.purpose}, but found the topic "
            f"currently has '{_POLICY}={policy}'. Continuing would likely result in eventually losing {topic.purpose} "
            "and problems restarting this Connect cluster in the future.",
            f"Change it (ottla config set topic {topic.name} {_POLICY}={_COMPACT}), or the property '{topic.setting}'.",
        )
    if topic.partitions == 1 and partitions > 1:
        raise Failure(
            f"Topic '{topic.name}' supplied via the '{topic.setting}' property is required to have a single partition "
            f"in order to guarantee consistency of {topic.purpose}, but found {partitions} partitions.",
            f"Use another topic: change '{topic.setting}'.",
        )
    return partitions
