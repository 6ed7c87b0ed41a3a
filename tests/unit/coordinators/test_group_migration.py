"""Groups with members of both protocols: upgrade, downgrade, and classic members of a consumer group."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DescribeConsumerGroup, DescribeGroup, GroupConfig
from ottla.coordinators.group.consumer.config import ConsumerGroupConfig
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    encode_assignment,
)
from tests.drivers.consumer_members import ClassicConsumer, Member
from tests.drivers.groups import GroupDriver, Joiner

DELAY_MS = GroupConfig().initial_rebalance_delay_ms


def assignment_of(**partitions: list[int]) -> bytes:
    rows = [ConsumerProtocolAssignmentTopicPartition(topic=t, partitions=p) for t, p in partitions.items()]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows), 1)


def new_driver(**policy: bool) -> GroupDriver:
    driver = GroupDriver(GroupConfig(consumer=ConsumerGroupConfig(**policy)))
    driver.change_topics(a=4)
    return driver


@pytest.fixture
def driver() -> GroupDriver:
    return new_driver()


def classic_group(driver: GroupDriver, **options: str | int | None) -> ClassicConsumer:
    """A classic group with one member that owns all partitions."""
    member = ClassicConsumer(driver, "a", **options)
    call = member.join()
    driver.advance(DELAY_MS)
    member.joined(call)
    assert member.take({member.member_id: assignment_of(a=[0, 1, 2, 3])}) is ErrorCode.NONE
    return member


def kind(driver: GroupDriver) -> str:
    is_classic, is_consumer = "g" in driver.shard.groups, "g" in driver.shard.consumer_groups
    assert not (is_classic and is_consumer)
    return "classic" if is_classic else "consumer" if is_consumer else "none"


def settle_all(driver: GroupDriver, *members: Member | ClassicConsumer, rounds: int = 5) -> None:
    for _ in range(rounds):
        driver.advance(3_000)
        for member in members:
            assert member.beat() is ErrorCode.NONE


def test_consumer_member_upgrades_a_classic_group_and_both_share_the_partitions(driver: GroupDriver) -> None:
    classic = classic_group(driver)
    modern = Member(driver, "m", "a")
    assert modern.beat() is ErrorCode.NONE
    assert kind(driver) == "consumer"
    assert modern.partitions == {}, "the classic member owns all partitions"
    settle_all(driver, classic, modern)
    assert len(classic.owned["a"]) == len(modern.partitions["a"]) == 2
    assert sorted(classic.owned["a"] + modern.partitions["a"]) == [0, 1, 2, 3]
    group = driver.ask(DescribeConsumerGroup("g"))
    assert sorted(member.member_type for member in group.members) == [0, 1]
    assert group.group_state == "Stable"
    driver.restart()
    settle_all(driver, classic, modern, rounds=1)


def test_group_is_downgraded_when_the_last_consumer_member_leaves(driver: GroupDriver) -> None:
    classic, modern = classic_group(driver), Member(driver, "m", "a")
    modern.beat()
    settle_all(driver, classic, modern)
    assert modern.leave() is ErrorCode.NONE
    assert kind(driver) == "classic"
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    call = classic.join()
    assert classic.joined(call).error_code == ErrorCode.NONE
    assert classic.take({classic.member_id: assignment_of(a=[0, 1, 2, 3])}) is ErrorCode.NONE
    assert driver.ask(DescribeGroup("g"), 6).group_state == "Stable"
    driver.restart()
    assert kind(driver) == "classic"
    assert classic.heartbeat() is ErrorCode.NONE


def test_coordinator_that_restarts_during_the_rebalance_of_a_downgrade_starts_it_again(driver: GroupDriver) -> None:
    """Otherwise no member gets the partitions of the member that left, because all only send heartbeats."""
    classic, modern = classic_group(driver), Member(driver, "m", "a")
    modern.beat()
    settle_all(driver, classic, modern)
    modern.leave()
    driver.restart()
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    call = classic.join()
    assert classic.joined(call).error_code == ErrorCode.NONE
    assert classic.take({classic.member_id: assignment_of(a=[0, 1, 2, 3])}) is ErrorCode.NONE
    driver.restart()
    assert classic.heartbeat() is ErrorCode.NONE


def test_group_is_downgraded_when_the_session_of_the_last_consumer_member_ends(driver: GroupDriver) -> None:
    classic, modern = classic_group(driver), Member(driver, "m", "a")
    modern.beat()
    settle_all(driver, classic, modern)
    for _ in range(20):
        driver.advance(3_000)
        classic.heartbeat()
    assert kind(driver) == "classic"


def test_policy_forbids_upgrade_and_downgrade() -> None:
    driver = new_driver(may_upgrade=False)
    classic_group(driver)
    assert Member(driver, "m", "a").beat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(driver) == "classic"
    driver = new_driver(may_downgrade=False)
    classic, modern = classic_group(driver), Member(driver, "m", "a")
    modern.beat()
    settle_all(driver, classic, modern)
    modern.leave()
    assert kind(driver) == "consumer"
    settle_all(driver, classic)
    assert classic.owned == {"a": [0, 1, 2, 3]}


@pytest.mark.parametrize("waits", [False, True])
def test_consumer_member_joins_a_group_whose_classic_member_only_has_an_id(driver: GroupDriver, waits: bool) -> None:
    classic, modern = ClassicConsumer(driver, "a"), Member(driver, "m", "a")
    answer = driver.ask(classic.join_request())
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    classic.member_id = answer.member_id
    assert modern.beat() is ErrorCode.NONE
    assert kind(driver) == "consumer"
    if waits:  # longer than the id was valid in the classic group
        settle_all(driver, modern)
        driver.restart()
    assert classic.enter() is ErrorCode.NONE
    settle_all(driver, classic, modern)
    assert sorted(classic.owned["a"] + modern.partitions["a"]) == [0, 1, 2, 3]


def test_group_of_another_protocol_is_not_upgraded(driver: GroupDriver) -> None:
    other = Joiner(driver, protocol_type="connect")
    call = other.join()
    driver.advance(DELAY_MS)
    other.joined(call)
    assert Member(driver, "m", "a").beat() is ErrorCode.GROUP_ID_NOT_FOUND


def test_upgrade_during_a_join_phase_answers_the_waiting_members(driver: GroupDriver) -> None:
    classic = ClassicConsumer(driver, "a")
    call = classic.join()
    assert Member(driver, "m", "a").beat() is ErrorCode.NONE
    assert driver.answers[call].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert kind(driver) == "consumer"
    assert classic.enter() is ErrorCode.NONE


def test_member_that_upgrades_a_group_without_a_generation_gets_an_epoch(driver: GroupDriver) -> None:
    ClassicConsumer(driver, "a").join()
    modern = Member(driver, "m", "a")
    assert modern.beat() is ErrorCode.NONE
    assert modern.epoch == 1, "the epoch 0 means that a member joins"
    assert modern.send(modern.request()).error_code == ErrorCode.NONE


def test_partition_that_a_cooperative_member_has_not_revoked_yet_keeps_its_owner(driver: GroupDriver) -> None:
    classic = classic_group(driver)
    classic.protocols = (("range", classic.metadata()),)  # a cooperative member keeps its partitions while it joins
    classic.joined(classic.join())
    answer = driver.answers[classic.sync({classic.member_id: assignment_of(a=[0, 1, 2])})]
    assert answer.error_code == ErrorCode.NONE, "the leader takes partition 3, but the member has not revoked it"
    modern = Member(driver, "m", "a")
    assert modern.beat() is ErrorCode.NONE
    assert modern.partitions == {}
    classic.owned = {"a": [0, 1, 2]}
    settle_all(driver, classic, modern)
    assert sorted(classic.owned["a"] + modern.partitions["a"]) == [0, 1, 2, 3]
    assert len(modern.partitions["a"]) == 2


def test_failed_upgrade_leaves_the_classic_group(driver: GroupDriver) -> None:
    classic = classic_group(driver)
    driver.append_error = ErrorCode.NOT_COORDINATOR
    assert Member(driver, "m", "a").beat() is ErrorCode.NOT_COORDINATOR
    driver.append_error = ErrorCode.NONE
    assert kind(driver) == "classic"
    assert classic.heartbeat() is ErrorCode.NONE


def test_classic_member_joins_a_consumer_group(driver: GroupDriver) -> None:
    modern = Member(driver, "m", "a")
    modern.beat()
    classic = ClassicConsumer(driver, "a")
    driver.advance(1_000)
    assert classic.enter() is ErrorCode.NONE
    settle_all(driver, modern, classic)
    assert sorted(classic.owned["a"] + modern.partitions["a"]) == [0, 1, 2, 3]
    classic.generation -= 1
    assert classic.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    classic.generation += 1
    assert classic.leave() is ErrorCode.NONE
    settle_all(driver, modern)
    assert modern.partitions == {"a": [0, 1, 2, 3]}
    assert kind(driver) == "consumer"


def test_classic_requests_of_consumer_members_and_strangers_are_rejected(driver: GroupDriver) -> None:
    Member(driver, "m", "a").beat()
    stranger = Joiner(driver)
    stranger.member_id, stranger.generation = "m", 1
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.answers[stranger.sync()].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stranger.member_id = "other"
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    connect = Joiner(driver, protocol_type="connect")
    assert driver.answers[connect.join()].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    corrupt = Joiner(driver, protocols=(("range", b"\0"),))
    assert driver.answers[corrupt.join()].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_member_that_does_not_join_again_in_time_is_removed(driver: GroupDriver) -> None:
    classic, modern = classic_group(driver, rebalance_timeout_ms=20_000), Member(driver, "m", "a")
    modern.beat()
    for _ in range(10):
        driver.advance(3_000)
        classic.heartbeat()
        modern.beat()
    assert modern.partitions == {"a": [0, 1, 2, 3]}
    assert any("failed to join within the rebalance timeout" in line for line in driver.log_lines)


def test_static_member_moves_to_the_consumer_protocol(driver: GroupDriver) -> None:
    classic_group(driver, instance_id="i")
    modern = Member(driver, "m", "a", instance_id="i")
    assert modern.beat() is ErrorCode.NONE
    assert modern.partitions == {"a": [0, 1, 2, 3]}
    assert [m.member_id for m in driver.ask(DescribeConsumerGroup("g")).members] == ["m"]


def test_partitions_that_the_classic_leader_never_assigned_get_an_owner_after_the_upgrade(driver: GroupDriver) -> None:
    classic_group(driver, instance_id="i")
    driver.change_topics(a=6)
    modern = Member(driver, "m", "a", instance_id="i")
    settle_all(driver, modern)
    assert kind(driver) == "consumer"
    assert modern.partitions == {"a": [0, 1, 2, 3, 4, 5]}


def test_partitions_that_a_member_has_not_given_up_at_a_downgrade_keep_their_owner(
    driver: GroupDriver,
) -> None:
    """A cooperative member rejoins with all its partitions, gets the present epoch, and gives up some with it."""
    classic, modern = classic_group(driver), Member(driver, "m", "a")
    modern.beat()
    modern.leave()
    assert kind(driver) == "classic"
    modern = Member(driver, "n", "a")
    assert modern.beat() is ErrorCode.NONE
    assert kind(driver) == "consumer"
    assert modern.partitions == {}, "the classic member does not know yet that it must give up partitions"
    assert classic.enter() is ErrorCode.NONE
    settle_all(driver, classic, modern)
    assert sorted(classic.owned["a"] + modern.partitions["a"]) == [0, 1, 2, 3]
    assert len(modern.partitions["a"]) == 2


def moved_to_consumer(driver: GroupDriver, old: ClassicConsumer) -> Member:
    """A consumer member with the id of a classic one."""
    modern = Member(driver, old.member_id, "a")
    assert modern.beat() is ErrorCode.NONE
    return modern


def test_classic_member_that_moved_under_its_id_need_not_synchronize(driver: GroupDriver) -> None:
    Member(driver, "m", "a").beat()
    classic = ClassicConsumer(driver, "a", rebalance_timeout_ms=20_000)
    driver.advance(1_000)
    classic.joined(classic.join())
    modern = moved_to_consumer(driver, classic)
    settle_all(driver, modern, rounds=10)


def test_classic_member_that_moved_under_its_id_need_not_join(driver: GroupDriver) -> None:
    classic, modern = classic_group(driver, rebalance_timeout_ms=20_000), Member(driver, "m", "a")
    modern.beat()
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    modern = moved_to_consumer(driver, classic)
    settle_all(driver, modern, rounds=10)


def test_consumer_member_that_moved_under_its_id_need_not_give_up_partitions_in_time(driver: GroupDriver) -> None:
    """The limits for JoinGroup and SyncGroup apply to a classic member."""
    old, other = Member(driver, "m", "a"), Member(driver, "n", "a")
    old.beat()
    old.clings = True
    driver.advance(1_000)
    other.beat()
    old.beat()
    classic = ClassicConsumer(driver, "a")
    classic.member_id = "m"
    for _ in range(20):
        classic.owned = {"a": [0, 1, 2, 3]}
        assert classic.enter() is other.beat() is ErrorCode.NONE
        driver.advance(3_000)
    assert other.partitions == {}, "the member was not removed"


# -- a static classic member replaces the last consumer member ---------------------------------------------------


def test_static_member_moves_to_the_classic_protocol_without_a_rebalance(driver: GroupDriver) -> None:
    modern = Member(driver, "m", "a", instance_id="i")
    modern.beat()
    classic = ClassicConsumer(driver, "a")
    driver.advance(1_000)
    classic.enter()
    settle_all(driver, modern, classic)
    owned = modern.partitions["a"]
    modern.leave(-2)
    successor = ClassicConsumer(driver, "a", instance_id="i")
    answer = successor.joined(successor.join())
    assert kind(driver) == "classic"
    assert answer.error_code == ErrorCode.NONE
    assert answer.generation_id == classic.generation
    assert (answer.leader, answer.skip_assignment) == (successor.member_id, True), "it watches the topics"
    assert successor.take() is ErrorCode.NONE
    assert successor.owned == {"a": owned}
    assert successor.heartbeat() is classic.heartbeat() is ErrorCode.NONE
    assert modern.beat() is ErrorCode.GROUP_ID_NOT_FOUND
    described = driver.ask(DescribeGroup("g"), 6)
    assert described.group_state == "Stable"
    assert {member.member_id for member in described.members} == {classic.member_id, successor.member_id}
    driver.restart()
    assert kind(driver) == "classic"
    assert successor.heartbeat() is classic.heartbeat() is ErrorCode.NONE
    driver.advance(classic.session_timeout_ms - 1)
    assert successor.heartbeat() is ErrorCode.NONE
    driver.advance(classic.session_timeout_ms - 1)
    assert successor.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the other member's session ended"


def test_static_member_that_moves_without_a_rebalance_gets_its_whole_target(driver: GroupDriver) -> None:
    modern = Member(driver, "m", "a", instance_id="i")
    modern.beat()
    classic = ClassicConsumer(driver, "a")
    driver.advance(1_000)
    classic.enter()
    settle_all(driver, modern, classic)
    driver.change_topics(a=6)
    driver.advance(1_000)
    assert classic.enter() is ErrorCode.NONE
    successor = ClassicConsumer(driver, "a", instance_id="i")
    assert successor.joined(successor.join()).skip_assignment
    assert successor.take() is ErrorCode.NONE
    assert kind(driver) == "classic"
    assert sorted(classic.owned["a"] + successor.owned["a"]) == [0, 1, 2, 3, 4, 5]


def test_only_member_moves_to_the_classic_protocol_while_it_is_alive(driver: GroupDriver) -> None:
    modern = Member(driver, "m", "a", instance_id="i")
    modern.beat()
    successor = ClassicConsumer(driver, "a", instance_id="i", version=8)
    answer = successor.joined(successor.join())
    assert kind(driver) == "classic"
    assert answer.leader == "m", "before version 9, a leader cannot skip the assignment"
    assert successor.take() is ErrorCode.NONE
    assert successor.owned == {"a": [0, 1, 2, 3]}
    assert modern.beat() is ErrorCode.GROUP_ID_NOT_FOUND


def test_static_member_with_another_subscription_rebalances_the_classic_group(driver: GroupDriver) -> None:
    driver.change_topics(b=2)
    modern = Member(driver, "m", "a", instance_id="i")
    modern.beat()
    classic = ClassicConsumer(driver, "a")
    driver.advance(1_000)
    classic.enter()
    settle_all(driver, modern, classic)
    generation = classic.generation
    successor = ClassicConsumer(driver, "a", "b", instance_id="i")
    call = successor.join()
    assert kind(driver) == "classic"
    assert call not in driver.answers, "it waits for the rebalance"
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    other = classic.join()
    assert successor.joined(call).generation_id == classic.joined(other).generation_id == generation + 1
    plan = {successor.member_id: assignment_of(a=[0], b=[0, 1]), classic.member_id: assignment_of(a=[1, 2, 3])}
    assert successor.take(plan) is classic.take() is ErrorCode.NONE
    assert (successor.owned, classic.owned) == ({"a": [0], "b": [0, 1]}, {"a": [1, 2, 3]})
    assert any("replacement with different subscription" in line for line in driver.log_lines)


def test_members_that_have_not_reached_their_target_rebalance_after_the_downgrade(driver: GroupDriver) -> None:
    modern = Member(driver, "m", "a", instance_id="i")
    modern.beat()
    classic = ClassicConsumer(driver, "a")
    driver.advance(1_000)
    classic.enter()
    assert classic.owned == {}, "the consumer member has not given up its partitions"
    successor = ClassicConsumer(driver, "a", instance_id="i")
    call = successor.join()
    assert kind(driver) == "classic"
    assert call not in driver.answers
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_new_partitions_rebalance_the_classic_group_after_the_downgrade(driver: GroupDriver) -> None:
    modern = Member(driver, "m", "a", instance_id="i")
    modern.beat()
    driver.change_topics(a=6)
    successor = ClassicConsumer(driver, "a", instance_id="i")
    answer = successor.joined(successor.join())
    assert kind(driver) == "classic"
    assert [row.member_id for row in answer.members] == [successor.member_id], "it assigns the partitions"


def test_failed_downgrade_leaves_the_consumer_group(driver: GroupDriver) -> None:
    modern = Member(driver, "m", "a", instance_id="i")
    modern.beat()
    driver.append_error = ErrorCode.NOT_COORDINATOR
    successor = ClassicConsumer(driver, "a", instance_id="i")
    assert driver.answers[successor.join()].error_code == ErrorCode.NOT_COORDINATOR
    driver.append_error = ErrorCode.NONE
    assert kind(driver) == "consumer"
    assert modern.beat() is ErrorCode.NONE


def test_group_stays_a_consumer_group_if_a_static_member_may_not_downgrade_it() -> None:
    for policy in ({"may_downgrade": False}, {"others": True}, {"max_size": 1}):
        size = policy.get("max_size", 10)
        config = GroupConfig(
            max_size=size, consumer=ConsumerGroupConfig(may_downgrade=policy.get("may_downgrade", True))
        )
        driver = GroupDriver(config)
        driver.change_topics(a=4)
        modern = Member(driver, "m", "a", instance_id="i")
        modern.beat()
        if policy.get("others"):
            Member(driver, "n", "a").beat()
        if size == 1:
            ClassicConsumer(driver, "a").enter()
        successor = ClassicConsumer(driver, "a", instance_id="i")
        assert successor.enter() is ErrorCode.NONE
        assert kind(driver) == "consumer", policy
        assert modern.beat() is ErrorCode.FENCED_INSTANCE_ID
