"""Where the replicas of new partitions are placed, by the rules of Kafka's StripedReplicaPlacer."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

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
