"""Members with a `group.instance.id` (KIP-345): they return without a rebalance, and duplicates are fenced."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DescribeGroup
from ottla.testing.groups import GroupDriver, Joiner

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
