"""The topic of schemas: created with one partition and compaction, or checked if it exists.

A topic that is not compacted would lose schemas after its retention time, and one with several partitions has no order
of its records. Both are refused, as Confluent's registry does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.clients.admin import AsyncAdmin, ConfigResource
from ottla.clients.errors import TopicAlreadyExists, UnknownTopicOrPartition
from ottla.common.failure import Failure

logger = logging.getLogger(__name__)

_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_LARGEST: Final = "max.message.bytes"
_PAUSE_S: Final = 0.05


class TopicSettings(NamedTuple):
    """The name of the topic, and what it is created with."""

    name: str
    replication_factor: int = 3
    config: Mapping[str, str] = {}


class LogSettings(NamedTuple):
    """The topic, the settings of the clients, and the limits of time."""

    clients: Mapping[str, Any]
    topic: TopicSettings
    transactional_id: str
    init_timeout_s: float = 60.0
    timeout_s: float = 5.0


class PreparedTopic(NamedTuple):
    """The largest batch of records that the topic accepts, and the id of its cluster."""

    largest_bytes: int
    cluster_id: str


async def prepare_topic(clients: Mapping[str, Any], topic: TopicSettings, timeout_s: float) -> PreparedTopic:
    """Create or check the topic. Raises Failure, ClientError."""
    admin = AsyncAdmin(clients)
    try:
        await admin.start(timeout_s)
        cluster = await admin.describe_cluster(timeout_s=timeout_s)
        brokers = len(cluster.brokers)
        wanted = topic._replace(replication_factor=min(topic.replication_factor, brokers))
        try:
            largest = await _check(admin, wanted, timeout_s)
        except UnknownTopicOrPartition:
            if wanted != topic and brokers > 1:
                logger.warning(
                    "Creating the topic %s with %d instead of %d replicas, because the cluster has %d brokers",
                    topic.name,
                    brokers,
                    topic.replication_factor,
                    brokers,
                )
            await _create(admin, wanted, timeout_s)
            largest = await _check_new(admin, wanted, timeout_s)
        return PreparedTopic(largest, cluster.cluster_id or "")
    finally:
        await admin.close()


async def _create(admin: AsyncAdmin, topic: TopicSettings, timeout_s: float) -> None:
    config = {**topic.config, _POLICY: _COMPACT}
    try:
        await admin.create_topic(
            topic.name,
            partitions=1,
            replication_factor=topic.replication_factor,
            config=config,
            timeout_s=timeout_s,
        )
    except TopicAlreadyExists:
        logger.info("Another node created the topic %s at the same time", topic.name)


async def _check_new(admin: AsyncAdmin, topic: TopicSettings, timeout_s: float) -> int:
    """Check a topic that some brokers may not know yet, because each of them reads the metadata log by itself."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return await _check(admin, topic, timeout_s)
        except UnknownTopicOrPartition:
            if time.monotonic() >= deadline_s:
                raise
        await asyncio.sleep(_PAUSE_S)


async def _check(admin: AsyncAdmin, topic: TopicSettings, timeout_s: float) -> int:
    """Return the largest batch of records, in bytes. Raises Failure, UnknownTopicOrPartition."""
    found = await admin.describe_topic(topic.name, timeout_s=timeout_s)
    if len(found.partitions) != 1:
        raise Failure(
            f"the topic {topic.name} has {len(found.partitions)} partitions; it must have 1",
            "Delete it if it has no schemas, or choose another topic with kafkastore.topic.",
        )
    if found.replication_factor < topic.replication_factor:
        logger.warning(
            "The topic %s has %d replicas, fewer than the desired %d",
            topic.name,
            found.replication_factor,
            topic.replication_factor,
        )
    settings = await admin.describe_config(ConfigResource.topic(topic.name), timeout_s=timeout_s)
    policy = settings[_POLICY].value
    if policy != _COMPACT:
        raise Failure(
            f"cleanup.policy of the topic {topic.name} is {policy}; it must be compact, or schemas are deleted",
            f"Change it: ottla config set topic {topic.name} cleanup.policy=compact",
        )
    return int(settings[_LARGEST].value or 0)
