"""Which partitions each instance of an application has, for interactive queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinators.group.modern import Topics
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import StreamsMember
from ottla.coordinators.group.streams.topics import ConfiguredSubtopology
from ottla.protocol.messages.streams_group_heartbeat import EndpointToPartitions, ResponseEndpoint, TopicPartition


def endpoints(group: StreamsGroup, after: StreamsMember, topics: Topics) -> list[EndpointToPartitions]:
    """The partitions of the members that name an endpoint; `after` is a member as it will be."""
    configured = None if group.configured is None else group.configured.subtopologies
    rows = []
    others = (member for member in group.members.values() if member.member_id != after.member_id)
    for member in (*others, after):
        if member.endpoint is None:
            continue
        row = group.endpoints.get(member.member_id)
        if row is None or member is after:
            row = group.endpoints[member.member_id] = _row(member.endpoint, member, configured or {}, topics)
        rows.append(row)
    return rows


def _row(
    endpoint: tuple[str, int], member: StreamsMember, subtopologies: Mapping[str, ConfiguredSubtopology], topics: Topics
) -> EndpointToPartitions:
    active = {name: sorted(partitions) for name, partitions in member.owned.active.items()}
    standby = {name: sorted(partitions) for name, partitions in member.owned.standby.items()}
    return EndpointToPartitions(
        user_endpoint=ResponseEndpoint(host=endpoint[0], port=endpoint[1]),
        active_partitions=list(_partitions(active, subtopologies, topics)),
        standby_partitions=list(_partitions(standby, subtopologies, topics)),
    )


def _partitions(
    tasks: Mapping[str, list[int]], subtopologies: Mapping[str, ConfiguredSubtopology], topics: Topics
) -> Iterable[TopicPartition]:
    """The partitions of the topics that the tasks read; a topic may have fewer than its subtopology has tasks."""
    for name, indexes in sorted(tasks.items()):
        row = subtopologies.get(name)
        sources = () if row is None else (*row.source_topics, *(topic.name for topic in row.repartition_sources))
        for topic in dict.fromkeys(sources):
            image = topics.by_name.get(topic)
            if image is not None:
                yield TopicPartition(topic=topic, partitions=[index for index in indexes if index in image.partitions])
