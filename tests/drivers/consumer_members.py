"""Members of consumer groups (KIP-848) of either protocol, from the coordinator's point of view."""

from __future__ import annotations

from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
    decode_assignment,
    encode_subscription,
)
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from tests.drivers.groups import GroupDriver, Joiner, topic_id

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
        self.assigned: dict[Uuid, set[int]] = {}
        """The assignment of the last response that had one."""
        self.clings = False
        self.needs_full = False
        """The last response was lost or an error: the next heartbeat is a full one, as with real clients."""

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
        if joins or full or self.needs_full:
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
        self.needs_full = response.error_code != ErrorCode.NONE
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            self.member_id = response.member_id or self.member_id
            if response.assignment is not None:
                self.assigned = {row.topic_id: set(row.partitions) for row in response.assignment.topic_partitions}
            if not self.clings:
                self.owned = self.assigned
        elif response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned, self.assigned = 0, {}, {}
        return response

    def lose_response(self) -> None:
        """Send the next heartbeat, whose response is lost."""
        self.driver.ask(self.request(), 1, self.member_id)
        self.needs_full = True

    def beat(self, **fields: Any) -> ErrorCode:
        """Send the next heartbeat; returns its error."""
        return ErrorCode(self.send(self.request(**fields)).error_code)

    def leave(self, epoch: int = -1) -> ErrorCode:
        """Leave; with the epoch -2 as a static member that returns."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        return ErrorCode(self.driver.ask(request, 1, self.member_id).error_code)


class ClassicConsumer(Joiner):
    """A consumer of the classic protocol that subscribes to topics, and gives up what it must."""

    def __init__(self, driver: GroupDriver, *topics: str, **options: str | int | None) -> None:
        super().__init__(driver, **options)  # type: ignore[arg-type]
        self.topics = list(topics)
        self.owned: dict[str, list[int]] = {}
        self.protocols = (("range", self.metadata()),)

    def metadata(self) -> bytes:
        rows = [ConsumerProtocolSubscriptionTopicPartition(topic=t, partitions=p) for t, p in self.owned.items()]
        return encode_subscription(ConsumerProtocolSubscription(topics=self.topics, owned_partitions=rows), 1)

    def enter(self) -> ErrorCode:
        """Join and synchronize with a group whose join phase is not awaited."""
        self.protocols = (("range", self.metadata()),)
        answer = self.joined(self.join())
        if answer.error_code:
            return ErrorCode(answer.error_code)
        return self.take()

    def take(self, assignments: dict[str, bytes] | None = None) -> ErrorCode:
        """Synchronize, and take the assigned partitions."""
        answer = self.driver.answers[self.sync(assignments or {})]
        if answer.error_code == ErrorCode.NONE:
            rows = decode_assignment(answer.assignment).assigned_partitions
            self.owned = {row.topic: row.partitions for row in rows}
        return ErrorCode(answer.error_code)

    def beat(self) -> ErrorCode:
        """Send a heartbeat, and join again if the response says so."""
        error = self.heartbeat()
        return self.enter() if error is ErrorCode.REBALANCE_IN_PROGRESS else error


def settle(*members: Member, rounds: int = 4) -> None:
    """Let all members send heartbeats, until they have what they shall have."""
    for _ in range(rounds):
        members[0].driver.advance(INTERVAL_MS)
        for member in members:
            assert member.beat() in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH)
