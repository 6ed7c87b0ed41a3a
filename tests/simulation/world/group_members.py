"""A consumer's group membership, the machine that the real client runs, on a coordinator without a broker."""

from __future__ import annotations

from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.consumer.assignors import ASSIGNORS
from ottla.clients.consumer.commits import GroupMembership
from ottla.clients.consumer.effects import EffectId, Outbox, Outcome, Refresh, Send
from ottla.clients.consumer.group_member import NO_GENERATION
from ottla.clients.consumer.heartbeat_membership import HeartbeatMembership
from ottla.clients.consumer.heartbeat_requests import ConsumerHeartbeats
from ottla.clients.consumer.membership import Membership
from ottla.clients.consumer.settings import GroupSettings
from ottla.clients.errors import ConnectionLost
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.coordinators.group import Call
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest
from tests.drivers.groups import GroupDriver

VERSIONS: dict[type, int] = {
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 5,
    ConsumerGroupHeartbeatRequest: 1,
}
SESSION_MS, POLL_MS = 10_000, 15_000


class GroupProcess:
    """A process with one consumer of group `g`. `name` is its group.instance.id, or a name that no other process has.

    `run` lets it send what is due, and take the responses; `poll` is what its program does regularly.
    """

    def __init__(
        self, driver: GroupDriver, name: str, topics: list[str], *, assignor: str | None, instance_id: str | None = None
    ) -> None:
        self.driver = driver
        self.name = name
        self.topics = topics
        self.instance_id = instance_id
        self.is_classic = assignor is not None
        self._outbox = Outbox()
        self._view = ClusterView()
        self._waiting: dict[Call, EffectId] = {}
        settings = GroupSettings(
            "g",
            () if assignor is None else (ASSIGNORS[assignor](),),
            Backoff(100, 1_000),
            instance_id=instance_id,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=2_000,
            max_poll_interval_ms=POLL_MS,
            is_broker_assigned=assignor is None,
        )
        self.member: GroupMembership = (
            HeartbeatMembership(settings, self._outbox, ConsumerHeartbeats(settings), name)
            if assignor is None
            else Membership(settings, self._outbox)
        )
        self.refresh()
        self.subscribe(topics)

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to other topics."""
        self.topics = topics
        self.member.subscribe(topics)

    def refresh(self) -> None:
        """Read the topics of the cluster."""
        rows = [
            MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[MetadataResponsePartition(partition_index=p, leader_id=1) for p in topic.partitions],
            )
            for topic in self.driver.image.topics_by_name.values()
        ]
        self._view.apply(MetadataResponse(topics=rows), self.driver.now_ms, is_complete=True)

    def poll(self) -> None:
        """Give up and take partitions, as far as the group wants it."""
        now_ms = self.driver.now_ms
        self.member.polling(True, now_ms)
        for _ in range(10):
            duty = self.member.duty()
            if duty is None:
                break
            self.member.duty_done(duty, now_ms)
            self.member.validate()
        else:
            raise AssertionError(f"{self.name}: duties without end")
        self.member.polling(False, now_ms)

    def run(self, lost: bool = False) -> None:
        """Take responses and send requests. If `lost`, the responses that are there do not arrive."""
        for _ in range(20):
            answered = [call for call in self._waiting if call in self.driver.answers]
            for call in answered:
                self._complete(self._waiting.pop(call), ConnectionLost("lost") if lost else self.driver.answers[call])
            self.member.advance(self.driver.now_ms, self._view)
            self.member.validate()
            effects = self._outbox.take()
            if not effects and not answered:
                return
            for effect in effects:
                if isinstance(effect, Refresh):
                    self.refresh()
                    self._complete(effect.id, None)
                elif isinstance(effect, Send):
                    call = self.driver.send(effect.request, VERSIONS[type(effect.request)], "client")
                    self._waiting[call] = effect.id
        raise AssertionError(f"{self.name} sends requests without end")

    def _complete(self, effect_id: EffectId, outcome: Outcome) -> None:
        self.member.complete(effect_id, outcome, self.driver.now_ms)
        self.member.validate()

    def disconnect(self) -> None:
        """Lose all requests that have no response yet."""
        for call in [call for call in self._waiting if call not in self.driver.answers]:
            self._complete(self._waiting.pop(call), ConnectionLost("the coordinator restarted"))

    def stop(self) -> None:
        """Leave the group, and end. A static member keeps its place."""
        self.member.leave()
        self.run()

    def committable(self) -> frozenset[TopicPartition]:
        """The partitions that the process owns, and for which the coordinator accepts its commit now."""
        member, topics = self.member, self.driver.image.topics_by_name
        owned = [tp for tp in sorted(member.owned) if tp.topic in topics]
        if not owned or member.generation == NO_GENERATION:
            return frozenset()
        rows = [
            OffsetCommitRequestTopic(
                name=tp.topic,
                partitions=[OffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=1)],
            )
            for tp in owned
        ]
        request = OffsetCommitRequest("g", member.generation, member.member_id, self.instance_id, topics=rows)
        answer = self.driver.ask(request, 9)
        accepted = [row.partitions[0].error_code == ErrorCode.NONE for row in answer.topics]
        return frozenset(tp for tp, is_accepted in zip(owned, accepted, strict=True) if is_accepted)
