"""The parts that consumer and share groups have in common."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Moment
from ottla.coordinators.group.assignors import ASSIGNORS, GroupSpec, MemberSpec
from ottla.coordinators.group.consumer.fencing import CONSUMER
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.modern import (
    ModernState,
    TargetAssignment,
    TopicCounts,
    Topics,
    may_assign_again,
    metadata_hash,
)
from ottla.metadata.image import PartitionImage, TopicImage


def topics_of(**counts: int) -> Topics:
    partition = PartitionImage((1,), (1,), 1, 0, 0)
    images = [
        TopicImage(name, name.encode().rjust(16, b"\0"), dict.fromkeys(range(count), partition))
        for name, count in counts.items()
    ]
    return Topics({t.name: t for t in images}, {t.topic_id: t for t in images}, 1)


def test_hash_changes_with_each_property_of_a_subscribed_topic() -> None:
    topics = topics_of(a=1, b=2)
    assert metadata_hash([], topics) == metadata_hash(["missing"], topics) == 0
    same = metadata_hash(["b", "a", "missing"], topics)
    assert same == metadata_hash(["a", "b"], topics_of(a=1, b=2, c=9)) != 0
    assert same != metadata_hash(["a", "b"], topics_of(a=1, b=3))
    assert same != metadata_hash(["a", "b"], topics_of(a=1))


def test_topics_are_counted_once_per_member_and_expression() -> None:
    counts = TopicCounts()
    counts.replace((), {"a", "b"})
    counts.replace((), {"b"})
    counts.replace_matches((), {"c"})
    assert set(counts) == {"a", "b", "c"}
    after = counts.copy()
    after.replace({"b"}, {"c"})
    after.replace_matches({"c"}, ())
    assert (set(after), set(counts)) == ({"a", "b", "c"}, {"a", "b", "c"})
    after.replace({"c"}, ())
    assert "c" not in after
    assert "c" in counts


def test_target_update_names_only_the_members_whose_part_differs() -> None:
    one = bytes(15) + b"\1"
    target = TargetAssignment()
    target.by_member = {"a": {one: frozenset({0})}}
    members = {"a": MemberSpec(frozenset({one}), target.of("a")), "b": MemberSpec(frozenset({one}), target.of("b"))}
    update = target.compute(ASSIGNORS["uniform"], GroupSpec(members, {one: 2}, True))
    assert update.changed == {"b": {one: frozenset({1})}}
    assert update.of("a") == {one: frozenset({0})}
    assert target.of("b") == {}


def test_assignments_are_batched_for_the_interval() -> None:
    assert may_assign_again(0, 1_000, 5)
    assert may_assign_again(100, 0, 100)
    assert not may_assign_again(100, 1_000, 1_099)
    assert may_assign_again(100, 1_000, 1_100)
    assert may_assign_again(5_000, 1_000, 4_999), "the clock was set back"


@pytest.mark.parametrize(
    ("received", "consistent", "valid"),
    [(0, False, True), (5, False, True), (4, True, True), (4, False, False), (3, True, False), (6, True, False)],
)
def test_member_epoch_is_the_present_one_or_the_previous_one_of_a_lost_response(
    received: int, consistent: bool, valid: bool
) -> None:
    member = ConsumerMember("m", epoch=5, previous_epoch=4)
    if valid:
        CONSUMER.check_epoch(member, received, is_consistent=consistent)
        return
    with pytest.raises(KafkaError, match="greater" if received > 5 else "smaller") as raised:
        CONSUMER.check_epoch(member, received, is_consistent=consistent)
    assert raised.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_topics_are_compared_at_first_after_a_change_and_hourly() -> None:
    state: ModernState[object] = ModernState("g")
    now = Moment(1_000, 1_000)
    assert state.must_compare_topics(now)
    state.compared_topics(now, 0)
    assert not state.must_compare_topics(now)
    state.request_comparison()
    assert state.must_compare_topics(now)
    state.compared_topics(now, 1)
    assert state.must_compare_topics(now), "the append of epoch 1 failed"
    state.epoch = 1
    assert not state.must_compare_topics(now)
    assert state.must_compare_topics(Moment(now.monotonic_ms + 3_600_000, 0))
