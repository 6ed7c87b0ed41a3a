"""Administrators alter and delete the start offsets of share groups. KIP-932."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DeleteGroup
from ottla.coordinators.group.share.events import (
    AlteredShareOffsets,
    AlterShareOffsets,
    DeletedShareOffsets,
    DeleteShareOffsets,
    ForgetShares,
    ListedShares,
    ListShares,
    ResetShares,
)
from tests.drivers.groups import GroupDriver, Joiner, topic_id

from .test_share_groups import CONFIG, Member, initialize, joined

A, B, UNKNOWN = topic_id("a"), topic_id("b"), topic_id("unknown")
BUSY = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def driver() -> GroupDriver:
    driver = GroupDriver(CONFIG)
    driver.change_topics(a=2, b=1)
    return driver


def alter(driver: GroupDriver, **offsets: int) -> Any:
    """Alter the offsets of partitions, for example a0=5. Returns the call."""
    by_topic: dict[bytes, dict[int, int]] = {}
    for name, offset in offsets.items():
        by_topic.setdefault(topic_id(name[0]), {})[int(name[1])] = offset
    return driver.send(AlterShareOffsets("g", by_topic))


def reset(driver: GroupDriver, failed: Mapping[tuple[bytes, int], ErrorCode] | None = None) -> ResetShares:
    """Report the outcome of the only effect, and return the effect."""
    (effect,) = driver.own_effects
    driver.own_effects.clear()
    assert isinstance(effect, ResetShares)
    driver.obey(driver.shard.shares_reset(effect, failed or {}))
    return effect


def altered(driver: GroupDriver, **offsets: int) -> ResetShares:
    """Alter offsets successfully."""
    call = alter(driver, **offsets)
    assert call not in driver.answers, "the share state must be replaced first"
    effect = reset(driver)
    assert driver.answers[call] == AlteredShareOffsets()
    return effect


def delete(driver: GroupDriver, *topics: bytes) -> Any:
    return driver.send(DeleteShareOffsets("g", frozenset(topics)))


def forget(driver: GroupDriver, failed: Mapping[bytes, ErrorCode] | None = None) -> ForgetShares:
    (effect,) = driver.own_effects
    driver.own_effects.clear()
    assert isinstance(effect, ForgetShares)
    driver.obey(driver.shard.shares_forgotten(effect, failed or {}))
    return effect


def listed(driver: GroupDriver) -> Mapping[bytes, frozenset[int]]:
    return driver.ask(ListShares("g")).partitions


def test_alteration_creates_the_group_and_each_one_has_a_higher_epoch(driver: GroupDriver) -> None:
    assert listed(driver) == {}
    assert altered(driver, a0=5, b0=-1) == ResetShares("g", 1, {A: {0: 5}, B: {0: -1}})
    assert listed(driver) == {A: {0}, B: {0}}
    assert altered(driver, a0=7).state_epoch == 2
    driver.restart()
    assert listed(driver) == {A: {0}, B: {0}}
    assert altered(driver, a1=7).state_epoch == 3
    assert listed(driver) == {A: {0, 1}, B: {0}}


def test_alteration_that_failed_for_some_partitions_says_so(driver: GroupDriver) -> None:
    call = alter(driver, a0=5, a1=5)
    failed = {(A, 1): ErrorCode.FENCED_STATE_EPOCH}
    reset(driver, failed)
    assert driver.answers[call] == AlteredShareOffsets(failed=failed)
    assert listed(driver) == {A: {0}}
    assert driver.shard.share_groups["g"].shares.initializing == {}


def test_nothing_is_altered_without_its_record(driver: GroupDriver) -> None:
    driver.append_error = ErrorCode.NOT_COORDINATOR
    call = alter(driver, a0=5)
    assert driver.answers[call].error is ErrorCode.NOT_COORDINATOR
    assert driver.own_effects == []
    driver.append_error = ErrorCode.NONE
    altered(driver, a0=5)


def test_group_with_members_is_refused(driver: GroupDriver) -> None:
    a = Member(driver, "a", "a")
    joined(driver, a)
    assert driver.answers[alter(driver, a0=5)].error is ErrorCode.NON_EMPTY_GROUP
    assert driver.answers[delete(driver, A)].error is ErrorCode.NON_EMPTY_GROUP
    a.beat(member_epoch=-1)
    driver.own_effects.clear()
    epoch = driver.shard.share_groups["g"].epoch
    assert altered(driver, a0=5).state_epoch == epoch + 1
    assert a.beat(member_epoch=0, subscribed_topic_names=["a"]) is ErrorCode.NONE
    assert a.partitions == {"a": [0, 1]}
    assert driver.own_effects == []


def test_group_of_another_type_is_refused(driver: GroupDriver) -> None:
    Joiner(driver, "g").join()
    assert driver.answers[alter(driver, a0=5)].error is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.answers[delete(driver, A)].error is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.ask(ListShares("g")) == ListedShares({})


def test_changes_of_share_state_exclude_each_other(driver: GroupDriver) -> None:
    call = alter(driver, a0=5)
    assert driver.answers[alter(driver, a0=6)].error is BUSY
    assert driver.answers[delete(driver, A)].error is BUSY
    assert driver.ask(DeleteGroup("g")).error_code == BUSY
    b = Member(driver, "b", "a")
    assert b.beat() is ErrorCode.NONE
    assert len(driver.own_effects) == 1, "share state is not created meanwhile"
    reset(driver)
    assert driver.answers[call].error is ErrorCode.NONE
    b.beat()
    (effect,) = initialize(driver)
    assert effect.partitions == {A: {1}}


def test_offsets_of_topics_are_deleted(driver: GroupDriver) -> None:
    assert driver.answers[delete(driver, A)].error is ErrorCode.GROUP_ID_NOT_FOUND
    altered(driver, a0=5, b0=5)
    call = delete(driver, A, UNKNOWN)
    assert call not in driver.answers
    assert forget(driver) == ForgetShares("g", {A: frozenset({0, 1})})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.answers[call] == DeletedShareOffsets(topics={A: ErrorCode.NONE, UNKNOWN: unknown})
    assert driver.answers[delete(driver, A)].topics == {A: unknown}
    driver.restart()
    assert listed(driver) == {B: {0}}
    assert driver.ask(ListShares("g")) == ListedShares({B: frozenset({0})})


def test_deletion_of_offsets_that_failed_can_be_repeated(driver: GroupDriver) -> None:
    altered(driver, a0=5, b0=5)
    call = delete(driver, A, B)
    forget(driver, {A: ErrorCode.NOT_COORDINATOR})
    assert driver.answers[call].topics == {A: ErrorCode.NOT_COORDINATOR, B: ErrorCode.NONE}
    driver.restart()
    assert listed(driver) == {}
    call = delete(driver, A)
    forget(driver)
    assert driver.answers[call].topics == {A: ErrorCode.NONE}


def test_waiting_administrators_are_answered_when_the_shard_is_unloaded(driver: GroupDriver) -> None:
    call = alter(driver, a0=5)
    driver.unload(ErrorCode.NOT_COORDINATOR)
    assert driver.answers[call] == AlteredShareOffsets(ErrorCode.NOT_COORDINATOR)


def test_interrupted_alteration_is_repeated_with_a_higher_epoch(driver: GroupDriver) -> None:
    altered(driver, a0=5)
    alter(driver, a0=6, a1=7)
    driver.own_effects.clear()
    driver.restart()
    assert listed(driver) == {A: {0}}
    assert altered(driver, a0=6, a1=7).state_epoch == 3
    assert listed(driver) == {A: {0, 1}}
