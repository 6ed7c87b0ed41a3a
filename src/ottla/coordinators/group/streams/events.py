"""Requests of streams groups that are not requests of Kafka's protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.common.request import Request
from ottla.coordinators.group.streams.topics import InternalTopic
from ottla.protocol.messages.streams_group_describe import DescribedGroup
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse


class StreamsOutcome(NamedTuple):
    """The response to a heartbeat, and the internal topics that the broker must create."""

    response: StreamsGroupHeartbeatResponse
    missing: tuple[InternalTopic, ...] = ()
    heartbeat_interval_ms: int = 0


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat(Request[StreamsOutcome]):
    """A heartbeat of a member of a streams group; the response is a `StreamsOutcome`."""

    request: StreamsGroupHeartbeatRequest

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self.request.group_id


@dataclass(frozen=True, slots=True)
class DescribeStreamsGroup(Request[DescribedGroup]):
    """Describe one streams group and its members; the response is a DescribedGroup of StreamsGroupDescribe."""

    group_id: str
