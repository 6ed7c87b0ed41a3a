"""Groups of stock Kafka with unsupported protocols: they are retained, and requests are rejected as in Kafka."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DeleteGroup, DescribeGroup, GroupConfig, ListGroups, TopicsDeleted
from ottla.coordinators.group.records import offset_tombstone
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.drivers.groups import GroupDriver, Joiner

from .test_offsets import DAY_MS, commit, commit_request, committed, raw_commit

SESSION_MS = GroupConfig().unserved_session_timeout_ms
RECORD = b"\0\0what a record says is not looked at"


def key(kind: int, group: str = "g", rest: bytes = b"") -> bytes:
    name = group.encode()
    return kind.to_bytes(2, "big") + len(name).to_bytes(2, "big") + name + rest


EMPTY_GROUP = [key(17), key(20)]
MEMBER = [key(19, rest=b"m"), key(21, rest=b"m"), key(22, rest=b"m")]
FUTURE_GROUP = [key(99, rest=b"of a later version")]


def opened(*keys: bytes, offset: int | None = 5) -> GroupDriver:
    """Load a shard with the records of a group, optionally after a committed offset."""
    driver = GroupDriver()
    driver.log += [raw_commit(offset, 4)] if offset is not None else []
    driver.log += [(name, RECORD) for name in keys]
    driver.restart()
    return driver


def alive_keys(driver: GroupDriver) -> set[bytes]:
    """Return the keys of the log that compaction would retain."""
    return {name for name, value in dict(driver.log).items() if value is not None}


def join_error(driver: GroupDriver) -> ErrorCode:
    joiner = Joiner(driver)
    answer = driver.answers.get(joiner.join())
    return ErrorCode.NONE if answer is None else ErrorCode(answer.error_code)


def delete_offsets(driver: GroupDriver) -> tuple[ErrorCode, list[int]]:
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
    answer = driver.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    return ErrorCode(answer.error_code), [row.error_code for topic in answer.topics for row in topic.partitions]


@pytest.mark.parametrize(
    "keys",
    [EMPTY_GROUP, EMPTY_GROUP + MEMBER, FUTURE_GROUP],
    ids=["empty streams", "streams", "future"],
)
def test_unsupported_group_and_its_offsets_are_retained(keys: list[bytes]) -> None:
    driver = opened(*keys)
    before = list(driver.log)
    driver.advance(60 * DAY_MS)
    driver.restart()
    driver.advance(60 * DAY_MS)
    assert driver.log == before, "neither offsets nor the group expire"
    assert set(driver.shard.unserved) == {"g"}
    assert not driver.shard.groups


def test_offsets_loaded_before_or_after_the_group_belong_to_it() -> None:
    driver = opened(*EMPTY_GROUP)
    driver.log.append(raw_commit(6, 4))
    driver.restart()
    assert committed(driver) == 6
    assert not driver.shard.groups, "no simple group beside it"


@pytest.mark.parametrize(
    ("keys", "kind", "protocol", "state"),
    [
        (EMPTY_GROUP, "streams", "streams", "Empty"),
        (EMPTY_GROUP + MEMBER, "streams", "streams", "Unknown"),
        (FUTURE_GROUP, "unknown", "", "Empty"),
    ],
)
def test_group_is_listed_with_its_type_and_not_described_as_a_classic_group(
    keys: list[bytes], kind: str, protocol: str, state: str
) -> None:
    driver = opened(*keys)
    (row,) = driver.ask(ListGroups(types=frozenset({kind})))
    assert (row.group_id, row.group_type, row.protocol_type, row.group_state) == ("g", kind, protocol, state)
    assert driver.ask(ListGroups(types=frozenset({"classic"}))) == []
    assert len(driver.ask(ListGroups(states=frozenset({state})))) == 1
    described = driver.ask(DescribeGroup("g"), 6)
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group g is not a classic group."
    old = driver.ask(DescribeGroup("g"), 5)
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")


def test_group_that_cannot_be_converted_rejects_the_classic_protocol() -> None:
    driver = opened(*FUTURE_GROUP)
    before = list(driver.log)
    assert join_error(driver) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert commit(driver) is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(driver, version=8) is ErrorCode.ILLEGAL_GENERATION
    assert delete_offsets(driver) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert Joiner(driver).heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert Joiner(driver).leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.log == before


def test_group_rejects_classic_members_until_sessions_of_its_members_expire() -> None:
    driver = opened(*EMPTY_GROUP, *MEMBER)
    before = list(driver.log)
    assert join_error(driver) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a client waits and retries"
    assert commit(driver) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, member="m", generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert delete_offsets(driver) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.NON_EMPTY_GROUP
    assert committed(driver) == 5
    assert driver.log == before
    driver.advance(SESSION_MS)
    assert commit(driver, offset=9) is ErrorCode.NONE
    assert committed(driver) == 9
    assert set(driver.shard.unserved) == {"g"}, "an administrator's commit does not convert the group"


def test_administrator_commits_and_deletes_offsets_of_an_empty_group() -> None:
    driver = opened(*EMPTY_GROUP)
    assert commit(driver, offset=8) is ErrorCode.NONE
    assert committed(driver) == 8
    assert commit(driver, member="m", generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert delete_offsets(driver) == (ErrorCode.NONE, [0])
    assert committed(driver) == -1
    assert alive_keys(driver) == set(EMPTY_GROUP)


@pytest.mark.parametrize("keys", [EMPTY_GROUP, EMPTY_GROUP + MEMBER], ids=["empty", "stale"])
def test_classic_member_converts_an_empty_group_and_finds_its_offsets(keys: list[bytes]) -> None:
    driver = opened(*keys)
    driver.advance(SESSION_MS)
    joiner = Joiner(driver)
    call = joiner.join()
    driver.advance(GroupConfig().initial_rebalance_delay_ms)
    assert joiner.joined(call).error_code == ErrorCode.NONE
    joiner.sync({joiner.member_id: b"all"})
    assert committed(driver) == 5
    assert not driver.shard.unserved
    assert alive_keys(driver) == {raw_commit(5, 4)[0], b"\0\2\0\1g"}, "as stock Kafka converts it"
    driver.restart()
    assert set(driver.shard.groups) == {"g"}
    assert not driver.shard.unserved


def test_tombstones_are_in_the_order_that_kafka_can_replay() -> None:
    driver = opened(*EMPTY_GROUP, *MEMBER)
    driver.advance(SESSION_MS)
    before = len(driver.log)
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.NONE
    deleted = driver.log[before:]
    assert deleted[0] == offset_tombstone("g", "t", 0)
    assert [int.from_bytes(name[:2], "big") for name, _ in deleted[1:]] == [22, 21, 20, 19, 17]
    assert alive_keys(driver) == set()
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_rejected_join_does_not_convert_the_group() -> None:
    driver = opened(*EMPTY_GROUP)
    before = list(driver.log)
    returning = Joiner(driver)
    returning.member_id = "m"
    assert driver.answers[returning.join()].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    short = Joiner(driver, session_timeout_ms=1)
    assert driver.answers[short.join()].error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.log == before


def test_failed_conversion_retains_the_group() -> None:
    driver = opened(*EMPTY_GROUP)
    driver.append_error = ErrorCode.NOT_COORDINATOR
    assert join_error(driver) is ErrorCode.NOT_COORDINATOR
    assert set(driver.shard.unserved) == {"g"}
    driver.append_error = ErrorCode.NONE
    assert join_error(driver) is ErrorCode.NONE


def test_groups_that_stock_kafka_deleted_or_converted_are_not_listed() -> None:
    driver = opened(*EMPTY_GROUP, offset=None)
    driver.log += [(name, None) for name in EMPTY_GROUP]
    driver.restart()
    assert not driver.shard.unserved
    assert not driver.shard.groups
    driver = opened(*EMPTY_GROUP)
    driver.log += [(name, None) for name in EMPTY_GROUP]
    driver.restart()
    assert set(driver.shard.groups) == {"g"}, "its offsets belong to a simple group now"


def test_offsets_of_a_deleted_topic_are_deleted_in_every_kind_of_group() -> None:
    driver = opened(*EMPTY_GROUP)
    driver.ask(TopicsDeleted(frozenset({"t"})))
    assert committed(driver) == -1
    assert set(driver.shard.unserved) == {"g"}


def test_record_of_an_unknown_type_does_not_change_a_classic_group() -> None:
    driver = GroupDriver()
    joiner = Joiner(driver)
    call = joiner.join()
    driver.advance(GroupConfig().initial_rebalance_delay_ms)
    joiner.joined(call)
    joiner.sync({joiner.member_id: b"all"})
    group_record = driver.log[-1]
    for records in ([group_record, (FUTURE_GROUP[0], RECORD)], [(FUTURE_GROUP[0], RECORD), group_record]):
        driver.log = list(records)
        driver.restart()
        assert set(driver.shard.groups) == {"g"}
        assert not driver.shard.unserved
        assert joiner.heartbeat() is ErrorCode.NONE


def test_other_groups_of_the_shard_are_not_affected() -> None:
    driver = opened(*EMPTY_GROUP, offset=None)
    assert commit(driver, group="other") is ErrorCode.NONE
    assert driver.ask(commit_request("third"), 9).topics[0].partitions[0].error_code == 0
    assert set(driver.shard.groups) == {"other", "third"}
