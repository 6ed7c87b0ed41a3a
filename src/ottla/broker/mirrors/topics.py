"""Reads the topics of a source that belong to a mirror."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from ottla.common.errors import ErrorCode, error_code
from ottla.common.ids import INTERNAL_TOPICS
from ottla.controller.mirrors import SourceTopic
from ottla.metadata.image import TOPIC
from ottla.metadata.mirrors import is_read_only
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from ottla.broker.mirrors.source import Source
    from ottla.protocol.messages.describe_configs import DescribeConfigsResponse
    from ottla.protocol.messages.metadata import MetadataResponse

# The sources of a setting that a topic has itself, rather than from its broker.
_OF_TOPIC: Final = 1
_DESCRIBED_AT_ONCE: Final = 200
_GONE: Final = (
    "The source does not have the topic any more, or its user has no right DESCRIBE on it, and the copy stays; check "
    "the right first. Promote the copy of a deleted topic with `ottla mirror promote --unplanned`, or exclude it with "
    "`ottla mirror alter --topics` and delete it"
)


async def read_topics(
    source: Source, metadata: MetadataResponse, pattern: re.Pattern[str] | None, known: Collection[str]
) -> tuple[list[SourceTopic], dict[str, str]]:
    """The topics that match or are `known`, with their settings; and the problem of each one that cannot be read.

    All names are the source's.

    A topic without a leader for some partition is a problem too: its leader epoch is unknown. Raises NetworkError.
    """
    problems = dict.fromkeys(known, _GONE)
    topics = {}
    for topic in metadata.topics:
        name = topic.name or ""
        wanted = name in problems or (pattern is not None and pattern.fullmatch(name) is not None)
        if not wanted or topic.is_internal or name in INTERNAL_TOPICS:
            continue
        problems.pop(name, None)
        rows = sorted(topic.partitions, key=lambda row: row.partition_index)
        if topic.error_code or [row.partition_index for row in rows] != list(range(len(rows))):
            problems[name] = f"The source returned {error_code(topic.error_code).name}"
        elif any(row.leader_epoch < 0 for row in rows):
            problems[name] = "The source does not know the leader epoch of each partition"
        else:
            topics[name] = topic.topic_id, tuple(row.leader_epoch for row in rows)
    settings: dict[str, dict[str, str]] = {}
    names = list(topics)
    for start in range(0, len(names), _DESCRIBED_AT_ONCE):
        settings |= await _describe(source, names[start : start + _DESCRIBED_AT_ONCE], problems)
    found = [
        SourceTopic(
            name=name,
            topic_id=topics[name][0],
            leader_epochs=topics[name][1],
            settings=own,
            is_read_only=is_read_only(own),
        )
        for name, own in settings.items()
    ]
    return found, problems


def _refused(error: ErrorCode) -> str:
    right = "; give its user DESCRIBE_CONFIGS on the topic" if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED else ""
    return f"The source returned {error.name} for the settings of the topic{right}"


async def _describe(source: Source, names: Iterable[str], problems: dict[str, str]) -> dict[str, dict[str, str]]:
    """The settings of each topic that it has itself."""
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names
    ]
    response: DescribeConfigsResponse = await source.ask(DescribeConfigsRequest(resources=resources))
    settings = {}
    for result in response.results:
        if result.error_code:
            problems[result.resource_name] = _refused(error_code(result.error_code))
            continue
        settings[result.resource_name] = {
            row.name: row.value for row in result.configs if row.config_source == _OF_TOPIC and row.value is not None
        }
    return settings
