"""Describes streams groups (KIP-1071): members with the partitions that their active tasks read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.clients.admin.model import GroupDescription, GroupMember, GroupType
from ottla.clients.admin.share_groups import described
from ottla.clients.errors import BrokerError, error_for
from ottla.common.ids import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages import streams_group_describe

PROTOCOL_TYPE = "streams"
# Brokers have no other assignor for streams groups.
ASSIGNOR = "sticky"


def ask(groups: Sequence[str]) -> Message:
    return streams_group_describe.StreamsGroupDescribeRequest(list(groups))


def read(response: Any, _: Sequence[str]) -> Iterator[tuple[str, GroupDescription | BrokerError]]:
    for row in response.groups:
        if row.error_code:
            yield row.group_id, error_for(row.error_code, row.error_message)
            continue
        subtopologies = () if row.topology is None else row.topology.subtopologies or ()
        sources = {
            each.subtopology_id: (*each.source_topics, *(topic.name for topic in each.repartition_source_topics))
            for each in subtopologies
        }
        topics = tuple(sorted({topic for names in sources.values() for topic in names}))
        members = tuple(
            GroupMember(
                m.member_id, m.instance_id, m.client_id, m.client_host, topics,
                _partitions(m.assignment, sources), m.member_epoch, _partitions(m.target_assignment, sources),
            )
            for m in row.members
        )  # fmt: skip
        yield row.group_id, described(row, GroupType.STREAMS, PROTOCOL_TYPE, ASSIGNOR, members)


def _partitions(assignment: Any, sources: Mapping[str, Sequence[str]]) -> tuple[TopicPartition, ...]:
    """The partitions that the active tasks read, sorted."""
    return tuple(
        sorted(
            TopicPartition(topic, index)
            for row in assignment.active_tasks
            for topic in sources.get(row.subtopology_id, ())
            for index in row.partitions
        )
    )
