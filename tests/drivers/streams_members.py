"""Members of streams groups (KIP-1071), from the coordinator's point of view."""

from __future__ import annotations

from typing import Any

from ottla.common.errors import ErrorCode
from ottla.coordinators.group.streams.events import StreamsHeartbeat, StreamsOutcome
from ottla.coordinators.group.streams.tasks import TaskSets, task_sets
from ottla.coordinators.group.streams.topics import InternalTopic, Status
from ottla.protocol.messages import streams_group_heartbeat as h
from tests.drivers.groups import GroupDriver

GROUP = "g"


def word_count(*, epoch: int = 0, source: str = "in") -> h.Topology:
    """Two subtopologies with a repartition topic between them; the second one has state."""
    config = h.KeyValue(key="cleanup.policy", value="compact")
    repartition = h.TopicInfo(name="words")
    return h.Topology(
        epoch=epoch,
        subtopologies=[
            h.Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=["words"]),
            h.Subtopology(
                subtopology_id="1",
                repartition_source_topics=[repartition],
                state_changelog_topics=[h.TopicInfo(name="counts", topic_configs=[config])],
            ),
        ],
    )


class StreamsMember:
    """Sends heartbeats, and gives up tasks with the next one, unless it `clings` to them."""

    def __init__(
        self, driver: GroupDriver, member_id: str, *, process: str | None = None, topology: h.Topology | None = None
    ) -> None:
        self.driver = driver
        self.member_id = member_id
        self.process = member_id if process is None else process
        self.topology = word_count() if topology is None else topology
        self.endpoint: h.RequestEndpoint | None = None
        self.epoch = 0
        self.endpoint_epoch = -1
        self.active: TaskSets = {}
        self.standby: TaskSets = {}
        self.assigned: tuple[TaskSets, TaskSets] = ({}, {})
        self.statuses: dict[Status, str] = {}
        self.endpoints: list[h.EndpointToPartitions] | None = None
        self.missing: tuple[InternalTopic, ...] = ()
        self.clings = False

    @property
    def tasks(self) -> str:
        """The tasks that it has, e.g. `0_1 1_0 standby 1_1`."""
        parts = [f"{name}_{index}" for name in sorted(self.active) for index in sorted(self.active[name])]
        replicas = [f"{name}_{index}" for name in sorted(self.standby) for index in sorted(self.standby[name])]
        return " ".join([*parts, *(["standby", *replicas] if replicas else [])])

    def request(self, **fields: Any) -> h.StreamsGroupHeartbeatRequest:
        """The next heartbeat."""
        joins = self.epoch == 0
        request = h.StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=self.endpoint_epoch,
            active_tasks=_rows(self.active),
            standby_tasks=_rows(self.standby),
            warmup_tasks=[],
        )
        if joins:
            request.rebalance_timeout_ms = 45_000
            request.process_id = self.process
            request.topology = self.topology
            request.user_endpoint = self.endpoint
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    def send(self, request: h.StreamsGroupHeartbeatRequest) -> h.StreamsGroupHeartbeatResponse:
        """Send a heartbeat and obey the response."""
        outcome = self.driver.ask(StreamsHeartbeat(request), 0, self.member_id)
        assert isinstance(outcome, StreamsOutcome)
        response = outcome.response
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.forget()
        if response.error_code:
            return response
        self.epoch, self.endpoint_epoch = response.member_epoch, response.endpoint_information_epoch
        self.missing = outcome.missing
        self.statuses = {Status(row.status_code): row.status_detail for row in response.status or ()}
        self.endpoints = response.partitions_by_user_endpoint
        if response.active_tasks is not None:
            self.assigned = task_sets(response.active_tasks), task_sets(response.standby_tasks or ())
        if not self.clings:
            self.active, self.standby = self.assigned
        return response

    def beat(self, **fields: Any) -> ErrorCode:
        """Send the next heartbeat; returns its error."""
        return ErrorCode(self.send(self.request(**fields)).error_code)

    def lose_response(self) -> None:
        """Send the next heartbeat, whose response is lost."""
        self.driver.ask(StreamsHeartbeat(self.request()), 0, self.member_id)

    def leave(self, **fields: Any) -> ErrorCode:
        """Leave the group."""
        request = h.StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=-1)
        for name, value in fields.items():
            setattr(request, name, value)
        outcome = self.driver.ask(StreamsHeartbeat(request), 0, self.member_id)
        self.forget()
        return ErrorCode(outcome.response.error_code)

    def forget(self) -> None:
        """Lose the epoch and the tasks, as after a restart of the client."""
        self.epoch, self.active, self.standby, self.assigned = 0, {}, {}, ({}, {})


def _rows(tasks: TaskSets) -> list[h.RequestTaskIds]:
    return [h.RequestTaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def settle(*members: StreamsMember, rounds: int = 5, interval_ms: int = 5_000) -> None:
    """Let all members send heartbeats, until they have what they shall have."""
    for _ in range(rounds):
        members[0].driver.advance(interval_ms)
        for member in members:
            assert member.beat() in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH)
