"""Share groups in the group coordinator (KIP-932): heartbeats, epochs, share state, assignments and deletion."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DeleteGroup, DescribeGroup, FetchOffsets, GroupConfig, ListGroups
from ottla.coordinators.group.assignors import GroupSpec, MemberSpec, assign_simply
from ottla.coordinators.group.share.config import ShareGroupConfig
from ottla.coordinators.group.share.events import DeleteShares, DescribeShareGroup, InitializeShares, ReleaseRecords
from ottla.protocol.group_records import RECORD_TYPES
from ottla.protocol.keyed import decode_keyed
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.drivers.consumer_members import Member as ConsumerMember
from tests.drivers.groups import GroupDriver, Joiner, topic_id

from .test_offsets import commit

CONFIG = GroupConfig(share=ShareGroupConfig(max_size=3))


@pytest.fixture
def driver() -> GroupDriver:
    driver = GroupDriver(CONFIG)
    driver.change_topics(a=2, b=1)
    return driver


class Member:
    """Sends heartbeats."""

    def __init__(self, driver: GroupDriver, member_id: str, *topics: str) -> None:
        self.driver, self.member_id, self.topics = driver, member_id, list(topics)
        self.epoch = 0
        self.partitions: dict[str, list[int]] = {}

    def send(self, **fields: Any) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(group_id="g", member_id=self.member_id, member_epoch=self.epoch)
        if not self.epoch:
            request.subscribed_topic_names = self.topics
        for name, value in fields.items():
            setattr(request, name, value)
        response = self.driver.ask(request, 1)
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def beat(self, **fields: Any) -> ErrorCode:
        response = self.send(**fields)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                names = {topic_id(name): name for name in self.driver.image.topics_by_name}
                rows = response.assignment.topic_partitions
                self.partitions = {names[row.topic_id]: row.partitions for row in rows}
        return ErrorCode(response.error_code)


def initialize(driver: GroupDriver, *, fail: bool = False) -> list[InitializeShares]:
    """Report the outcome of the effects that create share state."""
    effects = [effect for effect in driver.own_effects if isinstance(effect, InitializeShares)]
    driver.own_effects.clear()
    for effect in effects:
        driver.obey(driver.shard.shares_initialized(effect, {} if fail else effect.partitions))
    return effects


def joined(driver: GroupDriver, *members: Member) -> None:
    """Let the members join, and get what they are assigned."""
    for member in members:
        assert member.beat() is ErrorCode.NONE
        initialize(driver)
    for _ in range(2):
        driver.advance(1_000)
        for member in members:
            assert member.beat() is ErrorCode.NONE


def record_names(driver: GroupDriver, start: int = 0) -> list[str]:
    decoded = [(decode_keyed(RECORD_TYPES, key, value), value) for key, value in driver.log[start:]]
    return [f"{'-' if value is None else ''}{type(pair[0]).__name__[10:-3]}" for pair, value in decoded if pair]


def delete(driver: GroupDriver) -> Any:
    return driver.send(DeleteGroup("g"))


# -- joining ---------------------------------------------------------------------------------------------------


def test_partitions_are_assigned_once_their_share_state_exists(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    response = a.send()
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 1, 5_000)
    assert response.assignment is not None
    assert response.assignment.topic_partitions == []
    assert record_names(driver) == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "StatePartitionMetadata",
    ]
    a.epoch = 1
    (effect,) = initialize(driver)
    assert (effect.group_id, effect.state_epoch, effect.partitions) == ("g", 1, {topic_id("a"): frozenset({0, 1})})
    driver.advance(1_000)
    a.beat()
    assert (a.epoch, a.partitions) == (2, {"a": [0, 1]})
    before = len(driver.log)
    assert a.send().assignment is None, "nothing is new"
    assert a.send(subscribed_topic_names=["a"]).assignment is not None, "a full request gets a full response"
    assert len(driver.log) == before
    assert driver.own_effects == []


def test_share_state_is_created_after_the_record_and_not_twice(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    driver.append_error = ErrorCode.NOT_COORDINATOR
    assert a.beat() is ErrorCode.NOT_COORDINATOR
    assert driver.own_effects == [], "nothing is created without its record"
    driver.append_error = ErrorCode.NONE
    a.beat()
    driver.advance(1_000)
    a.beat()
    assert len(driver.own_effects) == 1, "the first request has no outcome yet"
    driver.advance(30_000)
    a.beat()
    assert len(driver.own_effects) == 2, "the first request has had no outcome for long"


def test_creation_of_share_state_that_failed_or_was_lost_is_repeated(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    initialize(driver, fail=True)
    assert driver.shard.share_groups["g"].shares.initializing == {}
    a.beat()
    assert len(driver.own_effects) == 1
    driver.own_effects.clear()
    driver.restart()
    a.beat()
    assert len(driver.own_effects) == 1, "the effect of the former coordinator may be lost"
    initialize(driver)
    driver.advance(1_000)
    a.beat()
    assert a.partitions == {"a": [0, 1]}


def test_new_partitions_and_deleted_topics(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a", "b")
    joined(driver, a)
    assert a.partitions == {"a": [0, 1], "b": [0]}
    driver.change_topics(a=3, b=0)
    driver.advance(1_000)
    a.beat()
    (effect,) = initialize(driver)
    assert effect.partitions == {topic_id("a"): frozenset({2})}
    driver.advance(1_000)
    a.beat()
    assert a.partitions == {"a": [0, 1, 2]}
    assert driver.shard.share_groups["g"].shares.names == {topic_id("a"): "a"}


def test_members_share_partitions(driver: GroupDriver) -> None:
    members = [Member(driver, f"m{n}", "a") for n in range(3)]
    joined(driver, *members)
    assert all(member.partitions for member in members)
    assert sorted({part for member in members for part in member.partitions["a"]}) == [0, 1]
    (row,) = driver.ask(ListGroups(types=frozenset({"share"})))
    assert (row.group_id, row.group_state, row.protocol_type) == ("g", "Stable", "share")
    described = driver.ask(DescribeShareGroup("g"))
    assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 3)
    assert described.group_epoch == described.assignment_epoch == members[0].epoch
    assert described.members[0].assignment.topic_partitions[0].topic_name == "a"
    assert driver.ask(DescribeShareGroup("other")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_partitions_of_a_member_that_left_or_timed_out_go_to_others(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a"), Member(driver, "b", "a")
    joined(driver, a, b)
    assert sorted(a.partitions["a"] + b.partitions["a"]) == [0, 1]
    before = len(driver.log)
    response = b.send(member_epoch=-1)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "b", -1)
    names = record_names(driver, before)
    assert names == ["-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata", "Metadata"]
    driver.advance(1_000)
    a.beat()
    assert a.partitions == {"a": [0, 1]}
    assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    driver.restart()
    driver.advance(45_000)
    assert driver.shard.share_groups["g"].is_empty
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_restart_restores_the_group(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a", "b")
    joined(driver, a)
    group = driver.shard.share_groups["g"]
    driver.restart()
    restored = driver.shard.share_groups["g"]
    assert (restored.members, restored.epoch, restored.shares) == (group.members, group.epoch, group.shares)
    before = len(driver.log)
    a.beat()
    assert len(driver.log) == before


# -- refusals --------------------------------------------------------------------------------------------------


def test_epochs_of_heartbeats(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    joined(driver, a)
    assert a.epoch == 2
    assert a.send(member_epoch=1).member_epoch == 2, "the last response was lost"
    assert a.send(member_epoch=3).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert a.send(member_epoch=0, subscribed_topic_names=["a"]).member_epoch == 2, "it may join again"
    a.send(subscribed_topic_names=["b"])
    driver.advance(1_000)
    a.beat()
    assert a.epoch > 2
    assert a.send(member_epoch=1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"group_id": " "},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"member_epoch": -2},
    ],
)
def test_invalid_requests(driver: GroupDriver, fields: dict[str, Any]) -> None:
    assert Member(driver, "a", "a").beat(**fields) is ErrorCode.INVALID_REQUEST
    assert driver.log == []


def test_group_is_full(driver: GroupDriver) -> None:
    members = [Member(driver, f"m{n}", "a") for n in range(4)]
    assert [member.beat() for member in members] == [ErrorCode.NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert members[0].beat() is ErrorCode.NONE


def test_group_id_of_another_type_is_refused(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    assert a.beat(member_epoch=3) is ErrorCode.GROUP_ID_NOT_FOUND
    consumer = ConsumerMember(driver, "c", "a")
    consumer.beat()
    assert a.beat() is ErrorCode.GROUP_ID_NOT_FOUND
    driver = GroupDriver(CONFIG)
    assert commit(driver) is ErrorCode.NONE
    assert Member(driver, "a", "a").beat() is ErrorCode.GROUP_ID_NOT_FOUND


def test_requests_of_other_types_for_a_share_group_are_refused(driver: GroupDriver) -> None:
    joined(driver, Member(driver, "a", "a"))
    before = len(driver.log)
    joiner = Joiner(driver)
    assert driver.answers[joiner.join()].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ConsumerMember(driver, "c", "a").beat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(driver) is ErrorCode.GROUP_ID_NOT_FOUND
    answer = driver.ask(FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=None)))
    assert (answer.error_code, answer.topics) == (ErrorCode.NONE, []), "as of a group that does not exist"
    described = driver.ask(DescribeGroup("g"), 6)
    assert described.error_message == "Group g is not a classic group."
    assert len(driver.log) == before


def test_records_are_released_only_after_the_removal_is_recorded(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a"), Member(driver, "b", "a")
    joined(driver, a, b)
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.beat(member_epoch=-1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.advance(45_000)
    assert driver.own_effects == []
    driver.append_error = ErrorCode.NONE
    assert a.beat(member_epoch=-1) is ErrorCode.NONE
    driver.advance(45_000)
    assert driver.own_effects == [ReleaseRecords("g", "b")], "a left, and may have acknowledgements under way"


# -- deletion --------------------------------------------------------------------------------------------------


def emptied(driver: GroupDriver) -> DeleteShares:
    """A group without members that is being deleted: the effect that deletes its share state."""
    a = Member(driver, "a", "a")
    joined(driver, a)
    refused = driver.ask(DeleteGroup("g"))
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    a.beat(member_epoch=-1)
    call = delete(driver)
    assert call not in driver.answers, "the share state must be deleted first"
    (effect,) = driver.own_effects
    driver.own_effects.clear()
    assert isinstance(effect, DeleteShares)
    assert effect == DeleteShares("g", {topic_id("a"): frozenset({0, 1})})
    return effect


def test_group_is_deleted_after_its_share_state(driver: GroupDriver) -> None:
    emptied(driver)
    again = driver.ask(DeleteGroup("g"))
    assert again.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "another deletion is under way"
    driver.obey(driver.shard.shares_deleted("g", ErrorCode.NONE))
    assert list(driver.answers.values())[-1].error_code == ErrorCode.NONE
    assert driver.shard.share_groups == {}
    driver.restart()
    assert driver.shard.share_groups == {}
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_is_not_deleted_while_its_share_state_is_created(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    a.beat(member_epoch=-1)
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    initialize(driver)
    call = delete(driver)
    driver.obey(driver.shard.shares_deleted("g", ErrorCode.NONE))
    assert driver.answers[call].error_code == ErrorCode.NONE


def test_deletion_that_failed_can_be_repeated(driver: GroupDriver) -> None:
    effect = emptied(driver)
    driver.obey(driver.shard.shares_deleted("g", ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert list(driver.answers.values())[-1].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.restart()
    delete(driver)
    assert driver.own_effects == [effect]
    driver.unload(ErrorCode.NOT_COORDINATOR)
    assert list(driver.answers.values())[-1].error_code == ErrorCode.NOT_COORDINATOR


def test_member_that_joins_during_a_deletion_prevents_it(driver: GroupDriver) -> None:
    emptied(driver)
    b = Member(driver, "b", "a")
    assert b.beat() is ErrorCode.NONE
    assert driver.own_effects == [], "its share state is still being deleted"
    driver.obey(driver.shard.shares_deleted("g", ErrorCode.NONE))
    assert list(driver.answers.values())[-1].error_code == ErrorCode.NON_EMPTY_GROUP
    b.beat()
    initialize(driver)
    driver.advance(1_000)
    b.beat()
    driver.advance(1_000)
    b.beat()
    assert b.partitions == {"a": [0, 1]}


# -- the assignor ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("members", "partitions"), [(1, 4), (2, 5), (3, 2), (5, 5), (7, 3), (2, 0)])
def test_simple_assignor_covers_members_and_partitions_and_is_stable(members: int, partitions: int) -> None:
    topic = topic_id("a")
    assignable = {topic: frozenset(range(partitions))} if partitions else {}
    specs = {f"m{n}": MemberSpec(frozenset({topic}), {}) for n in range(members)}
    first = assign_simply(GroupSpec(specs, {}, same_topics=True), assignable)
    if partitions:
        assert set().union(*(part[topic] for part in first.values())) == set(range(partitions))
        assert all(first[member] for member in specs)
        sizes = [len(part[topic]) for part in first.values()]
        assert max(sizes) - min(sizes) <= 1
        sharers = [sum(index in part[topic] for part in first.values()) for index in range(partitions)]
        assert max(sharers) - min(sharers) <= 1
    again = {name: MemberSpec(frozenset({topic}), first.get(name, {})) for name in specs}
    assert assign_simply(GroupSpec(again, {}, same_topics=True), assignable) == first


def test_simple_assignor_respects_subscriptions() -> None:
    a, b = topic_id("a"), topic_id("b")
    specs = {
        "x": MemberSpec(frozenset({a}), {b: frozenset({0})}),
        "y": MemberSpec(frozenset({b}), {}),
        "z": MemberSpec(frozenset(), {}),
    }
    found = assign_simply(GroupSpec(specs, {}, same_topics=False), {a: frozenset({0, 1}), b: frozenset({0})})
    assert found == {"x": {a: frozenset({0, 1})}, "y": {b: frozenset({0})}, "z": {}}
