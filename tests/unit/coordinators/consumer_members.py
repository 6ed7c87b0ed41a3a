"""A member of a consumer group (KIP-848), from the coordinator's point of view."""

from __future__ import annotations

from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.testing.groups import GroupDriver, topic_id

INTERVAL_MS = 5_000


class Member:
    """Sends heartbeats, and gives up partitions with the next one, unless it `clings` to them."""

    def __init__(
        self,
        driver: GroupDriver,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        group_id: str = "g",
    ) -> None:
        self.driver = driver
        self.member_id = member_id
        self.topics: list[str] | None = list(topics) if regex is None else None
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.group_id = group_id
        self.epoch = 0
        self.owned: dict[Uuid, set[int]] = {}
        self.clings = False

    @property
    def partitions(self) -> dict[str, list[int]]:
        """The partitions that it owns, by topic name."""
        names = {topic_id(name): name for name in self.driver.image.topics_by_name}
        return {names.get(topic, "?"): sorted(parts) for topic, parts in sorted(self.owned.items()) if parts}

    def request(self, *, full: bool = False, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat."""
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if joins or full:
            request.rebalance_timeout_ms = 45_000
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = self.regex
            request.server_assignor = self.assignor
        request.topic_partitions = [
            RequestTopicPartitions(topic_id=topic, partitions=sorted(parts)) for topic, parts in self.owned.items()
        ]
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and obey the response."""
        response: ConsumerGroupHeartbeatResponse = self.driver.ask(request, 1, self.member_id)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            self.member_id = response.member_id or self.member_id
            if response.assignment is not None and not self.clings:
                self.owned = {row.topic_id: set(row.partitions) for row in response.assignment.topic_partitions}
        elif response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, {}
        return response

    def beat(self, **fields: Any) -> ErrorCode:
        """Send the next heartbeat; returns its error."""
        return ErrorCode(self.send(self.request(**fields)).error_code)

    def leave(self, epoch: int = -1) -> ErrorCode:
        """Leave; with the epoch -2 as a static member that returns."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        return ErrorCode(self.driver.ask(request, 1, self.member_id).error_code)


def settle(*members: Member, rounds: int = 4) -> None:
    """Let all members send heartbeats, until they have what they shall have."""
    for _ in range(rounds):
        members[0].driver.advance(INTERVAL_MS)
        for member in members:
            assert member.beat() in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH)
