"""The planner of `ottla cluster balance`: its examples, and the properties of every plan."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.common.ids import TopicPartition
from ottla.tools.admin.balance import Load, balanced, busiest, copied, loads, ranges
from ottla.tools.admin.placement import Moves, Target

MIB = 1 << 20
NODES = [1, 2, 3, 4, 5]
Lists = list[list[int]]


def replicas(*lists: list[int]) -> dict[TopicPartition, list[int]]:
    return {TopicPartition("t", index): nodes for index, nodes in enumerate(lists)}


def sized(*amounts: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", index): amount * MIB for index, amount in enumerate(amounts)}


def targets(count: int, *racks: str) -> list[Target]:
    return [Target(node_id, racks[node_id - 1] if racks else None) for node_id in range(1, count + 1)]


def test_new_broker_gets_its_part() -> None:
    before = replicas(*[[1, 2], [2, 1]] * 3)
    sizes = sized(*[100] * 6)
    moves = balanced(before, sizes, targets(3))
    after = loads(before | moves, sizes, [1, 2, 3])
    assert set(after.values()) == {Load(400 * MIB, 4, 2)}
    assert copied(moves, before, sizes) == 400 * MIB


def test_balanced_cluster_stays_as_it_is() -> None:
    assert balanced(replicas([1, 2], [2, 3], [3, 1]), sized(100, 104, 98), targets(3)) == {}


def test_small_topics_are_not_moved_for_their_bytes() -> None:
    sizes = {TopicPartition("t", 0): 900_000, TopicPartition("t", 1): 0}
    assert balanced(replicas([1], [2]), sizes, targets(2)) == {}


def test_replicas_of_different_sizes_are_swapped_where_counts_are_even() -> None:
    before, sizes = replicas([1], [1], [2], [2]), sized(500, 500, 100, 100)
    moves = balanced(before, sizes, targets(2))
    assert set(loads(before | moves, sizes, [1, 2]).values()) == {Load(600 * MIB, 2, 2)}
    assert len(moves) == 2


def test_leaders_are_evened_out_without_a_copy() -> None:
    before = replicas([1, 2], [1, 2], [1, 2], [1, 2])
    moves = balanced(before, sized(9, 9, 9, 9), targets(2))
    assert copied(moves, before, sized(9, 9, 9, 9)) == 0
    assert list(moves.values()) == [[2, 1], [2, 1]]


def test_replicas_stay_in_different_racks() -> None:
    before = replicas(*[[1, 3]] * 4)
    moves = balanced(before, sized(*[100] * 4), targets(4, "a", "a", "b", "b"))
    after = before | moves
    assert all(len({node_id <= 2 for node_id in nodes}) == 2 for nodes in after.values())
    assert {each.replicas for each in loads(after, {}, [1, 2, 3, 4]).values()} == {2}


def test_partition_with_a_replica_on_a_stopped_broker_stays() -> None:
    assert balanced(replicas([1, 9], [1, 9], [1, 9]), sized(100, 100, 100), targets(2)) == {}


def test_time_is_determined_by_the_busiest_broker() -> None:
    before = replicas([1], [1])
    moves: Moves = {TopicPartition("t", 0): [2], TopicPartition("t", 1): [3]}
    assert busiest(moves, before, sized(100, 50)) == 150 * MIB


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, int], list[Target]]:
    lists = draw(st.lists(st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True), max_size=14))
    sizes = draw(st.lists(st.integers(0, 300), min_size=len(lists), max_size=len(lists)))
    racks = draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=5, max_size=5))
    up = draw(st.sets(st.sampled_from(NODES), min_size=1))
    return replicas(*lists), sized(*sizes), [Target(node_id, racks[node_id - 1]) for node_id in sorted(up)]


@given(cluster=clusters(), most=st.none() | st.integers(0, 500 * MIB), data=st.data())
def test_properties_of_every_plan(
    cluster: tuple[dict[TopicPartition, list[int]], dict[TopicPartition, int], list[Target]],
    most: int | None,
    data: st.DataObject,
) -> None:
    before, sizes, up = cluster
    fixed = data.draw(st.sets(st.sampled_from(sorted(before)))) if before else set()
    moves = balanced(before, sizes, up, fixed=fixed, most_bytes=most)
    racks = {target.node_id: target.rack for target in up}
    assert not moves.keys() & fixed
    for partition, new in moves.items():
        old = before[partition]
        assert new != old
        assert len(new) == len(old) == len(set(new))
        assert {*new, *old} <= racks.keys()
        assert len({racks[each] for each in new}) >= len({racks[each] for each in old})
    was, becomes = loads(before, sizes, racks), loads(before | moves, sizes, racks)
    mean = sum(each.size for each in was.values()) / len(was)
    # The counts of these small clusters may differ by one.
    tolerance = (max(mean, 10 * MIB) / 10, 1, 1)
    for spread, earlier, limit in zip(ranges(becomes), ranges(was), tolerance, strict=True):
        assert spread <= max(earlier, limit)
    assert score(becomes, mean) <= score(was, mean) + 1e-6
    assert copied(moves, before, sizes) <= (sum(sizes.values()) * 3 if most is None else most)
    # A second plan after the first one has nothing to add, unless the limit of bytes ended the first.
    if most is None:
        assert balanced(before | moves, sizes, up, fixed=fixed) == {}


def score(by_broker: dict[int, Load], mean_size: float) -> float:
    """The sum of the squares of the deviations from the mean."""
    found = 0.0
    for kind, least in enumerate((10 * MIB, 1, 1)):
        column = [each[kind] for each in by_broker.values()]
        mean = sum(column) / len(column)
        found += sum((amount - mean) ** 2 for amount in column) / max(mean, least) ** 2
    return found
