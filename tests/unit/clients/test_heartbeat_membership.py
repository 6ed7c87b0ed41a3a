"""One member of a KIP-848 group: heartbeats, reconciliation, removal, and each event in each state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.consumer.core import ConsumerCore
from ottla.clients.consumer.effects import Effect, ForgetCoordinator, Outbox, Refresh, Send
from ottla.clients.consumer.group_member import Duty
from ottla.clients.consumer.heartbeat_membership import MOVES, HeartbeatMembership, MemberState
from ottla.clients.consumer.heartbeat_requests import ConsumerHeartbeats
from ottla.clients.consumer.settings import GroupSettings, read_settings
from ottla.clients.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnavailable,
    ClientError,
    ConfigurationError,
    ConnectionLost,
    IllegalGeneration,
    RequestTimedOut,
    UnsupportedByBroker,
)
from ottla.clients.offsets import OffsetAndMetadata
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition, Uuid
from ottla.protocol.message import Message
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup

S = MemberState
T = (1).to_bytes(16, "big")
U = (2).to_bytes(16, "big")
INTERVAL_MS = 5_000


def assignment(**partitions: Iterable[int]) -> Assignment:
    ids = {"t": T, "u": U}
    rows = [ResponseTopicPartitions(topic_id=ids[name], partitions=list(ps)) for name, ps in partitions.items()]
    return Assignment(topic_partitions=rows)


class Driven:
    """A member whose requests are answered by hand."""

    def __init__(self, **settings: object) -> None:
        self.outbox = Outbox()
        self.settings = GroupSettings(
            "g",
            (),
            Backoff(100, 1_000),
            is_broker_assigned=True,
            max_poll_interval_ms=60_000,
            **settings,  # type: ignore[arg-type]
        )
        self.member = HeartbeatMembership(self.settings, self.outbox, ConsumerHeartbeats(self.settings), "me")
        self.view = ClusterView()
        self.now_ms = 0.0
        self.sent: list[Send] = []
        self.others: list[Effect] = []
        self.story: list[tuple[str, list[str]]] = []
        self.know("t", T)

    def know(self, name: str, topic_id: Uuid, partitions: int = 4) -> None:
        rows = [MetadataResponsePartition(partition_index=p, leader_id=1) for p in range(partitions)]
        topic = MetadataResponseTopic(name=name, topic_id=topic_id, partitions=rows)
        self.view.apply(MetadataResponse(topics=[topic]), self.now_ms)

    def advance(self, ms: float = 0) -> None:
        self.now_ms += ms
        self.member.advance(self.now_ms, self.view)
        for effect in self.outbox.take():
            (self.sent if isinstance(effect, Send) else self.others).append(effect)  # type: ignore[arg-type]
        self.member.validate()

    def poll(self, listener: Callable[[Duty], None] | None = None) -> None:
        self.member.polling(True, self.now_ms)
        for _ in range(10):
            duty = self.member.duty()
            if duty is None:
                break
            if listener is not None:
                listener(duty)
            self.story.append((duty.kind, [str(tp) for tp in duty.partitions]))
            self.member.duty_done(duty, self.now_ms)
            self.member.validate()
        else:
            raise AssertionError("duties without end")
        self.member.polling(False, self.now_ms)
        self.advance()

    def last(self) -> ConsumerGroupHeartbeatRequest:
        request = self.sent[-1].request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return request

    def answer(self, given: Assignment | None = None, epoch: int = 1, error: ErrorCode = ErrorCode.NONE) -> None:
        response = ConsumerGroupHeartbeatResponse(
            error_code=error, member_id="me", member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=given
        )
        self.member.complete(self.sent[-1].id, response, self.now_ms)
        self.advance()

    def fail(self, error: ClientError) -> None:
        self.member.complete(self.sent[-1].id, error, self.now_ms)
        self.advance()


def joined(given: Assignment | None = None, **settings: object) -> Driven:
    """A member in STABLE that owns its assignment: t-0 and t-1 unless another one is given."""
    driven = Driven(**settings)
    driven.member.subscribe(["t"])
    driven.poll()
    driven.answer(given or assignment(t=[0, 1]))
    driven.poll()
    driven.answer()
    assert driven.member.state is S.STABLE
    return driven


def owned(driven: Driven) -> list[str]:
    return sorted(str(tp) for tp in driven.member.owned)


def test_first_heartbeat_has_all_fields_and_later_ones_only_what_changed() -> None:
    driven = Driven(instance_id="i", rack="r", remote_assignor="range")
    driven.member.subscribe(["t"])
    driven.advance()
    assert driven.sent == [], "a consumer that is not polled does not join"
    driven.poll()
    first = driven.last()
    assert (first.group_id, first.member_id, first.member_epoch, first.instance_id) == ("g", "me", 0, "i")
    assert (first.rack_id, first.rebalance_timeout_ms, first.server_assignor) == ("r", 60_000, "range")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex, first.topic_partitions) == (["t"], "", [])
    driven.answer(assignment(t=[0, 1]))
    driven.poll()
    second = driven.last()
    assert (second.member_epoch, second.subscribed_topic_names, second.rebalance_timeout_ms) == (1, None, -1)
    assert second.topic_partitions is not None
    assert [(row.topic_id, row.partitions) for row in second.topic_partitions] == [(T, [0, 1])]
    driven.answer()
    driven.advance(INTERVAL_MS)
    third = driven.last()
    assert len(driven.sent) == 3
    assert (third.topic_partitions, third.subscribed_topic_names, third.subscribed_topic_regex) == (None, None, None)


def test_heartbeats_follow_the_interval_of_the_broker() -> None:
    driven = joined()
    count = len(driven.sent)
    driven.advance(INTERVAL_MS - 1)
    assert len(driven.sent) == count
    assert driven.member.next_timer_ms() == driven.now_ms + 1
    driven.advance(1)
    assert len(driven.sent) == count + 1
    driven.advance(10 * INTERVAL_MS)
    assert len(driven.sent) == count + 1, "one heartbeat is in flight at a time"


def test_partition_is_revoked_by_a_poll_before_the_coordinator_hears_of_it() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.answer(assignment(t=[0]), epoch=2)
    assert driven.member.state is S.RECONCILING
    driven.advance(INTERVAL_MS)
    assert driven.last().topic_partitions is None, "the member still owns the partition"
    driven.answer(epoch=2)
    assert owned(driven) == ["t-0", "t-1"]
    assert driven.member.needs_poll
    driven.poll()
    assert driven.story[-2:] == [("revoked", ["t-1"]), ("assigned", [])]
    assert [row.partitions for row in driven.last().topic_partitions or []] == [[0]]
    driven.answer(epoch=2)
    assert driven.member.state is S.STABLE


def test_assignment_that_changes_while_a_listener_runs_is_reconciled_again() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.answer(assignment(t=[0]), epoch=2)

    def listener(duty: Duty) -> None:
        if duty.kind == "revoked" and driven.member.generation == 2:
            driven.advance(INTERVAL_MS)
            driven.answer(assignment(t=[0, 1, 2]), epoch=3)

    driven.poll(listener)
    driven.answer(epoch=3)
    driven.poll()
    assert driven.story[-3:] == [("revoked", ["t-1"]), ("assigned", ["t-2"]), ("assigned", ["t-1"])]
    assert owned(driven) == ["t-0", "t-1", "t-2"]
    driven.answer(epoch=3)
    assert driven.member.state is S.STABLE


def test_assignment_that_returns_to_what_is_owned_is_acknowledged_without_a_poll() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.answer(assignment(t=[0]), epoch=2)
    driven.advance(INTERVAL_MS)
    driven.answer(assignment(t=[0, 1]), epoch=3)
    assert [row.partitions for row in driven.last().topic_partitions or []] == [[0, 1]]
    assert driven.member.state is S.STABLE


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_removed_member_loses_its_partitions_then_joins_with_epoch_zero(code: ErrorCode) -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.answer(error=code)
    assert driven.member.state is S.FENCED
    assert driven.member.generation == -1
    count = len(driven.sent)
    driven.advance(60_000)
    assert len(driven.sent) == count, "it joins again after a poll has dropped the partitions"
    driven.poll()
    assert driven.story[-1] == ("lost", ["t-0", "t-1"])
    assert driven.last().member_epoch == 0
    assert driven.last().topic_partitions == []
    assert driven.last().subscribed_topic_names == ["t"]


def test_member_that_is_removed_while_it_joins_pauses_before_the_next_attempt() -> None:
    driven = Driven()
    driven.member.subscribe(["t"])
    driven.poll()
    driven.answer(error=ErrorCode.UNKNOWN_MEMBER_ID)
    driven.poll()
    assert len(driven.sent) == 1
    driven.advance(200)
    assert len(driven.sent) == 2


def test_refused_commit_of_the_current_epoch_removes_the_member() -> None:
    driven = joined()
    driven.member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, (7, "me"))
    driven.member.commit_refused(ErrorCode.STALE_MEMBER_EPOCH, (1, "me"))
    assert driven.member.state is S.STABLE
    driven.member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, (1, "me"))
    assert driven.member.state is S.FENCED


def test_member_leaves_after_max_poll_interval_and_rejoins_with_the_next_poll() -> None:
    driven = joined()
    for _ in range(11):
        driven.advance(INTERVAL_MS)
        driven.answer()
    driven.advance(INTERVAL_MS)
    assert driven.member.state is S.STALE
    assert driven.last().member_epoch == -1
    assert "max.poll.interval.ms" in (driven.member.leave_reason or "")
    assert driven.member.generation == -1
    driven.answer(epoch=-1)
    driven.poll()
    assert driven.story[-1] == ("lost", ["t-0", "t-1"])
    assert driven.member.state is S.JOINING
    driven.answer(assignment(t=[0]))
    driven.poll()
    assert driven.member.leave_reason is None


def test_stale_member_joins_after_its_leave_was_processed() -> None:
    driven = joined()
    driven.advance(60_000)
    count = len(driven.sent)
    driven.poll()
    assert (len(driven.sent), driven.member.state) == (count, S.STALE)
    assert not driven.member.needs_poll
    driven.answer(epoch=-1)
    assert driven.member.needs_poll
    driven.poll()
    assert driven.last().member_epoch == 0


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_unsubscribed_member_revokes_and_leaves(instance: str | None, epoch: int) -> None:
    driven = joined(instance_id=instance)
    driven.member.subscribe([])
    assert driven.member.needs_poll
    driven.poll()
    assert driven.story[-1] == ("revoked", ["t-0", "t-1"])
    assert (driven.last().member_epoch, driven.member.state) == (epoch, S.LEAVING)
    driven.member.subscribe(["t"])
    driven.poll()
    assert driven.member.state is S.LEAVING, "it joins after the coordinator has processed the leave"
    driven.answer(epoch=epoch)
    driven.poll()
    assert driven.member.state is S.JOINING


def test_heartbeats_continue_while_the_listener_of_a_leaving_member_runs() -> None:
    driven = joined()
    count = len(driven.sent)

    def listener(duty: Duty) -> None:
        assert duty.kind == "revoked"
        assert driven.member.generation == 1, "it may commit"
        driven.advance(INTERVAL_MS)
        driven.answer(assignment(t=[]), epoch=2)

    driven.member.subscribe([])
    driven.poll(listener)
    assert len(driven.sent) == count + 2
    assert driven.member.state is S.LEAVING


@pytest.mark.parametrize("error", [ConnectionLost("x"), RequestTimedOut("x"), BrokerUnavailable("x", retriable=False)])
def test_lost_heartbeat_is_repeated_with_all_fields(error: ClientError) -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.fail(error)
    assert isinstance(driven.others[-1], ForgetCoordinator)
    driven.advance(200)
    request = driven.last()
    assert (request.member_epoch, request.subscribed_topic_names, request.rebalance_timeout_ms) == (1, ["t"], 60_000)
    assert [row.partitions for row in request.topic_partitions or []] == [[0, 1]]


def test_coordinator_that_moved_is_looked_up_again() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.answer(error=ErrorCode.NOT_COORDINATOR)
    assert isinstance(driven.others[-1], ForgetCoordinator)
    driven.advance(200)
    assert driven.last().subscribed_topic_names == ["t"]
    driven.answer(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert driven.member.state is S.STABLE


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, "group.protocol=classic"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.consumer.max.size"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, "group.instance.id=i"),
        (ErrorCode.FENCED_INSTANCE_ID, "each consumer needs its own"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "group.remote.assignor"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "authorization failed"),
        (ErrorCode.INVALID_REQUEST, "request"),
    ],
)
def test_fatal_error_says_what_to_do_and_drops_the_partitions(error: ErrorCode, text: str) -> None:
    driven = joined(instance_id="i")
    driven.advance(INTERVAL_MS)
    driven.answer(error=error)
    assert driven.member.state is S.FATAL
    assert text in str(driven.member.error)
    driven.poll()
    assert driven.story[-1] == ("lost", ["t-0", "t-1"])
    driven.member.leave()
    driven.advance()
    assert driven.last().member_epoch == -2, "the other members need not wait for the session timeout"


def test_broker_without_the_protocol_is_one_clear_error() -> None:
    driven = Driven()
    driven.member.subscribe(["t"])
    driven.poll()
    driven.fail(UnsupportedByBroker("h:1 supports no ConsumerGroupHeartbeat"))
    assert isinstance(driven.member.error, UnsupportedByBroker)
    assert "set group.protocol=classic" in str(driven.member.error)
    driven.member.leave()
    driven.advance()
    assert len(driven.sent) == 1, "it never was a member"


def test_error_without_a_remedy_is_raised_as_it_is() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    refused = AuthenticationFailed("wrong password")
    driven.fail(refused)
    assert driven.member.error is refused


def test_unsubscribing_after_a_fatal_error_makes_the_consumer_usable_again() -> None:
    driven = Driven()
    driven.member.subscribe([], "(")
    driven.poll()
    driven.answer(error=ErrorCode.INVALID_REGULAR_EXPRESSION)
    driven.member.subscribe([])
    driven.poll()
    assert (driven.member.state, driven.member.error) == (S.UNSUBSCRIBED, None)
    driven.member.subscribe([], "t.*")
    driven.poll()
    assert driven.member.state is S.JOINING


def test_missing_right_to_a_topic_is_raised_and_retried() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(driven.outbox.poll_error, BrokerError)
    driven.advance(1_000)
    driven.answer(epoch=1)
    assert driven.member.state is S.STABLE


def test_pattern_needs_version_1_and_is_removed_with_an_empty_string() -> None:
    driven = Driven()
    driven.member.subscribe([], "t.*")
    driven.poll()
    assert driven.sent[-1].min_version == 1
    assert (driven.last().subscribed_topic_names, driven.last().subscribed_topic_regex) == ([], "t.*")
    driven.answer(assignment(t=[0]))
    driven.poll()
    driven.answer()
    driven.member.subscribe(["t"])
    driven.advance()
    assert (driven.last().subscribed_topic_names, driven.last().subscribed_topic_regex) == (["t"], "")
    assert driven.sent[-1].min_version == 0


def test_topic_with_unknown_name_is_adopted_after_a_refresh_and_delays_nothing() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.answer(assignment(t=[0, 2], u=[0]), epoch=2)
    (refresh,) = [effect for effect in driven.others if isinstance(effect, Refresh)]
    driven.poll()
    assert driven.story[-2:] == [("revoked", ["t-1"]), ("assigned", ["t-2"])]
    assert len(driven.last().topic_partitions or []) == 1
    driven.answer(epoch=2)
    assert driven.member.state is S.RECONCILING
    assert not driven.member.needs_poll
    driven.poll()
    assert driven.story[-1] == ("assigned", ["t-2"])
    driven.member.complete(refresh.id, None, driven.now_ms)
    driven.know("u", U)
    driven.advance()
    driven.poll()
    assert driven.story[-1] == ("assigned", ["u-0"])
    driven.answer(epoch=2)
    assert driven.member.state is S.STABLE


def test_refreshes_for_a_deleted_topic_back_off() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    driven.answer(assignment(t=[0, 1], u=[0]), epoch=2)
    for _ in range(100):
        driven.advance(100)
        refresh = driven.others[-1]
        if isinstance(refresh, Refresh):
            driven.member.complete(refresh.id, None, driven.now_ms)
    assert 5 < len(driven.others) < 20


def test_recreated_topic_is_revoked_and_assigned() -> None:
    driven = joined()
    driven.know("t", U)
    driven.advance(INTERVAL_MS)
    driven.answer(assignment(u=[0]), epoch=2)
    driven.poll()
    assert driven.story[-2:] == [("revoked", ["t-0", "t-1"]), ("assigned", ["t-0"])]


def test_partitions_assigned_while_the_member_was_removed_are_reported_as_lost() -> None:
    driven = Driven()
    driven.member.subscribe(["t"])
    driven.poll()
    driven.answer(assignment(t=[0]))

    def listener(duty: Duty) -> None:
        if duty.kind == "assigned":
            driven.advance(INTERVAL_MS)
            driven.answer(error=ErrorCode.FENCED_MEMBER_EPOCH)

    driven.poll(listener)
    assert driven.story == [("assigned", ["t-0"]), ("lost", ["t-0"])]


def test_outcome_of_a_superseded_heartbeat_changes_nothing() -> None:
    driven = joined()
    driven.advance(INTERVAL_MS)
    old = driven.sent[-1]
    driven.member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, (1, "me"))
    driven.poll()
    driven.member.complete(old.id, ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), 0)
    assert driven.member.state is S.JOINING


def test_member_takes_the_id_that_a_broker_of_version_0_chose() -> None:
    driven = Driven()
    driven.member.subscribe(["t"])
    driven.poll()
    response = ConsumerGroupHeartbeatResponse(member_id="theirs", member_epoch=1, assignment=assignment(t=[0]))
    driven.member.complete(driven.sent[-1].id, response, 0)
    assert driven.member.member_id == "theirs"
    driven.poll()
    assert driven.last().member_id == "theirs"


class Core:
    """A consumer's core with a partition of its own in a KIP-848 group; requests are answered by hand."""

    def __init__(self) -> None:
        options = {"bootstrap_servers": "h:1", "group_id": "g", "group_protocol": "consumer"}
        self.view = ClusterView()
        self.core = ConsumerCore(read_settings(options)[1], self.view, member_id="me")
        self.requests: dict[type[Message], Send] = {}
        rows = [MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)]
        topic = MetadataResponseTopic(name="t", topic_id=T, partitions=rows)
        self.view.apply(MetadataResponse(topics=[topic]), 0)
        self.core.subscribe(["t"], None)
        self.poll()
        self.heartbeat(epoch=1, given=assignment(t=[0]))
        self.poll()

    def poll(self) -> None:
        self.core.begin_poll(0)
        while (duty := self.core.duty()) is not None:
            self.core.begin_duty(duty)
            self.core.duty_done(duty, 0)
        self.core.end_poll(0)
        self.advance()

    def advance(self) -> None:
        for effect in self.core.advance(0):
            if isinstance(effect, Send):
                self.requests[type(effect.request)] = effect
        self.core.validate()

    def heartbeat(self, epoch: int, given: Assignment | None = None) -> None:
        response = ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=0, assignment=given)
        self.core.complete(self.requests[ConsumerGroupHeartbeatRequest].id, response, 0)
        self.advance()


def test_committed_offsets_are_looked_up_as_a_member() -> None:
    one = Core()
    lookup = one.requests[OffsetFetchRequest]
    assert isinstance(lookup.request, OffsetFetchRequest)
    (group,) = lookup.request.groups
    assert (group.member_id, group.member_epoch) == ("me", 1)
    stale = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.STALE_MEMBER_EPOCH)
    one.core.complete(lookup.id, OffsetFetchResponse(groups=[stale]), 0)
    one.core.raise_error()
    assert one.core.next_timer_ms() is not None, "it is looked up again"


def test_commit_with_an_earlier_epoch_is_retried_with_the_current_one() -> None:
    one = Core()
    commits = one.core.required_commits()
    tp = TopicPartition("t", 0)
    offsets = {tp: OffsetAndMetadata(5)}
    held = commits.assignments(offsets)
    request = commits.commit_request(offsets, held)
    assert (request.member_id, request.generation_id_or_member_epoch) == ("me", 1)
    row = OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.STALE_MEMBER_EPOCH)
    error = commits.apply_commit(
        request, OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[row])])
    )
    assert error is not None
    assert error.retriable
    one.heartbeat(epoch=2)
    assert commits.commit_request(offsets, held).generation_id_or_member_epoch == 2
    one.heartbeat(epoch=3, given=assignment(t=[]))
    one.poll()
    with pytest.raises(IllegalGeneration, match="not this consumer's any more"):
        commits.commit_request(offsets, held)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group_protocol": "consumer", "session_timeout_ms": 6_000}, "session.timeout.ms cannot be set"),
        ({"group.protocol": "CONSUMER", "heartbeat.interval.ms": 100}, "heartbeat.interval.ms cannot be set"),
        ({"group_protocol": "consumer", "partition_assignment_strategy": "range"}, "group.remote.assignor"),
        ({"group_remote_assignor": "uniform"}, "partition.assignment.strategy"),
        ({"group_protocol": "streams"}, "one of classic, consumer"),
    ],
)
def test_settings_that_the_protocol_does_not_use_are_rejected(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        read_settings({"bootstrap_servers": "h:1", "group_id": "g", **options})


def test_every_transition_leads_to_a_state_of_the_table() -> None:
    assert set(MOVES) == set(S)
    assert all(target in MOVES for targets in MOVES.values() for target in targets)


class Chance:
    """Applies random events to one member; `validate` runs after each."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driven = Driven(instance_id="i" if seed % 3 == 0 else None)
        self.epoch = 1
        self.seen: set[tuple[MemberState, str]] = set()

    def outcome(self) -> ConsumerGroupHeartbeatResponse | ClientError:
        chance = self.random.random()
        if chance < 0.1:
            return ConnectionLost("x")
        if chance < 0.2:
            codes = (
                ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR,
                ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )  # fmt: skip
            return ConsumerGroupHeartbeatResponse(error_code=self.random.choice(codes))
        self.epoch += 1
        given = None
        if chance < 0.7:
            given = assignment(t=self.random.sample(range(4), 2), **({"u": [0]} if chance < 0.4 else {}))
        return ConsumerGroupHeartbeatResponse(member_epoch=self.epoch, heartbeat_interval_ms=500, assignment=given)

    def step(self) -> None:
        driven, member = self.driven, self.driven.member
        event = self.random.choice(("poll", "time", "answer", "answer", "refreshed", "commit", "subscribe", "idle"))
        self.seen.add((member.state, event))
        if event == "poll":
            driven.poll(lambda _: self.between() if self.random.random() < 0.3 else None)
        elif event == "subscribe" and self.random.random() < 0.3:
            member.subscribe(self.random.choice(([], ["t"], ["t", "u"])))
        elif event == "commit" and self.random.random() < 0.1:
            member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, (member.generation, member.member_id))
        elif event == "idle" and self.random.random() < 0.02:
            driven.advance(100_000)
        self.between(event)

    def between(self, event: str = "answer") -> None:
        driven = self.driven
        if event == "answer" and driven.sent:
            driven.member.complete(driven.sent[-1].id, self.outcome(), driven.now_ms)
        elif event == "refreshed" and driven.others and isinstance(driven.others[-1], Refresh):
            if self.random.random() < 0.3:
                driven.know("u", U)
            driven.member.complete(driven.others[-1].id, None, driven.now_ms)
        driven.advance(self.random.randrange(400))


def test_each_event_in_each_state_keeps_the_invariants() -> None:
    seen: set[tuple[MemberState, str]] = set()
    for seed in range(60):
        chance = Chance(seed)
        for _ in range(150):
            chance.step()
            owned_now = chance.driven.member.owned
            given: set[TopicPartition] = set()
            for kind, partitions in chance.driven.story:
                rows = {TopicPartition(name[0], int(name[2:])) for name in partitions}
                if kind == "assigned":
                    assert not rows & given, "a partition is assigned once"
                    given |= rows
                else:
                    assert rows <= given, "only what was assigned is revoked or lost"
                    given -= rows
            assert given == owned_now, "the listener knows what the member owns"
        seen |= chance.seen
    events = {event for _, event in seen}
    # ACKNOWLEDGING ends in the `advance` that follows each event.
    missing = {(state, event) for state in S for event in events} - seen
    assert {state for state, _ in missing} <= {S.ACKNOWLEDGING, S.PREPARE_LEAVING}
