"""The assignors `uniform` and `range`: complete, balanced, sticky, deterministic."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors import ASSIGNORS, GroupSpec, MemberSpec, TargetPartitions
from tests.conftest import DRAWN_EXAMPLES

Topics = dict[Uuid, int]
# Members by their topics.
Members = dict[str, frozenset[Uuid]]


def topic(number: int) -> Uuid:
    return number.to_bytes(16, "big")


def spec_of(members: Members, topics: Topics, before: TargetPartitions | None = None) -> GroupSpec:
    rows = {name: MemberSpec(ids, (before or {}).get(name, {})) for name, ids in members.items()}
    subscribed = frozenset[Uuid]().union(*members.values())
    counts = {topic_id: count for topic_id, count in topics.items() if topic_id in subscribed}
    return GroupSpec(rows, counts, len(set(members.values())) <= 1)


def owners(target: TargetPartitions) -> dict[tuple[Uuid, int], str]:
    """The owner of each partition; fails if a partition has two."""
    found: dict[tuple[Uuid, int], str] = {}
    for member_id, assigned in target.items():
        for topic_id, partitions in assigned.items():
            assert partitions, "a topic without partitions"
            for partition in partitions:
                assert found.setdefault((topic_id, partition), member_id) == member_id
    return found


def sizes(target: TargetPartitions, members: Members) -> dict[str, int]:
    return {name: sum(map(len, target.get(name, {}).values())) for name in members}


def check_complete(target: TargetPartitions, members: Members, topics: Topics) -> None:
    """Each partition of a subscribed topic has one owner, and each owner subscribes to the topic."""
    subscribed = frozenset[Uuid]().union(*members.values())
    expected = {(topic_id, n) for topic_id in subscribed for n in range(topics[topic_id])}
    found = owners(target)
    assert found.keys() == expected
    assert all(topic_id in members[name] for (topic_id, _), name in found.items())


def check_topics_balanced(target: TargetPartitions, members: Members) -> None:
    """No single move of a partition between two subscribers of its topic would improve the balance."""
    load = sizes(target, members)
    for (topic_id, _), name in owners(target).items():
        lightest = min(load[other] for other, ids in members.items() if topic_id in ids)
        assert load[name] - lightest <= 1, f"{name} has {load[name]}, a subscriber of the same topic has {lightest}"


topic_sizes = st.dictionaries(st.integers(1, 5).map(topic), st.integers(1, 12), min_size=1, max_size=4)
names = st.sampled_from([f"m{n}" for n in range(8)])


@st.composite
def same_topics(draw: st.DrawFn) -> tuple[Topics, list[Members]]:
    """Topics, and members that all subscribe to them, in several steps."""
    topics = draw(topic_sizes)
    steps = draw(st.lists(st.sets(names, min_size=1), min_size=2, max_size=4))
    return topics, [dict.fromkeys(sorted(step), frozenset(topics)) for step in steps]


@st.composite
def mixed_topics(draw: st.DrawFn) -> tuple[Topics, list[Members]]:
    """Topics, and members that subscribe to some of them, in several steps."""
    topics = draw(topic_sizes)
    some = st.frozensets(st.sampled_from(sorted(topics)))
    return topics, draw(st.lists(st.dictionaries(names, some, min_size=1), min_size=2, max_size=4))


@given(same_topics())
def test_uniform_differs_by_one_partition_and_moves_as_few_as_possible(world: tuple[Topics, list[Members]]) -> None:
    topics, steps = world
    total = sum(topics.values())
    before: TargetPartitions = {}
    for members in steps:
        target = ASSIGNORS["uniform"](spec_of(members, topics, before))
        check_complete(target, members, topics)
        load = sizes(target, members)
        assert max(load.values()) - min(load.values()) <= 1
        # A partition moves only if its owner left or has more than its quota. Some members may have one more.
        moved_away = sum(
            len(before[name].get(topic_id, frozenset()) - target[name].get(topic_id, frozenset()))
            for name in members.keys() & before.keys()
            for topic_id in topics
        )
        quota, extra = divmod(total, len(members))
        excess = [size - quota for size in sizes(before, members).values() if size > quota]
        assert moved_away == sum(excess) - min(extra, len(excess))
        before = target


@settings(max_examples=2 * DRAWN_EXAMPLES)
@given(mixed_topics())
def test_uniform_balances_different_subscriptions(world: tuple[Topics, list[Members]]) -> None:
    topics, steps = world
    before: TargetPartitions = {}
    for members in steps:
        target = ASSIGNORS["uniform"](spec_of(members, topics, before))
        check_complete(target, members, topics)
        check_topics_balanced(target, members)
        before = target


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("first", ["", "a", "d", "e"])
def test_uniform_gives_the_partition_of_a_member_that_left_to_the_first_member(first: str, mixed: bool) -> None:
    ids, other = frozenset({topic(1)}), frozenset({topic(2)})
    before = {name: {topic(1): frozenset({n})} for n, name in enumerate("abcdef")}
    members = {name: MemberSpec(ids, before[name]) for name in "abcde"}
    counts = {topic(1): 6}
    if mixed:
        members["z"], counts[topic(2)] = MemberSpec(other, {}), 1
    target = ASSIGNORS["uniform"](GroupSpec(members, counts, not mixed, first))
    assert owners(target)[topic(1), 5] == (first or "a")


@given(mixed_topics())
def test_range_gives_each_subscriber_a_range_of_each_topic(world: tuple[Topics, list[Members]]) -> None:
    topics, steps = world
    for members in steps:
        target = ASSIGNORS["range"](spec_of(members, topics))
        check_complete(target, members, topics)
        for topic_id in frozenset[Uuid]().union(*members.values()):
            parts = [sorted(target[m].get(topic_id, ())) for m, ids in sorted(members.items()) if topic_id in ids]
            assert all(part == list(range(part[0], part[0] + len(part))) for part in parts if part)
            lengths = [len(part) for part in parts]
            assert lengths == sorted(lengths, reverse=True)
            assert lengths[0] - lengths[-1] <= 1


@pytest.mark.parametrize("name", ASSIGNORS)
@given(world=mixed_topics())
def test_same_input_gives_the_same_assignment(name: str, world: tuple[Topics, list[Members]]) -> None:
    topics, steps = world
    members = steps[0]
    shuffled = dict(sorted(members.items(), reverse=True))
    assert ASSIGNORS[name](spec_of(members, topics)) == ASSIGNORS[name](spec_of(shuffled, topics))


@pytest.mark.parametrize("name", ASSIGNORS)
def test_no_members_and_no_topics_give_nothing(name: str) -> None:
    assert owners(ASSIGNORS[name](GroupSpec({}, {}, True))) == {}
    assert owners(ASSIGNORS[name](spec_of({"a": frozenset()}, {}))) == {}


def test_range_orders_static_members_by_instance_id_first() -> None:
    ids = frozenset({topic(1)})
    members: Mapping[str, MemberSpec] = {
        "a": MemberSpec(ids, {}),
        "x": MemberSpec(ids, {}, "i2"),
        "y": MemberSpec(ids, {}, "i1"),
    }
    target = ASSIGNORS["range"](GroupSpec(members, {topic(1): 3}, True))
    assert owners(target) == {(topic(1), 0): "y", (topic(1), 1): "x", (topic(1), 2): "a"}
