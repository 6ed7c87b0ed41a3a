"""A group coordinator's shard without a broker: an in-memory log, a manual clock, and responses by call.

`validate` runs after every event, so that a test fails at the event that breaks an invariant.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.coordinators.events import ParkedEffect
from ottla.coordinators.group import Append, Appended, Call, Effects, GroupConfig, GroupShard, LogLine, Moment, Reply
from ottla.metadata.image import EMPTY_IMAGE, PartitionImage, TopicImage
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

WALL_START_MS = 1_700_000_000_000
_PARTITION = PartitionImage((1,), (1,), 1, 0, 0)


def topic_id(name: str) -> Uuid:
    """The id that the driver gives a topic."""
    return name.encode()[:16].rjust(16, b"\0")


class GroupDriver:
    """Obeys one shard's effects. Times in milliseconds since the start."""

    def __init__(self, config: GroupConfig | None = None, seed: int = 0) -> None:
        self.config = config or GroupConfig()
        self.now_ms = 0
        self.wall_ahead_ms = 0
        """The change of the wall clock."""
        # The producer of each record that is part of a transaction, and the markers before each record, by offset.
        self.in_transactions: dict[int, int] = {}
        self.markers: dict[int, list[tuple[int, bool]]] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.append_error = ErrorCode.NONE
        """If set, appends fail with it."""
        self.answers: dict[Call[Any], Any] = {}
        self.log_lines: list[str] = []
        self.own_effects: list[ParkedEffect] = []
        """Effects that a test executes."""
        self.image = EMPTY_IMAGE
        self._random = random.Random(seed)
        self.shard = self._new_shard()
        self.shard.loaded(self._now())

    def _new_shard(self) -> GroupShard:
        shard = GroupShard(self.config, self._random.randbytes)
        shard.metadata_changed(self.image)
        return shard

    def change_topics(self, **partition_counts: int) -> None:
        """Create topics, or change their numbers of partitions; 0 deletes a topic. Each name has a fixed id."""
        topics = dict(self.image.topics_by_name)
        created = False
        for name, count in partition_counts.items():
            created |= name not in topics
            topics[name] = TopicImage(name, topic_id(name), dict.fromkeys(range(count), _PARTITION))
            if not count:
                del topics[name]
        by_id = {topic.topic_id: topic for topic in topics.values()}
        self.image = replace(self.image, offset=self.image.offset + 1, topics_by_name=topics, topics_by_id=by_id)
        self.shard.metadata_changed(self.image, has_new_topics=created)

    def _now(self) -> Moment:
        return Moment(self.now_ms, WALL_START_MS + self.now_ms + self.wall_ahead_ms)

    def send(self, request: object, version: int = 9, client_id: str = "client") -> Call[Any]:
        """Send one request; its response appears in `answers`, immediately or later."""
        call = Call(request, version, client_id, "/127.0.0.1")
        self.obey(self.shard.step(call, self._now()))
        return call

    def ask(self, request: object, version: int = 9, client_id: str = "client") -> Any:
        """Send one request that is answered immediately, and return the response."""
        call = self.send(request, version, client_id)
        return self.answers[call]

    def obey(self, effects: Effects) -> None:
        """Append, replay and answer in the order of the effects."""
        self._obey(effects)
        self.shard.validate()

    def unload(self, error: ErrorCode) -> None:
        """Unload the partition; the shard is dead afterwards."""
        self._obey(self.shard.unload(error, self._now()))

    def _obey(self, effects: Effects) -> None:
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            if isinstance(effect, Reply):
                assert effect.call not in self.answers, "answered twice"
                self.answers[effect.call] = effect.response
            elif isinstance(effect, LogLine):
                self.log_lines.append(effect.message % effect.arguments)
            elif isinstance(effect, Append):
                pending.extendleft(reversed(self._append(effect)))
            else:
                self.own_effects.append(effect)

    def _append(self, append: Append) -> Effects:
        base = len(self.log)
        if self.append_error is ErrorCode.NONE:
            self.log.extend(append.records)
            if append.producer_id >= 0:
                self.in_transactions.update(dict.fromkeys(range(base, len(self.log)), append.producer_id))
        return self.shard.handle_appended(Appended(append.id, base, self.append_error), self._now())

    def advance(self, duration_ms: int) -> None:
        """Advance the time; timers run in their order."""
        end_ms = self.now_ms + duration_ms
        while True:
            next_ms = self.shard.next_timer_ms()
            if next_ms is None or next_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, next_ms)
            self.obey(self.shard.handle_timer(self._now()))
        self.now_ms = end_ms

    def replayed(self) -> GroupShard:
        """A new shard that has replayed the log."""
        shard = self._new_shard()
        for offset, (key, value) in enumerate(self.log):
            for producer_id, commit in self.markers.get(offset, ()):
                shard.end_transaction(producer_id, commit=commit)
            shard.replay(key, value, offset, producer_id=self.in_transactions.get(offset, -1))
        for producer_id, commit in self.markers.get(len(self.log), ()):
            shard.end_transaction(producer_id, commit=commit)
        return shard

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Write a transaction marker."""
        self.markers.setdefault(len(self.log), []).append((producer_id, commit))
        self.shard.end_transaction(producer_id, commit=commit)
        self.shard.validate()

    def restart(self) -> None:
        """Restart the coordinator: waiting requests are lost, and the log is replayed."""
        self.shard = self.replayed()
        self.obey(self.shard.loaded(self._now()))


@dataclass(eq=False)
class Joiner:
    """One client of a group, from the coordinator's point of view."""

    driver: GroupDriver
    group_id: str = "g"
    _: KW_ONLY
    instance_id: str | None = None
    client_id: str = "client"
    version: int = 9
    protocols: tuple[tuple[str, bytes], ...] = (("range", b""),)
    protocol_type: str = "consumer"
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    member_id: str = field(default="", init=False)
    generation: int = field(default=-1, init=False)

    def join_request(self) -> JoinGroupRequest:
        """The client's next JoinGroup request."""
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in self.protocols],
        )

    def join(self) -> Call[Any]:
        """Send JoinGroup; if the response assigns a member id, send it again with the id."""
        call = self.driver.send(self.join_request(), self.version, self.client_id)
        answer = self.driver.answers.get(call)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            call = self.driver.send(self.join_request(), self.version, self.client_id)
        return call

    def joined(self, call: Call[Any]) -> Any:
        """The response to a JoinGroup; stores its member id and generation."""
        answer = self.driver.answers[call]
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None) -> Call[Any]:
        """Send SyncGroup; a leader passes the assignment."""
        rows = [SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=rows,
        )
        return self.driver.send(request, 5)

    def heartbeat(self) -> ErrorCode:
        """Send Heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode(self.driver.ask(request, 4).error_code)

    def leave(self) -> ErrorCode:
        """Send LeaveGroup."""
        members = [MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)]
        answer = self.driver.ask(LeaveGroupRequest(group_id=self.group_id, members=members), 5)
        return ErrorCode(answer.error_code or answer.members[0].error_code)
