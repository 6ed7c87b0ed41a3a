"""TxnOffsetCommit: pending offsets, which commits are rejected, and the deletion of groups with pending offsets."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DeleteGroup, GroupConfig
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.drivers.groups import GroupDriver

from .test_offsets import DAY_MS, commit, committed
from .test_rebalance import stable_group, state

PRODUCER = 7
UNSTABLE = -100 - ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


def request(
    offset: int = 5, *, producer: int = PRODUCER, metadata: str = "", **member: object
) -> TxnOffsetCommitRequest:
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
        **member,  # type: ignore[arg-type]
    )


def send(driver: GroupDriver, *arguments: int, **options: object) -> ErrorCode:
    answer = driver.ask(request(*arguments, **options), 5)  # type: ignore[arg-type]
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(("commits", "expected"), [(True, 5), (False, 3)])
def test_offset_counts_when_its_transaction_commits(
    driver: GroupDriver, commits: bool, expected: int, is_restarted: bool
) -> None:
    commit(driver, offset=3)
    assert send(driver, 5) == ErrorCode.NONE
    if is_restarted:
        driver.restart()
    assert committed(driver) == 3
    assert committed(driver, stable=True) == UNSTABLE
    driver.end_transaction(PRODUCER, commit=commits)
    assert committed(driver, stable=True) == expected
    driver.restart()
    assert committed(driver, stable=True) == expected


def test_offset_is_unstable_until_all_its_transactions_have_ended(driver: GroupDriver) -> None:
    for producer in (1, 2):
        send(driver, producer, producer=producer)
    driver.end_transaction(1, commit=False)
    assert committed(driver, stable=True) == UNSTABLE
    driver.end_transaction(2, commit=True)
    assert committed(driver, stable=True) == 2


def test_member_and_generation_are_checked_if_they_are_given(driver: GroupDriver) -> None:
    assert send(driver, generation_id=1, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    (member,) = stable_group(driver, 1)
    known = {"member_id": member.member_id, "generation_id": member.generation}
    assert send(driver, **known) == ErrorCode.NONE
    assert send(driver, **known | {"generation_id": 7}) == ErrorCode.ILLEGAL_GENERATION
    assert send(driver, **known | {"member_id": "other"}) == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(driver, **known | {"group_instance_id": "i"}) == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(driver) == ErrorCode.NONE, "old producers do not name the member"


def test_rebalance_does_not_reject_a_commit_in_a_transaction(driver: GroupDriver) -> None:
    (member,) = stable_group(driver, 1)
    member.join()
    assert state(driver) == "CompletingRebalance"
    assert send(driver, member_id=member.member_id, generation_id=member.generation + 1) == ErrorCode.NONE


def test_long_metadata_and_a_missing_group_id_are_rejected(driver: GroupDriver) -> None:
    assert send(driver, metadata="x" * 5_000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    nameless = request()
    nameless.group_id = ""
    answer = driver.ask(nameless, 5)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID
    assert not driver.log


def test_failed_append_leaves_no_pending_offset(driver: GroupDriver) -> None:
    driver.append_error = ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(driver) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(driver, stable=True) == -1


def test_pending_offset_prevents_the_expiry_of_its_group() -> None:
    driver = GroupDriver(GroupConfig(offsets_retention_ms=DAY_MS))
    commit(driver, offset=3)
    send(driver, 5)
    driver.advance(3 * DAY_MS)
    assert committed(driver) == 3
    driver.end_transaction(PRODUCER, commit=True)
    assert committed(driver) == 5
    driver.advance(3 * DAY_MS)
    assert committed(driver) == -1
    assert state(driver) == "Dead"


def test_deleted_group_does_not_return_with_the_end_of_its_transaction(driver: GroupDriver) -> None:
    send(driver, 5)
    assert driver.ask(DeleteGroup("g")).error_code == ErrorCode.NONE
    driver.end_transaction(PRODUCER, commit=True)
    assert committed(driver, stable=True) == -1
    driver.restart()
    assert committed(driver, stable=True) == -1
    assert state(driver) == "Dead"
