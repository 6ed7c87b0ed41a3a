"""Our producer and consumer under faults that a seed chooses: no record is lost, duplicated or reordered.

The seed is in brackets. It replays the faults, but not every interleaving, since threads and timers are real.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time

import pytest

from ottla.clients import ClientError, Consumer, Producer
from ottla.testing import Ottla

RETRIABLE = (
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "NOT_ENOUGH_REPLICAS",
    "KAFKA_STORAGE_ERROR",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "LEADER_NOT_AVAILABLE",
)
GROUP_APIS = (
    "Fetch",
    "OffsetCommit",
    "OffsetFetch",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "FindCoordinator",
    "Metadata",
)
GROUP_ERRORS = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")


def inject(ottla: Ottla, chance: random.Random, apis: tuple[str, ...], errors: tuple[str, ...]) -> None:
    """One fault of some kind, that may come too late to hit anything."""
    faults, api, times = ottla.faults, chance.choice(apis), chance.randint(1, 3)
    match chance.randrange(6):
        case 0:
            faults.fail(
                api, "LEADER_NOT_AVAILABLE" if api == "Metadata" else chance.choice(errors), times=times, may_miss=True
            )
        case 1:
            faults.swallow(api, times=times, may_miss=True)
        case 2:
            faults.swallow(api, times=1, close=False, may_miss=True)
        case 3:
            faults.disconnect(api, times=times, may_miss=True)
        case 4:
            faults.delay(api, chance.random() * 0.1, times=times, may_miss=True)
        case _:
            faults.drop_connections(may_miss=True)


@pytest.mark.parametrize("seed", range(8))
def test_an_idempotent_producer_writes_all_once_and_in_order(ottla: Ottla, seed: int) -> None:
    chance = random.Random(seed)
    partitions = chance.choice([1, 3])
    topic = ottla.topic(partitions=partitions)
    with Producer(
        bootstrap_servers=ottla.bootstrap,
        retry_backoff_ms=10,
        retry_backoff_max_ms=50,
        request_timeout_ms=500,
        linger_ms=chance.choice([0, 5]),
        batch_size=chance.choice([100, 1000]),
        delivery_timeout_ms=20_000,
    ) as producer:
        deliveries = []
        for number in range(200):
            if chance.random() < 0.03:
                inject(ottla, chance, ("Produce", "Produce", "Produce", "Metadata", "InitProducerId"), RETRIABLE)
            if chance.random() < 0.003:
                ottla.kill()
                ottla.start()
            deliveries.append(producer.send(topic, b"%d" % number, partition=number % partitions))
            if chance.random() < 0.05:
                time.sleep(0.003)
        for delivery in deliveries:
            delivery.result(25)
    for partition in range(partitions):
        expected = [b"%d" % number for number in range(200) if number % partitions == partition]
        assert [record.value for record in ottla.records(topic, partition)] == expected


@pytest.mark.parametrize("seed", range(6))
def test_a_group_reads_all_whatever_happens_to_its_coordinator(ottla: Ottla, seed: int) -> None:
    chance = random.Random(seed)
    topic = ottla.topic(partitions=3)
    seen: set[bytes | None] = set()
    stop = threading.Event()
    errors: list[ClientError] = []

    def member(strategy: str) -> None:
        with Consumer(
            bootstrap_servers=ottla.bootstrap,
            group_id=f"g{seed}",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=50,
            retry_backoff_ms=10,
            request_timeout_ms=1000,
            auto_commit_interval_ms=50,
            partition_assignment_strategy=strategy,
        ) as consumer:
            consumer.subscribe([topic])
            while not stop.is_set():
                try:
                    seen.update(record.value for record in consumer.poll(0.05))
                except ClientError as error:
                    errors.append(error)
                    return

    strategy = chance.choice(["range", "cooperative-sticky"])
    members = [threading.Thread(target=member, args=(strategy,)) for _ in range(2)]
    for thread in members:
        thread.start()
    try:
        for number in range(100):
            ottla.produce(topic, b"%d" % number, partition=number % 3)
            time.sleep(0.003)
            if chance.random() < 0.06:
                inject(ottla, chance, GROUP_APIS, GROUP_ERRORS)
            if chance.random() < 0.02:
                with contextlib.suppress(ValueError):  # it may have no members at this moment
                    ottla.faults.rebalance(f"g{seed}")
        ottla.wait_until(lambda: len(seen) == 100 or errors, 20, what="all 100 to be read")
        ottla.wait_for_lag(f"g{seed}", 0, 20, topic=topic)
    finally:
        stop.set()
        for thread in members:
            thread.join(20)
    assert not errors
    assert not any(thread.is_alive() for thread in members)
