"""A query in Kafka: the settings of its clients, its group, and where a query without a checkpoint starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.common.ids import TopicPartition
from ottla.connect.spark.settings import SparkSettings
from ottla.connect.worker.client_settings import CONSUMER, PRODUCER, client_settings
from ottla.connect.worker.environment import TaskEnvironment
from ottla.spark.exactly_once import PREFIX
from ottla.spark.offsets import EARLIEST, LATEST, positions

_NOT_FOR_QUERIES: Final = frozenset(
    {
        "auto.offset.reset", "client.id", "enable.auto.commit", "enable.idempotence", "group.id", "transactional.id",
        "transaction.timeout.ms",
    }
)  # fmt: skip
"""The query decides about these."""


def group_of(name: str) -> str:
    """Return the group to which a sink commits what is written, as every sink connector."""
    return f"connect-{name}"


def read_options(environment: TaskEnvironment, settings: SparkSettings) -> dict[str, str]:
    """Return the options of a stream of the topics of a sink. Raises ClientError."""
    found = client_settings(environment.worker, environment.connector, CONSUMER, {}, CONSUMER_OPTIONS)
    listed = ",".join(settings.topics)
    subscribed = {"subscribe": listed} if listed else {"subscribePattern": settings.pattern}
    reset = environment.connector.get("consumer.override.auto.offset.reset", "earliest")
    return {
        **_as_options(found),
        **subscribed,
        "commitGroup": group_of(settings.name),
        "startingOffsets": _starting_offsets(environment, settings, reset),
    }


def write_options(environment: TaskEnvironment, settings: SparkSettings) -> dict[str, str]:
    """Return the options of exactly-once writes of a source."""
    found = client_settings(environment.worker, environment.connector, PRODUCER, {}, PRODUCER_OPTIONS)
    return {
        **_as_options(found),
        "exactlyOnce": "true",
        "exactlyOnceName": settings.name,
        "transactionalIdPrefix": f"{PREFIX}connect-{settings.name}.",
    }


def _as_options(found: Mapping[str, object]) -> dict[str, str]:
    return {
        f"kafka.{name}": (str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in found.items()
        if name not in _NOT_FOR_QUERIES
    }


def _starting_offsets(environment: TaskEnvironment, settings: SparkSettings, reset: str) -> str:
    """Return where a query without a checkpoint starts: at the offsets of its group, as JSON, else earliest or latest.

    A query with a checkpoint ignores it.
    """
    otherwise = LATEST if reset == "latest" else EARLIEST
    if not settings.topics:
        return "latest" if otherwise == LATEST else "earliest"
    with environment.clients.admin() as admin:
        committed = admin.list_group_offsets(group_of(settings.name))
        topics = admin.describe_topics(settings.topics)
    offsets = {tp: each.offset for tp, each in committed.items() if tp.topic in settings.topics}
    if not offsets:
        return "latest" if otherwise == LATEST else "earliest"
    rows: dict[str, dict[str, int]] = {}
    for name, topic in topics.items():
        for each in topic.partitions:
            rows.setdefault(name, {})[str(each.partition)] = next(
                (offset for tp, offset in offsets.items() if (tp.topic, tp.partition) == (name, each.partition)),
                otherwise,
            )
    return json.dumps(rows)


def commit(environment: TaskEnvironment, settings: SparkSettings, report: Mapping[str, Any]) -> None:
    """Commit what a query that has stopped has written. Raises ClientError.

    The source of a running query commits the offsets of a micro-batch when it plans the next one.
    """
    found: dict[TopicPartition, int] = {}
    for source in report.get("sources", ()):
        found |= positions(source.get("endOffset"))
    if found:
        with environment.clients.admin() as admin:
            admin.alter_group_offsets(group_of(settings.name), found)
