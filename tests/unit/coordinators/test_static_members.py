"""Members with a `group.instance.id` (KIP-345): they return without a rebalance, and duplicates are fenced."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DescribeGroup
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from tests.drivers.groups import GroupDriver, Joiner

from .test_rebalance import settle, state


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


def static_group(driver: GroupDriver, size: int = 2) -> list[Joiner]:
    members = [Joiner(driver, instance_id=f"i{n}") for n in range(size)]
    settle(driver, members)
    return members


def test_static_member_receives_its_member_id_at_once(driver: GroupDriver) -> None:
    call = Joiner(driver, instance_id="i1").join()
    driver.advance(3_000)
    assert driver.answers[call].member_id.startswith("i1-")


def test_returning_follower_keeps_its_assignment_without_a_rebalance(driver: GroupDriver) -> None:
    leader, follower = static_group(driver)
    reborn = Joiner(driver, instance_id="i1")
    answer = reborn.joined(reborn.join())
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (0, 1, False)
    assert answer.member_id != follower.member_id
    assert driver.answers[reborn.sync()].assignment == b"1"
    assert leader.heartbeat() == ErrorCode.NONE
    assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


def test_returning_leader_skips_the_assignment(driver: GroupDriver) -> None:
    static_group(driver)
    reborn = Joiner(driver, instance_id="i0")
    answer = reborn.joined(reborn.join())
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert [row.group_instance_id for row in answer.members] == ["i0", "i1"]
    assert driver.answers[reborn.sync()].assignment == b"0"
    assert state(driver) == "Stable"


def test_returning_leader_of_an_old_version_receives_its_former_id_as_leader(driver: GroupDriver) -> None:
    leader, _ = static_group(driver)
    reborn = Joiner(driver, instance_id="i0", version=8)
    answer = reborn.joined(reborn.join())
    assert answer.leader == leader.member_id != answer.member_id
    assert answer.members == []


def test_replacement_is_written_to_the_log(driver: GroupDriver) -> None:
    static_group(driver)
    reborn = Joiner(driver, instance_id="i1")
    reborn.joined(reborn.join())
    driver.restart()
    assert reborn.heartbeat() == ErrorCode.NONE
    assert driver.answers[reborn.sync()].assignment == b"1"


def test_failed_append_of_a_replacement_retains_the_former_member(driver: GroupDriver) -> None:
    _, follower = static_group(driver)
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    reborn = Joiner(driver, instance_id="i1")
    assert driver.answers[reborn.join()].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert follower.heartbeat() == ErrorCode.NONE


def test_returning_member_that_changes_the_vote_starts_a_rebalance(driver: GroupDriver) -> None:
    both = (("range", b""), ("sticky", b""))
    members = [Joiner(driver, instance_id=f"i{n}", protocols=both) for n in range(2)]
    settle(driver, members)
    reborn = Joiner(driver, instance_id="i1", protocols=(("sticky", b""),))
    call = reborn.join()
    assert call not in driver.answers
    assert members[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def subscription(*topics: str) -> bytes:
    return encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), 3)


def assignment(**partitions: Iterable[int]) -> bytes:
    rows = [ConsumerProtocolAssignmentTopicPartition(t, list(numbers)) for t, numbers in partitions.items()]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows), 3)


def reading_group(driver: GroupDriver, *assignments: bytes) -> list[Joiner]:
    """A group of static members that subscribe to `t`, and have these assignments."""
    protocols = (("range", subscription("t")),)
    members = [Joiner(driver, instance_id=f"i{n}", protocols=protocols) for n in range(len(assignments))]
    calls = [member.join() for member in members]
    driver.advance(6_000)
    for member, call in zip(members, calls, strict=True):
        member.joined(call)
    given = {member.member_id: given for member, given in zip(members, assignments, strict=True)}
    for index, member in enumerate(members):
        member.sync(given if index == 0 else None)
    return members


def returns(driver: GroupDriver, instance_id: str, *topics: str) -> bool:
    """Whether the member returns at once; False if there is a rebalance."""
    call = Joiner(driver, instance_id=instance_id, protocols=(("range", subscription(*topics)),)).join()
    return call in driver.answers


@pytest.mark.parametrize("instance_id", ["i0", "i1"])
def test_returning_member_causes_a_rebalance_if_a_topic_has_grown(driver: GroupDriver, instance_id: str) -> None:
    driver.change_topics(t=2, other=1)
    members = reading_group(driver, assignment(t=[0]), assignment(t=[1]))
    assert returns(driver, instance_id, "t")
    driver.change_topics(t=3)
    assert not returns(driver, instance_id, "t")
    present = members[1 - int(instance_id[1])]
    assert present.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_returning_member_causes_a_rebalance_if_partitions_were_given_up(driver: GroupDriver) -> None:
    """A cooperative member gives up partitions in one rebalance; it must join again, for their new owner gets them."""
    driver.change_topics(t=3)
    reading_group(driver, assignment(t=[0]), assignment())
    assert not returns(driver, "i0", "t")


def test_returning_member_causes_a_rebalance_for_a_topic_that_no_member_reads(driver: GroupDriver) -> None:
    driver.change_topics(t=2, other=1)
    reading_group(driver, assignment(t=[0]), assignment(t=[1]))
    assert not returns(driver, "i1", "t", "other")


def test_returning_member_causes_no_rebalance_if_topics_are_deleted_or_assignments_unknown(driver: GroupDriver) -> None:
    driver.change_topics(t=2)
    reading_group(driver, assignment(t=[0, 1], deleted=[0]), assignment())
    assert returns(driver, "i1", "t", "deleted")
    other = GroupDriver()
    other.change_topics(t=2)
    reading_group(other, b"\xff\xff", b"one")
    assert returns(other, "i1", "t")


def test_second_member_with_same_instance_id_fences_the_parked_first(driver: GroupDriver) -> None:
    first = Joiner(driver, instance_id="i0").join()
    second = Joiner(driver, instance_id="i0").join()
    assert driver.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    driver.advance(3_000)
    assert driver.answers[second].error_code == ErrorCode.NONE
    assert len(driver.ask(DescribeGroup("g")).members) == 1


def test_return_during_a_parked_join_needs_no_heartbeats(driver: GroupDriver) -> None:
    (present,) = static_group(driver, 1)
    first = Joiner(driver, instance_id="new").join()
    # The present member sends heartbeats and joins late; meanwhile the new member has lost its connection.
    again = Joiner(driver, instance_id="new")
    waiting = again.join()
    assert driver.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    for _ in range(5):
        driver.advance(5_000)
        assert present.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in driver.answers
    present.joined(present.join())
    assert again.joined(waiting).error_code == ErrorCode.NONE
    assert again.generation == present.generation == 2


def test_return_during_the_sync_phase_restarts_the_rebalance(driver: GroupDriver) -> None:
    members = [Joiner(driver, instance_id=f"i{n}") for n in range(2)]
    calls = [member.join() for member in members]
    driver.advance(6_000)
    for member, call in zip(members, calls, strict=True):
        member.joined(call)
    waiting = members[1].sync()
    Joiner(driver, instance_id="i1").join()
    assert driver.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert members[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_absent_static_member_remains_until_its_session_expires(driver: GroupDriver) -> None:
    leader, absent = static_group(driver)
    leader.rebalance_timeout_ms = absent.rebalance_timeout_ms
    call = leader.join()
    driver.advance(10_000)
    assert driver.answers[call].generation_id == 2
    assert absent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_wrong_member_id_with_a_known_instance_is_fenced(driver: GroupDriver) -> None:
    _, follower = static_group(driver)
    follower.member_id = "another-member"
    assert driver.answers[follower.join()].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.answers[follower.sync()].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert follower.leave() == ErrorCode.FENCED_INSTANCE_ID
