"""StreamsGroupHeartbeat (88), version 0: everything that a member of a streams group says. KIP-1071.

Without the finalized feature streams.version, or without `streams` in group.coordinator.rebalance.protocols, it is
advertised and refused, because a client that does not find the API may wait for another broker that has it.

The response names internal topics that are missing. The broker requests their creation, and does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import FILTERED, allowed_names, allowed_on_cluster
from ottla.broker.authorization_guard import refused
from ottla.broker.member_requests import submit
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.ids import INTERNAL_TOPICS, is_topic_name
from ottla.coordinators.group.streams.events import StreamsHeartbeat, StreamsOutcome
from ottla.coordinators.group.streams.topics import Status
from ottla.protocol.messages.streams_group_heartbeat import Status as ResponseStatus
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import StreamsGroupPorts


def handle(
    broker: StreamsGroupPorts, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | Completion[StreamsGroupHeartbeatResponse]:
    """Pass the request to the group's shard, and create the internal topics that the group misses."""
    if not broker.settings.serves_streams_groups():
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    refusal: StreamsGroupHeartbeatResponse | None = refused(broker, context, request)
    if refusal is not None:
        return refusal
    problem = None if request.topology is None else _problem(request.topology)
    if problem is not None:
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY, error_message=problem)
    if request.topology is not None and broker.security.authorizer is not None:
        names = _topics(request.topology)
        if len(allowed_names(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, names)) < len(names):
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    outcome = submit(broker.groups, context, request.group_id, StreamsHeartbeat(request))
    return outcome.then(lambda done: _with_creation(broker, context, done))


def _topics(topology: Topology) -> dict[str, None]:
    return dict.fromkeys(
        name
        for row in topology.subtopologies
        for name in (
            *row.source_topics,
            *row.repartition_sink_topics,
            *(topic.name for topic in row.repartition_source_topics),
            *(topic.name for topic in row.state_changelog_topics),
        )
    )


def _problem(topology: Topology) -> str | None:
    """Return what is wrong with the names of the topics, in Kafka's words."""
    names = _topics(topology)
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        return f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
    invalid = [name for name in names if not is_topic_name(name)]
    return f"Topic names {','.join(invalid)} are not valid topic names." if invalid else None


def _with_creation(
    broker: StreamsGroupPorts, context: RequestContext, outcome: StreamsOutcome
) -> StreamsGroupHeartbeatResponse:
    response = outcome.response
    if not outcome.missing:
        return response
    wanted = outcome.missing
    if not allowed_on_cluster(broker, context, Operation.CREATE, FILTERED):
        names = dict.fromkeys(topic.name for topic in wanted)
        creatable = allowed_names(broker, context, Operation.CREATE, ResourceType.TOPIC, names)
        wanted = tuple(topic for topic in wanted if topic.name in creatable)
        if len(creatable) < len(names):
            _report_uncreatable(response, [name for name in names if name not in creatable])
    errors = broker.controller.streams_topics.create(wanted, 2 * outcome.heartbeat_interval_ms, broker.clock)
    for status in response.status or ():
        if errors and status.status_code == Status.MISSING_INTERNAL_TOPICS:
            details = ", ".join(f"{name} ({error})" for name, error in errors.items())
            status.status_detail += f"; Creation failed: {details}."
    return response


def _report_uncreatable(response: StreamsGroupHeartbeatResponse, names: list[str]) -> None:
    """Say in the status that the client may not create internal topics, in Kafka's words."""
    text = f"Unauthorized to CREATE on topics {', '.join(names)}."
    response.status = response.status or []
    for status in response.status:
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {text}"
            return
    response.status.append(ResponseStatus(status_code=Status.MISSING_INTERNAL_TOPICS, status_detail=text))
