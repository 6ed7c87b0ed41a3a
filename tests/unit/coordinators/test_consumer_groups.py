"""Consumer groups (KIP-848): joining, reconciliation, epochs, static members, timeouts, replay."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import (
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    GroupConfig,
    ListGroups,
)
from ottla.coordinators.group.consumer.config import ConsumerGroupConfig
from ottla.coordinators.group.consumer.records import group_tombstones
from ottla.protocol.group_records import RECORD_TYPES
from ottla.protocol.keyed import decode_keyed
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from tests.drivers.consumer_members import Member, settle
from tests.drivers.groups import GroupDriver, Joiner, topic_id


@pytest.fixture
def driver() -> GroupDriver:
    driver = GroupDriver()
    driver.change_topics(a=4, b=2)
    return driver


def describe(driver: GroupDriver, group_id: str = "g") -> Any:
    return driver.ask(DescribeConsumerGroup(group_id))


def state(driver: GroupDriver) -> str:
    return str(describe(driver).group_state)


def record_names(driver: GroupDriver, start: int = 0) -> list[str]:
    decoded = [(decode_keyed(RECORD_TYPES, key, value), value) for key, value in driver.log[start:]]
    return [f"{'-' if value is None else ''}{type(pair[0]).__name__[:-3]}" for pair, value in decoded if pair]


# -- joining and reconciliation --------------------------------------------------------------------------------


def test_first_member_gets_all_partitions_with_its_first_heartbeat(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a", "b")
    response = a.send(a.request())
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 1, 5_000)
    assert a.partitions == {"a": [0, 1, 2, 3], "b": [0, 1]}
    assert record_names(driver) == [
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ]
    assert state(driver) == "Stable"


def test_partition_moves_only_after_its_owner_gave_it_up(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a"), Member(driver, "b", "a")
    a.beat()
    driver.advance(1_000)
    b.beat()
    assert (b.epoch, b.partitions) == (2, {}), "it has no partitions yet"
    assert state(driver) == "Reconciling"
    a.clings = True
    response = a.send(a.request())
    assert (response.member_epoch, len(response.assignment.topic_partitions[0].partitions)) == (1, 2)
    b.beat()
    assert b.partitions == {}, "the other member still reports the partitions"
    a.owned, a.clings = a.assigned, False
    a.beat()
    assert a.epoch == 2
    b.beat()
    assert (a.partitions, b.partitions) == ({"a": [0, 1]}, {"a": [2, 3]})
    assert state(driver) == "Stable"


def test_member_that_reports_nothing_keeps_its_partitions(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a"), Member(driver, "b", "a")
    a.beat()
    driver.advance(1_000)
    b.beat()
    assert a.beat(topic_partitions=None) is ErrorCode.NONE
    b.beat()
    assert b.partitions == {}
    assert a.epoch == 1


def test_assignments_of_many_joins_are_computed_once_per_interval(driver: GroupDriver) -> None:
    members = [Member(driver, f"m{n}", "a") for n in range(4)]
    for member in members:
        member.beat()
        driver.advance(100)
    assert [member.epoch for member in members] == [1, 1, 1, 1], "the second assignment waits for the interval"
    assert state(driver) == "Assigning"
    before = len(driver.log)
    settle(*members)
    assert sorted(part for member in members for part in member.partitions["a"]) == [0, 1, 2, 3]
    assert record_names(driver, before).count("ConsumerGroupTargetAssignmentMetadata") == 1
    assert {member.epoch for member in members} == {4}


def test_heartbeat_without_news_writes_nothing_and_has_no_assignment(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    before = len(driver.log)
    assert a.send(a.request()).assignment is None
    assert a.send(a.request(full=True)).assignment is not None, "a full request gets a full response"
    assert len(driver.log) == before


def test_leaving_member_releases_its_partitions(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a"), Member(driver, "b", "a")
    a.beat()
    settle(a, b)
    assert b.leave() is ErrorCode.NONE
    settle(a)
    assert a.partitions == {"a": [0, 1, 2, 3]}
    assert a.leave() is ErrorCode.NONE
    assert state(driver) == "Empty"
    assert b.leave() is ErrorCode.UNKNOWN_MEMBER_ID


def test_new_subscription_takes_partitions_of_other_topics_at_once(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a", "b")
    a.beat()
    a.topics = ["b"]
    response = a.send(a.request(full=True))
    assert (response.member_epoch, a.partitions) == (1, {"b": [0, 1]})
    settle(a)
    assert (a.epoch, a.partitions) == (2, {"b": [0, 1]})


def test_assignor_that_most_members_prefer_is_used(driver: GroupDriver) -> None:
    members = [Member(driver, f"m{n}", "a", assignor="range") for n in range(2)]
    for member in members:
        member.beat()
    settle(*members)
    assert describe(driver).assignor_name == "range"
    assert members[0].partitions == {"a": [0, 1]}


# -- topics ----------------------------------------------------------------------------------------------------


def test_changed_topics_start_a_new_epoch(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a", "new")
    a.beat()
    driver.change_topics(new=2)
    settle(a)
    assert (a.epoch, a.partitions) == (2, {"a": [0, 1, 2, 3], "new": [0, 1]})
    driver.change_topics(new=3, other=1)
    settle(a)
    assert (a.epoch, a.partitions["new"]) == (3, [0, 1, 2])
    driver.change_topics(new=0)
    settle(a)
    assert (a.epoch, a.partitions) == (4, {"a": [0, 1, 2, 3]})
    driver.change_topics(other=4)
    settle(a)
    assert a.epoch == 4, "the group does not subscribe to it"


def test_restart_compares_the_topics(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    driver.restart()
    a.beat()
    assert a.epoch == 1
    driver.change_topics(a=5)
    driver.restart()
    settle(a)
    assert (a.epoch, a.partitions) == (2, {"a": [0, 1, 2, 3, 4]})


# -- epochs ----------------------------------------------------------------------------------------------------


def test_wrong_epochs_are_fenced_and_the_previous_one_of_a_lost_response_is_not(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a"), Member(driver, "b", "a")
    a.beat()
    settle(a, b)
    assert a.epoch == 2
    assert a.beat(member_epoch=9) is ErrorCode.FENCED_MEMBER_EPOCH
    assert (a.epoch, a.owned) == (0, {})
    assert a.beat() is ErrorCode.NONE, "it may join again under its id"
    assert (a.epoch, a.partitions) == (2, {"a": [0, 1]})
    b.leave()
    settle(a)
    lost = a.request(member_epoch=2, topic_partitions=[])
    assert driver.ask(lost, 1).member_epoch == 3
    assert a.beat(member_epoch=1) is ErrorCode.FENCED_MEMBER_EPOCH


def test_unknown_members_and_groups(driver: GroupDriver) -> None:
    Member(driver, "a", "a").beat()
    assert Member(driver, "b", "a").beat(member_epoch=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert Member(driver, "b", "a", group_id="h").beat(member_epoch=3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert Member(driver, "b", "a", group_id="h").leave() is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_invalid_heartbeats_are_rejected(driver: GroupDriver, fields: dict[str, Any], error: ErrorCode) -> None:
    assert Member(driver, "a", "a").beat(**fields) is error
    assert driver.log == []


def test_version_0_gets_its_member_id_from_the_coordinator(driver: GroupDriver) -> None:
    request = Member(driver, "", "a").request()
    response = driver.ask(request, 0)
    assert (response.error_code, len(response.member_id)) == (0, 36)


def test_group_is_limited_to_its_maximum_size() -> None:
    driver = GroupDriver(GroupConfig(consumer=ConsumerGroupConfig(max_size=1)))
    a = Member(driver, "a", "a")
    a.beat()
    assert Member(driver, "b", "a").beat() is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beat() is ErrorCode.NONE


# -- static members --------------------------------------------------------------------------------------------


def test_static_member_returns_to_its_partitions_without_an_epoch(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a", instance_id="i"), Member(driver, "b", "a")
    a.beat()
    settle(a, b)
    owned = a.partitions
    assert Member(driver, "c", "a", instance_id="i").beat() is ErrorCode.UNRELEASED_INSTANCE_ID
    assert a.leave(-2) is ErrorCode.NONE
    c = Member(driver, "c", "a", instance_id="i")
    assert c.beat() is ErrorCode.NONE
    assert (c.epoch, c.partitions) == (a.epoch, owned)
    assert a.beat() is ErrorCode.FENCED_INSTANCE_ID
    assert Member(driver, "d", "a", instance_id="j").beat(member_epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
    settle(b, c)
    assert {b.epoch, c.epoch} == {2}


def test_static_member_that_does_not_return_loses_its_partitions(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a", instance_id="i"), Member(driver, "b", "a")
    a.beat()
    settle(a, b)
    a.leave(-2)
    settle(b, rounds=12)
    assert b.partitions == {"a": [0, 1, 2, 3]}
    assert [member.member_id for member in describe(driver).members] == ["b"]


def test_static_member_that_returns_under_the_same_id_still_times_out(driver: GroupDriver) -> None:
    """As one whose program called poll too late: it left for a while, and keeps its id."""
    a = Member(driver, "a", "a", instance_id="i")
    a.beat()
    assert a.leave(-2) is ErrorCode.NONE
    again = Member(driver, "a", "a", instance_id="i")
    assert again.beat() is ErrorCode.NONE
    assert again.partitions == {"a": [0, 1, 2, 3]}
    driver.advance(44_999)
    assert state(driver) == "Stable"
    driver.advance(1)
    assert state(driver) == "Empty"


# -- timeouts --------------------------------------------------------------------------------------------------


def test_silent_member_is_removed_after_its_session_timeout(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    driver.advance(44_999)
    assert state(driver) == "Stable"
    driver.advance(1)
    assert state(driver) == "Empty"
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_sessions_begin_again_after_a_restart(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    driver.advance(40_000)
    driver.restart()
    driver.advance(44_000)
    assert a.beat() is ErrorCode.NONE


def test_member_that_keeps_partitions_too_long_is_removed(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a"), Member(driver, "b", "a")
    a.beat()
    driver.advance(1_000)
    b.beat()
    a.clings = True
    for _ in range(10):
        driver.advance(5_000)
        a.beat()
        b.beat()
    assert b.partitions == {"a": [0, 1, 2, 3]}
    assert any("failed to transition from epoch 1 within 45000ms" in line for line in driver.log_lines)


def test_failed_append_changes_nothing_and_the_session_still_ends(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    driver.append_error = ErrorCode.NOT_COORDINATOR
    assert Member(driver, "b", "a").beat() is ErrorCode.NOT_COORDINATOR
    driver.advance(50_000)
    assert len(describe(driver).members) == 1
    driver.append_error = ErrorCode.NONE
    driver.advance(50_000)
    assert state(driver) == "Empty"


# -- offsets ---------------------------------------------------------------------------------------------------


def commit_at(driver: GroupDriver, member: str, epoch: int, partition: int, version: int = 10) -> ErrorCode:
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="a", topic_id=topic_id("a"), partitions=[row])
    request = OffsetCommitRequest("g", epoch, member, None, topics=[topic])
    return ErrorCode(driver.ask(request, version).topics[0].partitions[0].error_code)


def fetch_at(driver: GroupDriver, member: str | None, epoch: int) -> ErrorCode:
    group = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch, topics=None)
    return ErrorCode(driver.ask(FetchOffsets(group), 9).error_code)


def test_commits_are_accepted_from_the_epoch_at_which_the_partition_was_assigned(driver: GroupDriver) -> None:
    a, b = Member(driver, "a", "a"), Member(driver, "b", "a")
    a.beat()
    settle(a, b)
    assert (a.epoch, a.partitions, b.partitions) == (2, {"a": [0, 1]}, {"a": [2, 3]})
    assert commit_at(driver, "a", 2, 0) is ErrorCode.NONE
    assert commit_at(driver, "a", 1, 0) is ErrorCode.NONE, "it owns the partition since epoch 1 (KIP-1251)"
    assert commit_at(driver, "a", 1, 2) is ErrorCode.STALE_MEMBER_EPOCH, "the partition is of another member"
    assert commit_at(driver, "b", 1, 2) is ErrorCode.STALE_MEMBER_EPOCH, "it got the partition at epoch 2"
    assert commit_at(driver, "a", 3, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_at(driver, "a", 2, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit_at(driver, "c", 2, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_at(driver, "", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID, "the group is not empty"


def test_fetches_of_members_name_their_present_epoch(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    assert fetch_at(driver, "a", 1) is ErrorCode.NONE
    assert fetch_at(driver, None, -1) is ErrorCode.NONE
    assert fetch_at(driver, "a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_at(driver, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


# -- administration --------------------------------------------------------------------------------------------


def test_description_has_members_and_assignments(driver: GroupDriver) -> None:
    Member(driver, "a", "b", instance_id="i").beat()
    group = describe(driver)
    (member,) = group.members
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (1, 1, "uniform")
    assert (member.member_id, member.instance_id, member.member_epoch, member.member_type) == ("a", "i", 1, 1)
    assert member.subscribed_topic_names == ["b"]
    (row,) = member.assignment.topic_partitions
    assert (row.topic_name, row.partitions) == ("b", [0, 1])
    assert member.target_assignment == member.assignment


def test_group_is_listed_and_not_a_classic_group(driver: GroupDriver) -> None:
    Member(driver, "a", "a").beat()
    (row,) = driver.ask(ListGroups(types=frozenset({"Consumer"}), states=frozenset({"stable"})))
    assert (row.group_id, row.protocol_type, row.group_state, row.group_type) == ("g", "consumer", "Stable", "consumer")
    classic = driver.ask(DescribeGroup("g"), 6)
    assert (classic.error_code, classic.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.",
    )  # fmt: skip
    missing = describe(driver, "none")
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


def test_only_empty_groups_are_deleted_with_all_their_records(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.NONE
    assert {key for key, value in dict(driver.log).items() if value is not None} == set()
    assert describe(driver).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_empty_group_without_offsets_expires(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    a.leave()
    driver.advance(600_000)
    assert describe(driver).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# -- conversion of empty groups --------------------------------------------------------------------------------


def test_empty_groups_are_converted_both_ways(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    a.beat()
    a.leave()
    joiner = Joiner(driver)
    call = joiner.join()
    driver.advance(3_000)
    assert joiner.joined(call).error_code == ErrorCode.NONE
    assert describe(driver).error_message == "Group g is not a consumer group."
    joiner.leave()
    b = Member(driver, "b", "a")
    assert b.beat() is ErrorCode.NONE
    assert b.partitions == {"a": [0, 1, 2, 3]}
    driver.restart()
    assert state(driver) == "Stable"


# -- replay ----------------------------------------------------------------------------------------------------


def test_replay_restores_the_same_state(driver: GroupDriver) -> None:
    members = [Member(driver, f"m{n}", "a", "b") for n in range(3)]
    for member in members:
        member.beat()
    settle(*members)
    members[0].leave()
    settle(*members[1:])
    before = describe(driver)
    driver.restart()
    assert describe(driver) == before
    for member in members[1:]:
        assert member.beat() is ErrorCode.NONE


def test_tombstones_are_in_the_order_that_kafka_can_replay(driver: GroupDriver) -> None:
    Member(driver, "m", "t").beat()
    records = group_tombstones(driver.shard.consumer_groups["g"])
    assert [int.from_bytes(key[:2], "big") for key, _ in records] == [8, 7, 6, 5, 4, 3]
