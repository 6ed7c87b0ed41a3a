"""Regular expressions of consumer groups: RE2, matched in parts, refreshed when topics are created."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group.consumer.matching import MOST_NAMES_AT_ONCE
from tests.drivers.consumer_members import Member, settle
from tests.drivers.groups import GroupDriver


@pytest.fixture
def driver() -> GroupDriver:
    driver = GroupDriver()
    driver.change_topics(a1=1, a2=1, b1=1)
    return driver


def test_expression_matches_whole_names(driver: GroupDriver) -> None:
    a = Member(driver, "a", regex="a.")
    assert a.beat() is ErrorCode.NONE
    assert a.partitions == {}, "the names are matched after the response"
    settle(a)
    assert a.partitions == {"a1": [0], "a2": [0]}
    driver.restart()
    settle(a)
    assert (a.epoch, a.partitions) == (2, {"a1": [0], "a2": [0]})


def test_new_topics_are_found(driver: GroupDriver) -> None:
    a = Member(driver, "a", regex="a.*")
    a.beat()
    settle(a)
    driver.change_topics(a3=1, c=1)
    settle(a)
    assert list(a.partitions) == ["a1", "a2", "a3"]
    driver.change_topics(a1=0)
    settle(a)
    assert list(a.partitions) == ["a2", "a3"]


def test_deleted_topics_are_removed_by_the_periodic_refresh(driver: GroupDriver) -> None:
    a = Member(driver, "a", regex="a.*")
    a.beat()
    settle(a)
    driver.change_topics(a1=0)
    settle(a, rounds=122)
    assert driver.shard.consumer_groups["g"].expressions["a.*"].topics == {"a2"}


def test_members_may_use_names_and_different_expressions(driver: GroupDriver) -> None:
    a, b, c = Member(driver, "a", regex="a.*"), Member(driver, "b", regex="b.*"), Member(driver, "c", "b1", "a1")
    for member in (a, b, c):
        member.beat()
    settle(a, b, c)
    owned = sorted(name for member in (a, b, c) for name in member.partitions)
    assert owned == ["a1", "a2", "b1"]
    assert "b1" not in a.partitions
    assert b.leave() is ErrorCode.NONE
    assert set(driver.shard.consumer_groups["g"].expressions) == {"a.*"}
    settle(a, c)
    assert c.partitions["b1"] == [0]


def test_member_may_change_to_names_and_back(driver: GroupDriver) -> None:
    a = Member(driver, "a", regex="a.*")
    a.beat()
    settle(a)
    assert a.beat(full=True, subscribed_topic_regex="", subscribed_topic_names=["b1"]) is ErrorCode.NONE
    settle(a)
    assert a.partitions == {"b1": [0]}
    assert not driver.shard.consumer_groups["g"].expressions


@pytest.mark.parametrize("regex", ["(", "a{1001}", r"\\p{none}(", "(?=a)", r"(a)\1", "a" * 5_000])
def test_invalid_expressions_are_rejected(driver: GroupDriver, regex: str) -> None:
    a = Member(driver, "a", regex=regex)
    assert a.beat() is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.log == []


def test_names_are_matched_in_parts() -> None:
    driver = GroupDriver()
    driver.change_topics(**{f"t{n}": 1 for n in range(3 * MOST_NAMES_AT_ONCE)})
    a = Member(driver, "a", regex="t1?")
    a.beat()
    driver.obey(driver.shard.handle_timer(driver._now()))
    assert not driver.shard.consumer_groups["g"].expressions, "one part is not enough"
    driver.advance(10)
    assert driver.shard.consumer_groups["g"].expressions["t1?"].topics == {"t1"}
