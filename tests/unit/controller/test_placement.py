"""Where the replicas of new partitions are placed, by the rules of Kafka's StripedReplicaPlacer."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import KafkaError
from ottla.controller.placement import place
from ottla.metadata.image import BrokerImage

DIRECTORIES = (b"1" * 16, b"2" * 16)


def broker(
    broker_id: int, rack: str | None = None, *, fenced: bool = False, stops: bool = False, cordoned: int = 0
) -> BrokerImage:
    """`cordoned` of the two directories take no new replicas."""
    cordoned_directories = DIRECTORIES[:cordoned] or None
    return BrokerImage(broker_id, broker_id, bytes(16), (), (), rack, fenced, stops, DIRECTORIES, cordoned_directories)


def test_each_rack_gets_a_replica_before_one_gets_two() -> None:
    brokers = [broker(i, "abc"[i % 3]) for i in range(9)]
    placed = place(brokers, 90, 3, Random(1))
    assert all({replica % 3 for replica in replicas} == {0, 1, 2} for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(9), 10)


def test_fenced_broker_of_another_rack_is_preferred_to_a_second_replica_in_the_same_rack() -> None:
    brokers = [broker(1, "a"), broker(2, "a"), broker(3, "b", fenced=True)]
    for replicas in place(brokers, 10, 2, Random(1)):
        assert replicas[0] in (1, 2)
        assert replicas[1] == 3


def test_fenced_broker_is_the_last_choice_without_racks_and_never_leads() -> None:
    brokers = [broker(1), broker(2), broker(3, fenced=True)]
    assert all(3 not in replicas for replicas in place(brokers, 10, 2, Random(1)))
    assert all(replicas[2] == 3 for replicas in place(brokers, 10, 3, Random(1)))


def test_broker_that_stops_or_takes_no_new_replicas_gets_none() -> None:
    brokers = [broker(1), broker(2, stops=True), broker(3, cordoned=2), broker(4, cordoned=1)]
    assert all(set(replicas) == {1, 4} for replicas in place(brokers, 10, 2, Random(1)))
    with pytest.raises(KafkaError, match=r"because only 2 broker\(s\) are registered or some"):
        place(brokers, 1, 3, Random(1))


def test_broker_that_has_stopped_is_a_fenced_broker() -> None:
    brokers = [broker(1), broker(2), broker(3, fenced=True, stops=True)]
    assert all(replicas[2] == 3 for replicas in place(brokers, 10, 3, Random(1)))


def test_all_brokers_fenced_or_cordoned_is_the_first_problem() -> None:
    for brokers in ([broker(1, fenced=True)], [broker(1, cordoned=2)], []):
        with pytest.raises(KafkaError, match="All brokers are currently fenced, or have all"):
            place(brokers, 1, 3, Random(1))


@st.composite
def registered_brokers(draw: st.DrawFn) -> list[BrokerImage]:
    """Brokers in up to three racks, or without racks. At least the first one can lead."""
    racks = st.sampled_from(["a", "b", "c"]) if draw(st.booleans()) else st.none()
    states = st.tuples(racks, st.booleans(), st.booleans(), st.integers(0, 2))
    others = enumerate(draw(st.lists(states, max_size=6)), 2)
    return [broker(1, draw(racks))] + [
        broker(broker_id, rack, fenced=fenced, stops=stops, cordoned=cordoned)
        for broker_id, (rack, fenced, stops, cordoned) in others
    ]


@settings(max_examples=80, deadline=None)
@given(brokers=registered_brokers(), partitions=st.integers(1, 12), factor=st.integers(1, 8), seed=st.integers(0, 9))
def test_any_placement_is_balanced_and_uses_only_brokers_that_take_replicas(
    brokers: list[BrokerImage], partitions: int, factor: int, seed: int
) -> None:
    takes = {each.broker_id: each for each in brokers if not each.is_cordoned and (each.is_active or each.fenced)}
    if factor > len(takes):
        with pytest.raises(KafkaError, match=f"only {len(takes)} broker"):
            place(brokers, partitions, factor, Random(seed))
        return
    placed = place(brokers, partitions, factor, Random(seed))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= takes.keys()
    leaders = Counter(replicas[0] for replicas in placed)
    can_lead = {broker_id for broker_id, each in takes.items() if not each.fenced}
    assert leaders.keys() <= can_lead, "a fenced broker must not lead"
    counts = [leaders[broker_id] for broker_id in can_lead]
    assert max(counts) - min(counts) <= 1


@settings(max_examples=80, deadline=None)
@given(brokers=registered_brokers(), factor=st.integers(1, 8), seed=st.integers(0, 9))
def test_rack_gets_a_second_replica_only_if_every_rack_has_one(
    brokers: list[BrokerImage], factor: int, seed: int
) -> None:
    takes = {each.broker_id: each for each in brokers if not each.is_cordoned and (each.is_active or each.fenced)}
    factor = min(factor, len(takes))
    racks = {each.rack for each in takes.values()}
    for replicas in place(brokers, 8, factor, Random(seed)):
        used = [takes[replica].rack for replica in replicas]
        assert len(set(used[: len(racks)])) == min(factor, len(racks))


@settings(max_examples=20, deadline=None)
@given(brokers=registered_brokers(), seed=st.integers(0, 9), data=st.data())
def test_order_of_the_registrations_does_not_change_a_placement(
    brokers: list[BrokerImage], seed: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(brokers))
    assert place(shuffled, 5, 1, Random(seed)) == place(brokers, 5, 1, Random(seed))


@pytest.mark.parametrize("factor", [0, -1, -(1 << 15)])
def test_replication_factor_must_be_positive(factor: int) -> None:
    with pytest.raises(KafkaError, match=f"Invalid replication factor {factor}: the replication factor must be"):
        place([broker(1)], 1, factor, Random(1))
