"""The log lines of the group coordinator: stock Kafka's lines, in the same order."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import GroupConfig
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.drivers.groups import GroupDriver, Joiner

from .test_rebalance import stable_group


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver(GroupConfig(initial_rebalance_delay_ms=0))


def test_member_joins_leaves_and_the_group_is_empty(driver: GroupDriver) -> None:
    member = Joiner(driver, client_id="one")
    call = member.join()
    driver.advance(0)
    member.joined(call)
    member.sync({member.member_id: b"all"})
    name = member.member_id
    members = [MemberIdentity(member_id=name, reason="the consumer is being closed")]
    driver.ask(LeaveGroupRequest(group_id="g", members=members), 5)
    assert driver.log_lines == [
        (
            "Dynamic member with unknown member id joins group g in Empty state. "
            f"Created a new member id {name} and requesting the member to rejoin with this id."
        ),
        f"Pending dynamic member with id {name} joins group g in Empty state. Adding to the group now.",
        (
            "Preparing to rebalance group g in state PreparingRebalance with old generation 0 "
            f"(reason: Adding new member {name} with group instance id null; client reason: not provided)."
        ),
        "Stabilized group g generation 1 with 1 members.",
        (
            f"Assignment received from leader {name} for group g for generation 1. "
            "The group has 1 members, 0 of which are static."
        ),
        (
            f"[Group g] Member {name} has left group through explicit `LeaveGroup` request; "
            "client reason: the consumer is being closed"
        ),
        (
            "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
            f"(reason: explicit `LeaveGroup` request for ({name}) members.)."
        ),
        "Group g with generation 2 is now empty.",
    ]


def test_member_without_heartbeats_is_logged_as_failed(driver: GroupDriver) -> None:
    (member,) = stable_group(driver, 1)
    pending = driver.ask(Joiner(driver, client_id="late").join_request(), 9, "late").member_id
    driver.log_lines.clear()
    driver.advance(member.session_timeout_ms + 1)
    assert set(driver.log_lines) == {
        f"Member {member.member_id} in group g has failed, removing it from the group.",
        f"Pending member {pending} in group g has been removed after session timeout expiration.",
        (
            "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
            f"(reason: removing member {member.member_id} on heartbeat expiration.)."
        ),
        "Group g with generation 2 is now empty.",
    }


def test_static_member_is_replaced(driver: GroupDriver) -> None:
    first = Joiner(driver, instance_id="i")
    call = first.join()
    driver.advance(0)
    first.joined(call)
    first.sync({first.member_id: b"all"})
    assert driver.log_lines[0] == (
        "Static member with groupInstanceId=i and unknown member id joins group g in Empty state. "
        f"Created a new member id {first.member_id} for this member and added to the group."
    )
    driver.log_lines.clear()
    second = Joiner(driver, instance_id="i")
    second.joined(second.join())
    assert driver.log_lines == [
        (
            "Static member with groupInstanceId=i and unknown member id joins group g in Stable state. "
            f"Replacing previously mapped member {first.member_id} with this groupInstanceId."
        ),
        (
            "Static member which joins during Stable stage and doesn't affect the selected protocol will not trigger a "
            "rebalance."
        ),
    ]


def test_members_that_do_not_rejoin_or_sync_are_logged(driver: GroupDriver) -> None:
    members = stable_group(driver, 2)
    driver.log_lines.clear()
    leader, other = members
    leader.join()
    assert driver.log_lines == [
        (
            "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
            f"(reason: Leader {leader.member_id} re-joining group during Stable; client reason: not provided)."
        )
    ]
    for _ in range(leader.rebalance_timeout_ms // 5_000 + 1):
        driver.advance(5_000)
        if f"Group g removed dynamic members who haven't joined: [{other.member_id}]" in driver.log_lines:
            break
        other.heartbeat()
    else:
        pytest.fail("\n".join(driver.log_lines))
    assert driver.log_lines[-1].startswith("Stabilized group g generation 2 with 1 members.")


def test_restart_and_unload_log_each_group(driver: GroupDriver) -> None:
    stable_group(driver, 2)
    driver.log_lines.clear()
    driver.restart()
    driver.unload(ErrorCode.NOT_COORDINATOR)
    assert driver.log_lines == [
        "Loaded classic group g with 2 members.",
        "[GroupId=g] Unloading group metadata for generation 1.",
    ]


def test_expired_offsets_are_logged_up_to_a_limit() -> None:
    driver = GroupDriver(GroupConfig(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=500))
    partitions = [OffsetCommitRequestPartition(partition_index=i, committed_offset=1) for i in range(60)]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    driver.ask(OffsetCommitRequest(group_id="simple", topics=[topic]), 8)
    driver.advance(2_000)
    names = ", ".join(f"t-{i}" for i in range(50))
    assert driver.log_lines == [
        f"[GroupId simple] Expiring offsets of partitions: {names} and 10 more",
        "Generated 61 tombstone records while cleaning up group metadata.",
    ]
