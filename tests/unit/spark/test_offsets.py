"""Positions, ranges and limits of micro-batches, without Spark."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.ids import TopicPartition
from ottla.spark.offsets import (
    FEW_TASKS,
    PACKED_OFFSETS,
    OffsetRange,
    Positions,
    PositionsError,
    admit,
    json_of,
    lag,
    new_partitions,
    pack,
    pending,
    plan,
    positions,
    reconcile,
    split,
)


def tp(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


def at(**places: int) -> Positions:
    """at(a0=3) is partition 0 of topic a at offset 3."""
    return {TopicPartition(name[:-1], int(name[-1])): offset for name, offset in places.items()}


partition = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-e"]), st.integers(0, 11))
ends = st.dictionaries(partition, st.integers(0, 10**6), max_size=12)


def range_of(partition: TopicPartition, start: int, size: int) -> OffsetRange:
    return OffsetRange(*partition, start, start + size)


ranges = st.lists(
    st.builds(range_of, partition, st.integers(0, 99), st.integers(0, 5000)),
    max_size=8,
    unique_by=lambda r: r.topic_partition,
)


# -- JSON --------------------------------------------------------------------------------------------------------


def test_positions_use_the_json_of_sparks_kafka_source() -> None:
    assert json_of(at(b0=7, a1=2, a0=1)) == {"a": {"0": 1, "1": 2}, "b": {"0": 7}}


@given(ends)
def test_positions_round_trip_as_json(where: Positions) -> None:
    assert positions(json.loads(json.dumps(json_of(where)))) == where


@given(ends, st.randoms())
def test_equal_positions_have_equal_json(where: Positions, chance: object) -> None:
    items = list(where.items())
    chance.shuffle(items)  # type: ignore[attr-defined]
    assert json.dumps(json_of(dict(items))) == json.dumps(json_of(where))


@pytest.mark.parametrize(
    "odd", [None, [], "x", {"t": 3}, {"t": {"x": 3}}, {"t": {"0": "3"}}, {"t": {"0": True}}, {"t": {"-1": 3}}]
)
def test_invalid_positions_are_rejected(odd: object) -> None:
    with pytest.raises(PositionsError, match="expected"):
        positions(odd)


# -- data loss --------------------------------------------------------------------------------------------------


def test_nothing_is_lost_when_partitions_only_grow() -> None:
    assert reconcile(at(t0=3), at(t0=9, t1=4), {}) == reconcile({}, at(t0=9, t1=4), {})


def test_deleted_partition_is_a_loss_and_omitted() -> None:
    found = reconcile(at(t0=3, u0=5), at(t0=3), {})
    assert found.latest == at(t0=3)
    assert found.losses == ("u-0 no longer exists: deleted, or no longer subscribed to",)


def test_recreated_topic_is_read_from_its_start_even_beyond_the_old_position() -> None:
    found = reconcile(at(t0=100), at(t0=150), at(t0=0))
    assert found.latest == at(t0=0), "the batch goes back, the next one reads"
    assert "created again" in found.losses[0]


def test_recreated_topic_that_was_never_read_is_not_a_loss() -> None:
    assert reconcile(at(t0=0), at(t0=5), at(t0=0)) == reconcile({}, at(t0=5), {})


def test_truncated_partition_is_a_loss_and_the_query_returns_to_its_end() -> None:
    found = reconcile(at(t0=100), at(t0=60), {})
    assert (found.latest, len(found.losses)) == (at(t0=60), 1)
    assert plan(at(t0=100), at(t0=60), {}).ranges == ()
    assert plan(at(t0=60), at(t0=70), {}).ranges == (OffsetRange("t", 0, 60, 70),)


# -- limits ------------------------------------------------------------------------------------------------------


@given(ends, ends, st.integers(1, 10**6))
def test_batch_is_limited_and_always_makes_progress(old: Positions, grown: Positions, most: int) -> None:
    start = {p: old.get(p, 0) for p in grown}
    latest = {p: start[p] + more for p, more in grown.items()}
    end = admit(start, latest, most)
    assert all(start[p] <= end[p] <= latest[p] for p in latest)
    nonempty = sum(1 for p in latest if latest[p] > start[p])
    assert pending(start, end) <= most + nonempty
    assert (end == start) == (latest == start), "no batch is empty while there is something to read"
    assert all(end[p] > start[p] for p in latest if latest[p] > start[p]), "no partition starves"


def test_share_of_a_partition_is_proportional_to_its_pending_offsets() -> None:
    assert admit(at(a0=0, a1=0), at(a0=900, a1=100), 100) == at(a0=90, a1=10)
    assert admit(at(a0=5, a1=5), at(a0=10, a1=10), 100) == at(a0=10, a1=10)
    assert admit(at(a0=0, a1=0), at(a0=10**6, a1=1), 10) == at(a0=9, a1=1)


# -- tasks -------------------------------------------------------------------------------------------------------


def test_new_partitions_are_read_from_their_first_offset() -> None:
    assert new_partitions(at(t0=1), at(t0=1, t1=5)) == [tp("t-1")]
    assert plan(at(t0=1), at(t0=1, t1=5), at(t1=0)).ranges == (OffsetRange("t", 1, 0, 5),)
    assert "starts at offset 2" in plan(at(t0=1), at(t0=1, t1=5), at(t1=2)).losses[0]
    assert "was deleted before" in plan(at(t0=1), at(t0=1, t1=5), {}).losses[0]


def test_rerun_first_batch_loses_nothing_although_the_end_of_the_log_moved() -> None:
    """Batch 0 was planned up to 10 without a stored start. Now the partition ends at 30, and a new one exists."""
    planned = plan(at(t0=30, t1=4), at(t0=10), {}, from_initial=True)
    assert planned.ranges == ()
    assert planned.losses == ()
    assert len(plan(at(t0=30, t1=4), at(t0=10), {}).losses) == 2, "with a stored start both are losses"


@given(ranges, st.none() | st.integers(1, 30), st.none() | st.integers(1, 3000))
def test_split_ranges_cover_the_whole_range(whole: list[OffsetRange], least: int | None, most: int | None) -> None:
    pieces = split(whole, least, most)
    assert all(piece.size > 0 for piece in pieces)
    for one in whole:
        mine = [piece for piece in pieces if piece.topic_partition == one.topic_partition]
        edge = one.start
        for piece in mine:
            assert piece.start == edge, "in order, without gaps"
            edge = piece.end
        assert edge == (one.end if one.size else one.start)
    if most is not None:
        assert all(piece.size <= most for piece in pieces)


def test_each_partition_is_one_task_by_default() -> None:
    assert split([OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 5)]) == [OffsetRange("t", 0, 0, 10)]


def test_only_large_partitions_are_split_over_tasks() -> None:
    pieces = split([OffsetRange("t", 0, 0, 1000), OffsetRange("t", 1, 0, 3)], min_partitions=5)
    assert pieces == [OffsetRange("t", 0, i * 250, i * 250 + 250) for i in range(4)] + [OffsetRange("t", 1, 0, 3)]
    assert [p.size for p in split([OffsetRange("t", 0, 10, 110)], max_records=40)] == [33, 33, 34]


def test_no_task_is_empty_if_there_are_fewer_offsets_than_tasks() -> None:
    assert [p.size for p in split([OffsetRange("t", 0, 7, 10)], min_partitions=8)] == [1, 1, 1]


@given(
    st.lists(st.builds(OffsetRange, st.just("t"), st.integers(0, 99), st.just(5), st.integers(0, 3_000)), max_size=150)
)
def test_packed_tasks_have_every_range_in_order_and_a_limited_size(whole: list[OffsetRange]) -> None:
    tasks = pack(whole)
    wanted = [r for r in whole if r.size > 0]
    assert [r for task in tasks for r in task] == wanted
    assert len(tasks) >= min(len(wanted), FEW_TASKS // 2)
    assert all(len(task) == 1 or sum(r.size for r in task) <= PACKED_OFFSETS for task in tasks)


def test_small_partitions_share_tasks_and_large_ones_do_not() -> None:
    def of(size: int) -> list[OffsetRange]:
        return [OffsetRange("t", i, 0, size) for i in range(1000)]

    assert len(pack(of(10))) == 33
    assert len(pack(of(400))) == 500
    assert len(pack(of(5_000))) == 1000
    assert len(pack(of(10)[:32])) == 32


def test_few_offsets_are_one_task_where_the_caller_permits_it() -> None:
    ranges = [OffsetRange("t", i, 0, 10) for i in range(40)]
    assert pack(ranges, few=400) == [tuple(ranges)]
    assert len(pack(ranges[:4], few=39)) == 4
    assert pack([], few=10) == []


def test_lag_is_computed_from_a_progress_report() -> None:
    assert lag({"t": {"0": 7}}, {"t": {"0": 10, "1": 2}}) == at(t0=3, t1=2)
    assert lag({"t": {"0": 7}}, {"t": {"0": 5}}) == at(t0=0)
