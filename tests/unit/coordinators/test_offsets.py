"""Committing, fetching, deleting and expiring offsets, and describing groups."""

from __future__ import annotations

import struct

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import (
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    GroupConfig,
    ListGroups,
    TopicsDeleted,
)
from ottla.protocol.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.drivers.groups import WALL_START_MS, GroupDriver, Joiner

from .test_rebalance import settle, stable_group, state

DAY_MS = 86_400_000


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


def commit_request(
    group: str = "g",
    offset: int = 7,
    *,
    member: str = "",
    generation: int = -1,
    topic: str = "t",
    metadata: str | None = "",
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )


def commit(driver: GroupDriver, version: int = 9, **options: object) -> ErrorCode:
    answer = driver.ask(commit_request(**options), version)  # type: ignore[arg-type]
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(driver: GroupDriver, group: str = "g", topic: str = "t", *, stable: bool = False) -> int:
    wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    answer = driver.ask(FetchOffsets(OffsetFetchRequestGroup(group_id=group, topics=wanted), stable))
    row = answer.topics[0].partitions[0]
    return -100 - row.error_code if row.error_code else int(row.committed_offset)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


def test_committed_offset_is_fetched_and_survives_a_restart(driver: GroupDriver) -> None:
    assert commit(driver, offset=7) == ErrorCode.NONE
    assert committed(driver) == 7
    driver.restart()
    assert committed(driver) == 7
    assert state(driver) == "Empty"


def test_missing_offset_is_minus_one(driver: GroupDriver) -> None:
    assert committed(driver, "unknown group") == -1
    commit(driver)
    assert committed(driver, topic="other") == -1


def test_offset_of_a_recreated_topic_is_missing(driver: GroupDriver) -> None:
    request = commit_request(offset=7)
    request.topics[0].topic_id = b"1" * 16
    driver.ask(request)
    driver.restart()
    for topic_id, expected in ((b"1" * 16, 7), (b"2" * 16, -1), (bytes(16), 7)):
        wanted = [OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])]
        answer = driver.ask(FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=wanted)))
        assert answer.topics[0].partitions[0].committed_offset == expected


def test_null_topics_fetch_all(driver: GroupDriver) -> None:
    commit(driver, topic="a", offset=1)
    commit(driver, topic="b", offset=2)
    answer = driver.ask(FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=None)))
    assert {t.name: [p.committed_offset for p in t.partitions] for t in answer.topics} == {"a": [1], "b": [2]}


def test_member_commits_only_in_its_generation(driver: GroupDriver) -> None:
    member, other = stable_group(driver, 2)
    assert commit(driver, member=member.member_id, generation=1) == ErrorCode.NONE
    assert commit(driver, member=member.member_id, generation=0) == ErrorCode.ILLEGAL_GENERATION
    assert commit(driver, member="ghost", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver) == ErrorCode.UNKNOWN_MEMBER_ID
    other.leave()
    assert commit(driver, member=member.member_id, generation=1) == ErrorCode.NONE


def test_commit_while_the_leader_assigns_must_wait_for_the_rebalance(driver: GroupDriver) -> None:
    member = Joiner(driver)
    call = member.join()
    driver.advance(3_000)
    member.joined(call)
    assert commit(driver, member=member.member_id, generation=1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_counts_as_a_heartbeat(driver: GroupDriver) -> None:
    (member,) = stable_group(driver, 1)
    for _ in range(5):
        driver.advance(9_000)
        assert commit(driver, member=member.member_id, generation=1) == ErrorCode.NONE


def test_generation_of_an_unknown_group_is_rejected_by_version(driver: GroupDriver) -> None:
    assert commit(driver, 8, member="m", generation=3) == ErrorCode.ILLEGAL_GENERATION
    assert commit(driver, 9, member="m", generation=3) == ErrorCode.GROUP_ID_NOT_FOUND


def test_offset_metadata_has_a_size_limit(driver: GroupDriver) -> None:
    assert commit(driver, metadata="x" * 4096) == ErrorCode.NONE
    assert commit(driver, metadata="x" * 4097, offset=9) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(driver, metadata=None, offset=8) == ErrorCode.NONE
    assert committed(driver) == 8


def test_failed_append_changes_nothing_and_returns_an_error(driver: GroupDriver) -> None:
    commit(driver, offset=1)
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit(driver, offset=2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(driver) == 1


def offset_delete(driver: GroupDriver, topic: str = "t") -> tuple[int, list[int]]:
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    answer = driver.ask(
        OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)])
    )
    return answer.error_code, [row.error_code for topic in answer.topics for row in topic.partitions]


def test_offsets_of_unsubscribed_topics_can_be_deleted(driver: GroupDriver) -> None:
    assert offset_delete(driver) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    commit(driver, topic="read")
    commit(driver, topic="old")
    settle(driver, [Joiner(driver, protocols=(("range", subscription("read")),))])
    assert offset_delete(driver, "read") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    assert offset_delete(driver, "old") == (0, [0])
    assert (committed(driver, topic="read"), committed(driver, topic="old")) == (7, -1)


def test_live_group_of_another_protocol_type_retains_its_offsets(driver: GroupDriver) -> None:
    commit(driver)
    settle(driver, [Joiner(driver, protocol_type="connect")])
    assert offset_delete(driver) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_offsets_of_deleted_topic_are_deleted(driver: GroupDriver) -> None:
    for group in ("g", "h"):
        commit(driver, group=group, topic="gone")
        commit(driver, group=group, topic="stays")
    driver.ask(TopicsDeleted(frozenset({"gone"})))
    assert [committed(driver, group, topic) for group in ("g", "h") for topic in ("gone", "stays")] == [-1, 7, -1, 7]


def test_empty_group_is_deleted_with_its_offsets(driver: GroupDriver) -> None:
    commit(driver)
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.NONE
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert committed(driver) == -1
    assert not driver.replayed().groups


def test_group_with_members_is_not_deleted(driver: GroupDriver) -> None:
    stable_group(driver, 1)
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.NON_EMPTY_GROUP


def test_unknown_group_is_dead_and_since_version_6_an_error(driver: GroupDriver) -> None:
    old, new = driver.ask(DescribeGroup("x"), 5), driver.ask(DescribeGroup("x"), 6)
    assert (old.group_state, old.error_code) == ("Dead", 0)
    assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)


def test_describe_shows_members_and_their_assignments(driver: GroupDriver) -> None:
    member = Joiner(driver, client_id="app", protocols=(("range", b"metadata"),))
    settle(driver, [member])
    group = driver.ask(DescribeGroup("g"))
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (row,) = group.members
    assert (row.member_id, row.client_id, row.client_host) == (member.member_id, "app", "/127.0.0.1")
    assert (row.member_metadata, row.member_assignment) == (b"metadata", b"0")


def test_list_filters_by_state_and_type_without_case(driver: GroupDriver) -> None:
    commit(driver, group="simple")
    stable_group(driver, 1)

    def listed(states: set[str], types: set[str]) -> set[str]:
        return {row.group_id for row in driver.ask(ListGroups(frozenset(states), frozenset(types)))}

    assert listed(set(), set()) == {"simple", "g"}
    assert listed({"stable"}, set()) == {"g"}
    assert listed({"Empty", "Dead"}, {"Classic"}) == {"simple"}
    assert listed(set(), {"consumer"}) == set()


# -- expiry ------------------------------------------------------------------------------------------------------------


def test_offsets_of_an_empty_group_expire_after_the_retention_time(driver: GroupDriver) -> None:
    (member,) = stable_group(driver, 1, session_timeout_ms=1_800_000)
    commit(driver, member=member.member_id, generation=1)
    for _ in range(30 * 24 * 2):
        driver.advance(1_799_000)
        member.heartbeat()
    assert committed(driver) == 7
    member.leave()
    driver.advance(7 * DAY_MS - 600_000)
    assert committed(driver) == 7
    driver.advance(1_200_000)
    assert committed(driver) == -1
    assert not driver.shard.groups
    assert not driver.replayed().groups


def test_offsets_of_a_consumer_that_assigns_itself_expire_after_its_last_commit(driver: GroupDriver) -> None:
    commit(driver, offset=1)
    driver.advance(6 * DAY_MS)
    commit(driver, offset=2)
    driver.advance(6 * DAY_MS)
    assert committed(driver) == 2
    driver.advance(DAY_MS + 600_000)
    assert committed(driver) == -1


def test_offsets_do_not_expire_after_a_jump_of_the_wall_clock(driver: GroupDriver) -> None:
    commit(driver)
    driver.wall_ahead_ms = 30 * DAY_MS
    driver.advance(600_000)
    driver.wall_ahead_ms = 0  # the clock is corrected
    driver.advance(3 * 600_000)
    assert committed(driver) == 7
    driver.wall_ahead_ms = 30 * DAY_MS
    driver.advance(2 * 600_000)
    assert committed(driver) == -1, "one that stays is believed"


def test_unsubscribed_topic_of_a_live_group_expires_separately() -> None:
    driver = GroupDriver(GroupConfig(offsets_retention_ms=DAY_MS, max_session_timeout_ms=1_800_000))
    commit(driver, topic="read")
    commit(driver, topic="old")
    member = Joiner(driver, protocols=(("range", subscription("read")),), session_timeout_ms=1_800_000)
    settle(driver, [member])
    for _ in range(60):
        driver.advance(1_799_000)
        assert member.heartbeat() == ErrorCode.NONE
    assert (committed(driver, topic="read"), committed(driver, topic="old")) == (7, -1)


def test_retention_time_of_an_old_client_is_used(driver: GroupDriver) -> None:
    commit(driver, 4, retention_ms=3_600_000)
    driver.restart()
    driver.advance(3_600_000 - 600_000)
    assert committed(driver) == 7
    driver.advance(1_200_000)
    assert committed(driver) == -1


# -- logs of stock Kafka -----------------------------------------------------------------------------------------------


def raw_commit(offset: int, version: int) -> tuple[bytes, bytes]:
    value = OffsetCommitValue(offset=offset, commit_timestamp=WALL_START_MS, expire_timestamp=-1)
    return encode_key(OffsetCommitKey(group="g", topic="t", partition=0)), encode_value(value, version)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_all_versions_of_offset_records_are_read(driver: GroupDriver, version: int) -> None:
    driver.log.append(raw_commit(5, version))
    driver.restart()
    assert committed(driver) == 5


def test_records_of_unknown_types_are_retained_without_effect(driver: GroupDriver) -> None:
    driver.log += [(b"\0\x63\x7f\xffcut", b"x"), (b"\0\x63\0\1\xff", b"x"), (b"\0\x63\0", b"x"), raw_commit(5, 3)]
    driver.restart()
    assert driver.shard.skipped_records == 3
    assert committed(driver) == 5


def test_offsets_of_a_transaction_take_effect_when_it_commits(driver: GroupDriver) -> None:
    shard = driver.shard
    for producer, offset in ((1, 5), (2, 6)):
        shard.replay(*raw_commit(offset, 3), offset, producer_id=producer)
    assert committed(driver) == -1
    assert committed(driver, stable=True) == -100 - ErrorCode.UNSTABLE_OFFSET_COMMIT
    shard.end_transaction(2, commit=False)
    shard.end_transaction(1, commit=True)
    assert committed(driver, stable=True) == 5


def test_later_commit_wins_over_a_transaction_that_ends_after_it(driver: GroupDriver) -> None:
    driver.shard.replay(*raw_commit(5, 3), 10, producer_id=1)
    driver.shard.replay(*raw_commit(9, 3), 11)
    driver.shard.end_transaction(1, commit=True)
    assert committed(driver) == 9
