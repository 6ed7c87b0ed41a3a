"""Joining, syncing and the ends of generations, from the view of a group's members."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.config.settings import BROKER_SETTINGS
from ottla.coordinators.group import DescribeGroup, GroupConfig
from ottla.coordinators.group.states import State
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest
from tests.drivers.groups import GroupDriver, Joiner


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


def stable_group(driver: GroupDriver, size: int, **options: object) -> list[Joiner]:
    """Create a stable group in which each member has its own number as assignment; the first member leads."""
    members = [Joiner(driver, **options) for _ in range(size)]  # type: ignore[arg-type]
    settle(driver, members)
    return members


def settle(driver: GroupDriver, members: list[Joiner]) -> None:
    """Join and sync all members at once."""
    calls = [member.join() for member in members]
    driver.advance(6_000)
    answers = [member.joined(call) for member, call in zip(members, calls, strict=True)]
    assert [answer.error_code for answer in answers] == [0] * len(members)
    leader = next(m for m, answer in zip(members, answers, strict=True) if answer.leader == answer.member_id)
    assignments = {member.member_id: b"%d" % number for number, member in enumerate(members)}
    calls = [member.sync() for member in members if member is not leader]
    last = leader.sync(assignments)
    assert all(driver.answers[call].error_code == 0 for call in [*calls, last])


def state(driver: GroupDriver, group_id: str = "g") -> str:
    return driver.ask(DescribeGroup(group_id)).group_state


def test_first_join_of_dynamic_member_returns_member_id_required(driver: GroupDriver) -> None:
    joiner = Joiner(driver, client_id="app")
    answer = driver.ask(joiner.join_request(), 4, "app")
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("app-")
    assert len(answer.member_id) == len("app-") + 36


def test_join_before_version_4_adds_the_member_at_once(driver: GroupDriver) -> None:
    call = driver.send(Joiner(driver).join_request(), 3)
    assert call not in driver.answers
    driver.advance(3_000)
    assert driver.answers[call].error_code == ErrorCode.NONE


def test_initial_rebalance_waits_for_the_delay(driver: GroupDriver) -> None:
    call = Joiner(driver).join()
    driver.advance(2_999)
    assert call not in driver.answers
    driver.advance(1)
    assert driver.answers[call].generation_id == 1


def test_initial_delay_is_extended_while_members_join(driver: GroupDriver) -> None:
    first = Joiner(driver)
    call = first.join()
    driver.advance(2_000)
    second = Joiner(driver).join()
    driver.advance(1_500)
    assert call not in driver.answers
    driver.advance(2_500)
    assert driver.answers[call].generation_id == driver.answers[second].generation_id == 1


def test_minimum_delay_gathers_many_members_into_one_generation() -> None:
    settings: dict[str, object] = {name: setting.default for name, setting in BROKER_SETTINGS.items()} | {
        "group.min.session.timeout.ms": 6_000, "group.max.session.timeout.ms": 1_800_000, "group.max.size": 100,
        "group.initial.rebalance.delay.ms": 0, "offset.metadata.max.bytes": 4096, "offsets.retention.minutes": 1,
        "offsets.retention.check.interval.ms": 600_000,
    }  # fmt: skip
    driver = GroupDriver(GroupConfig.from_settings(settings.__getitem__))
    calls = []
    for _ in range(5):
        calls.append(Joiner(driver).join())
        driver.advance(15)
    assert not driver.answers.keys() & set(calls)
    driver.advance(25)
    assert {driver.answers[call].generation_id for call in calls} == {1}


def test_initial_delay_is_limited_by_the_rebalance_timeout(driver: GroupDriver) -> None:
    first = Joiner(driver, rebalance_timeout_ms=7_000).join()
    for _ in range(8):
        driver.advance(1_000)
        Joiner(driver, rebalance_timeout_ms=7_000).join()
    assert first in driver.answers


def test_only_leader_receives_members_and_all_receive_its_assignment(driver: GroupDriver) -> None:
    members = [Joiner(driver, protocols=(("range", b"m%d" % n),)) for n in range(3)]
    calls = [member.join() for member in members]
    driver.advance(6_000)
    answers = [member.joined(call) for member, call in zip(members, calls, strict=True)]
    assert [len(answer.members) for answer in answers] == [3, 0, 0]
    assert {row.member_id: row.metadata for row in answers[0].members} == {
        member.member_id: b"m%d" % n for n, member in enumerate(members)
    }
    followers = [member.sync() for member in members[1:]]
    assert not any(call in driver.answers for call in followers)
    assert state(driver) == "CompletingRebalance"
    members[0].sync({member.member_id: member.member_id.encode() for member in members})
    assert [driver.answers[call].assignment for call in followers] == [m.member_id.encode() for m in members[1:]]
    assert state(driver) == "Stable"


def test_protocol_that_most_members_prefer_wins(driver: GroupDriver) -> None:
    both = (("cooperative-sticky", b""), ("range", b""))
    members = [
        Joiner(driver, protocols=both),
        Joiner(driver, protocols=both[::-1]),
        Joiner(driver, protocols=both[::-1]),
    ]
    calls = [member.join() for member in members]
    driver.advance(6_000)
    assert {driver.answers[call].protocol_name for call in calls} == {"range"}


def test_duplicate_protocol_counts_once(driver: GroupDriver) -> None:
    members = [Joiner(driver, protocols=(("range", b"1"), ("range", b"2"))), Joiner(driver)]
    settle(driver, members)
    assert {member.generation for member in members} == {members[0].generation} != {-1}


@pytest.mark.parametrize(
    ("protocols", "protocol_type"), [((("sticky", b""),), "consumer"), ((("range", b""),), "connect"), ((), "consumer")]
)
def test_join_without_a_common_protocol_is_rejected(
    driver: GroupDriver, protocols: tuple[tuple[str, bytes], ...], protocol_type: str
) -> None:
    stable_group(driver, 1)
    stranger = Joiner(driver, protocols=protocols, protocol_type=protocol_type)
    assert driver.answers[stranger.join()].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert state(driver) == "Stable"


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_timeout_out_of_range_is_rejected(driver: GroupDriver, timeout_ms: int) -> None:
    call = Joiner(driver, session_timeout_ms=timeout_ms).join()
    assert driver.answers[call].error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_empty_group_id_is_invalid(driver: GroupDriver) -> None:
    assert driver.ask(JoinGroupRequest(session_timeout_ms=10_000)).error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.ask(SyncGroupRequest()).error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.ask(LeaveGroupRequest(), 5).error_code == ErrorCode.INVALID_GROUP_ID


def test_unknown_member_of_unknown_group_is_rejected(driver: GroupDriver) -> None:
    joiner = Joiner(driver)
    joiner.member_id = "ghost"
    assert driver.answers[joiner.join()].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert joiner.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.answers[joiner.sync()].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert joiner.leave() == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_makes_other_members_rejoin(driver: GroupDriver) -> None:
    first, second = stable_group(driver, 2)
    call = Joiner(driver).join()
    assert first.heartbeat() == second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    assert call not in driver.answers
    second.join()
    assert driver.answers[call].generation_id == 2


def test_member_that_does_not_rejoin_is_removed_after_the_rebalance_timeout(driver: GroupDriver) -> None:
    first, second = stable_group(driver, 2, rebalance_timeout_ms=30_000, session_timeout_ms=40_000)
    call = Joiner(driver, rebalance_timeout_ms=30_000).join()
    again = first.join()
    driver.advance(29_999)
    assert call not in driver.answers
    driver.advance(1)
    assert driver.answers[call].generation_id == driver.answers[again].generation_id == 2
    assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_does_not_sync_is_removed_and_the_group_rebalances(driver: GroupDriver) -> None:
    first, second = Joiner(driver, session_timeout_ms=70_000), Joiner(driver, session_timeout_ms=70_000)
    calls = first.join(), second.join()
    driver.advance(6_000)
    first.joined(calls[0])
    second.joined(calls[1])
    first.sync({first.member_id: b"all"})
    assert state(driver) == "Stable"
    driver.advance(60_000)
    assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_follower_joining_again_unchanged_keeps_the_generation(driver: GroupDriver) -> None:
    _, follower = stable_group(driver, 2)
    answer = driver.answers[follower.join()]
    assert (answer.error_code, answer.generation_id, answer.members) == (0, 1, [])
    assert state(driver) == "Stable"


def test_leader_joining_again_forces_a_rebalance(driver: GroupDriver) -> None:
    leader, follower = stable_group(driver, 2)
    leader.join()
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_changed_subscription_forces_a_rebalance(driver: GroupDriver) -> None:
    leader, follower = stable_group(driver, 2)
    follower.protocols = (("range", b"other topics"),)
    follower.join()
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_join_can_be_retried_in_the_sync_phase(driver: GroupDriver) -> None:
    members = [Joiner(driver), Joiner(driver)]
    calls = [member.join() for member in members]
    driver.advance(6_000)
    first = driver.answers[calls[0]]
    members[0].member_id = first.member_id
    again = driver.answers[members[0].join()]
    assert again == first


def test_join_in_the_sync_phase_fails_parked_syncs(driver: GroupDriver) -> None:
    members = [Joiner(driver), Joiner(driver)]
    calls = [member.join() for member in members]
    driver.advance(6_000)
    for member, call in zip(members, calls, strict=True):
        member.joined(call)
    waiting = members[1].sync()
    Joiner(driver).join()
    assert driver.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.answers[members[0].sync()].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_old_generation_and_wrong_protocol_are_rejected_in_sync(driver: GroupDriver) -> None:
    (member,) = stable_group(driver, 1)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member.member_id, protocol_name="sticky")
    assert driver.ask(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = SyncGroupRequest(group_id="g", generation_id=0, member_id=member.member_id)
    assert driver.ask(request, 5).error_code == ErrorCode.ILLEGAL_GENERATION
    member.generation = 0
    assert member.heartbeat() == ErrorCode.ILLEGAL_GENERATION


def test_member_without_heartbeats_is_removed_after_its_session_timeout(driver: GroupDriver) -> None:
    first, second = stable_group(driver, 2)
    for _ in range(3):
        driver.advance(4_000)
        first.heartbeat()
    assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.answers[first.join()].generation_id == 2


def test_heartbeats_extend_the_session(driver: GroupDriver) -> None:
    (member,) = stable_group(driver, 1)
    for _ in range(100):
        driver.advance(9_999)
        assert member.heartbeat() == ErrorCode.NONE


def test_member_waiting_in_a_rebalance_needs_no_heartbeats(driver: GroupDriver) -> None:
    first, second = stable_group(driver, 2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    call = first.join()
    for _ in range(10):
        driver.advance(5_000)
        second.heartbeat()
    assert call not in driver.answers
    second.join()
    assert driver.answers[call].error_code == ErrorCode.NONE


def test_unused_member_id_expires_and_lets_the_rebalance_complete(driver: GroupDriver) -> None:
    (member,) = stable_group(driver, 1, session_timeout_ms=6_000)
    driver.send(Joiner(driver, session_timeout_ms=6_000).join_request())
    call = member.join()
    driver.advance(5_999)
    assert call not in driver.answers
    driver.advance(1)
    assert driver.answers[call].generation_id == 2


def test_leaving_starts_a_rebalance_and_the_last_one_empties_the_group(driver: GroupDriver) -> None:
    first, second = stable_group(driver, 2)
    assert second.leave() == ErrorCode.NONE
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.leave() == ErrorCode.NONE
    assert state(driver) == "Empty"
    assert driver.replayed().groups["g"].state is State.EMPTY


def test_leave_returns_an_error_code_per_member(driver: GroupDriver) -> None:
    member, fixed = Joiner(driver), Joiner(driver, instance_id="i1")
    settle(driver, [member, fixed])
    leavers = [
        MemberIdentity(member_id=member.member_id),
        MemberIdentity(member_id="", group_instance_id="i1"),
        MemberIdentity(member_id="", group_instance_id="i2"),
        MemberIdentity(member_id="ghost"),
    ]
    answer = driver.ask(LeaveGroupRequest(group_id="g", members=leavers), 5)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [row.error_code for row in answer.members] == [0, 0, unknown, unknown]
    assert state(driver) == "Empty"


def test_leave_of_the_old_versions_has_one_member_and_one_error(driver: GroupDriver) -> None:
    (member,) = stable_group(driver, 1)
    assert driver.ask(LeaveGroupRequest(group_id="g", member_id=member.member_id), 2).error_code == ErrorCode.NONE
    answer = driver.ask(LeaveGroupRequest(group_id="g", member_id=member.member_id), 2)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_rejects_members_beyond_its_maximum() -> None:
    driver = GroupDriver(GroupConfig(max_size=2))
    stable_group(driver, 2)
    assert driver.answers[Joiner(driver).join()].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert state(driver) == "Stable"


def test_lowered_maximum_rejects_members_that_rejoin_last() -> None:
    driver = GroupDriver()
    members = stable_group(driver, 3)
    driver.config = GroupConfig(max_size=2)
    driver.restart()
    assert state(driver) == "PreparingRebalance"
    calls = [member.join() for member in members]
    assert [driver.answers[call].error_code for call in calls] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_failed_append_of_the_assignment_starts_a_rebalance(driver: GroupDriver) -> None:
    members = [Joiner(driver), Joiner(driver)]
    calls = [member.join() for member in members]
    driver.advance(6_000)
    for member, call in zip(members, calls, strict=True):
        member.joined(call)
    waiting = members[1].sync()
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    failed = members[0].sync({members[1].member_id: b"1"})
    assert driver.answers[waiting].error_code == driver.answers[failed].error_code == driver.append_error
    assert state(driver) == "PreparingRebalance"
    assert not driver.log
    driver.append_error = ErrorCode.NONE
    settle(driver, members)
    assert state(driver) == "Stable"


def test_stable_group_survives_a_restart_without_a_rebalance(driver: GroupDriver) -> None:
    members = stable_group(driver, 3)
    driver.restart()
    assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 3
    assert [driver.answers[member.sync()].assignment for member in members] == [b"0", b"1", b"2"]


def test_members_that_died_during_a_restart_time_out(driver: GroupDriver) -> None:
    stable_group(driver, 2)
    driver.restart()
    driver.advance(10_000)
    driver.advance(60_000)
    assert state(driver) == "Empty"


def test_unload_answers_parked_requests(driver: GroupDriver) -> None:
    join = Joiner(driver).join()
    others = [Joiner(driver, "h"), Joiner(driver, "h")]
    calls = [member.join() for member in others]
    driver.advance(2_000)
    driver.unload(ErrorCode.NOT_COORDINATOR)
    assert {driver.answers[call].error_code for call in [join, *calls]} == {ErrorCode.NOT_COORDINATOR}


def test_hundred_members_stabilize_with_a_hundred_partitions(driver: GroupDriver) -> None:
    members = stable_group(driver, 100)
    assert state(driver) == "Stable"
    assert {driver.answers[member.sync()].assignment for member in members} == {b"%d" % n for n in range(100)}
