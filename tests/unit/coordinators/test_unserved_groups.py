"""Groups of later versions of Kafka: they are retained, and requests are rejected."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DeleteGroup, DescribeGroup, GroupConfig, ListGroups, TopicsDeleted
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.drivers.groups import GroupDriver, Joiner

from .test_offsets import DAY_MS, commit, commit_request, committed, raw_commit

RECORD = b"\0\0what a record says is not looked at"


def key(kind: int, group: str = "g", rest: bytes = b"") -> bytes:
    name = group.encode()
    return kind.to_bytes(2, "big") + len(name).to_bytes(2, "big") + name + rest


FUTURE_GROUP = [key(99, rest=b"of a later version"), key(100)]


def opened(*keys: bytes, offset: int | None = 5) -> GroupDriver:
    """Load a shard with the records of a group, optionally after a committed offset."""
    driver = GroupDriver()
    driver.log += [raw_commit(offset, 4)] if offset is not None else []
    driver.log += [(name, RECORD) for name in keys]
    driver.restart()
    return driver


def join_error(driver: GroupDriver) -> ErrorCode:
    joiner = Joiner(driver)
    answer = driver.answers.get(joiner.join())
    return ErrorCode.NONE if answer is None else ErrorCode(answer.error_code)


def delete_offsets(driver: GroupDriver) -> tuple[ErrorCode, list[int]]:
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
    answer = driver.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    return ErrorCode(answer.error_code), [row.error_code for topic in answer.topics for row in topic.partitions]


def test_unsupported_group_and_its_offsets_are_retained() -> None:
    driver = opened(*FUTURE_GROUP)
    before = list(driver.log)
    driver.advance(60 * DAY_MS)
    driver.restart()
    driver.advance(60 * DAY_MS)
    assert driver.log == before, "neither offsets nor the group expire"
    assert set(driver.shard.unserved) == {"g"}
    assert not driver.shard.groups


def test_offsets_loaded_before_or_after_the_group_belong_to_it() -> None:
    driver = opened(*FUTURE_GROUP)
    driver.log.append(raw_commit(6, 4))
    driver.restart()
    assert committed(driver) == 6
    assert not driver.shard.groups, "no simple group beside it"


def test_group_is_listed_with_its_type_and_not_described_as_a_classic_group() -> None:
    driver = opened(*FUTURE_GROUP)
    (row,) = driver.ask(ListGroups(types=frozenset({"unknown"})))
    assert (row.group_id, row.group_type, row.protocol_type, row.group_state) == ("g", "unknown", "", "Unknown")
    assert driver.ask(ListGroups(types=frozenset({"classic"}))) == []
    assert len(driver.ask(ListGroups(states=frozenset({"Unknown"})))) == 1
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


def test_groups_that_stock_kafka_deleted_or_converted_are_not_listed() -> None:
    driver = opened(*FUTURE_GROUP, offset=None)
    driver.log += [(name, None) for name in FUTURE_GROUP]
    driver.restart()
    assert not driver.shard.unserved
    assert not driver.shard.groups
    driver = opened(*FUTURE_GROUP)
    driver.log += [(name, None) for name in FUTURE_GROUP]
    driver.restart()
    assert set(driver.shard.groups) == {"g"}, "its offsets belong to a simple group now"


def test_offsets_of_a_deleted_topic_are_deleted_in_every_kind_of_group() -> None:
    driver = opened(*FUTURE_GROUP)
    driver.ask(TopicsDeleted(frozenset({"t"})))
    assert committed(driver) == -1
    assert set(driver.shard.unserved) == {"g"}


def test_obsolete_records_of_early_releases_make_no_group() -> None:
    for kind in (9, 18):
        assert not opened(key(kind), offset=None).shard.unserved


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
    driver = opened(*FUTURE_GROUP, offset=None)
    assert commit(driver, group="other") is ErrorCode.NONE
    assert driver.ask(commit_request("third"), 9).topics[0].partitions[0].error_code == 0
    assert set(driver.shard.groups) == {"other", "third"}
