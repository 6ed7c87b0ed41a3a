"""The rate of traffic over samples, as Kafka computes it, and the replicas that a topic's settings throttle."""

from __future__ import annotations

import pytest

from ottla.replication.rate import UNLIMITED, ByteRate, throttles


def test_burst_is_followed_by_a_pause() -> None:
    rate = ByteRate(samples=11, sample_ms=1000)
    assert rate.wait_ms(100, 0) == 0
    rate.record(100, 0)
    assert rate.wait_ms(100, 0) == 0
    rate.record(150, 200)
    # 250 bytes are what 2.5 seconds admit; the answer is at most one sample.
    assert rate.wait_ms(100, 200) == 1000
    assert rate.wait_ms(100, 2000) == 500
    assert rate.wait_ms(100, 2500) == 0
    assert rate.wait_ms(UNLIMITED, 200) == 0


def test_average_over_the_samples_is_the_limit() -> None:
    rate, now_ms, total = ByteRate(samples=11, sample_ms=1000), 0, 0
    while now_ms < 60_000:
        wait_ms = rate.wait_ms(10_000, now_ms)
        if not wait_ms:
            rate.record(3000, now_ms)
            total += 3000
        now_ms += max(wait_ms, 1)
    assert 0.9 < total / 600_000 < 1.1


def test_old_samples_do_not_count() -> None:
    rate = ByteRate(samples=2, sample_ms=1000)
    rate.record(1_000_000, 0)
    assert rate.wait_ms(0, 1999) == 1000
    assert rate.wait_ms(0, 2000) == 0


@pytest.mark.parametrize(
    ("setting", "partitions"),
    [("*", None), ("", frozenset()), ("0:1,1:2,2:1", frozenset({0, 2})), (" 3:1 , 4:2 ", frozenset({3}))],
)
def test_throttled_partitions_of_a_node(setting: str, partitions: frozenset[int] | None) -> None:
    assert throttles(setting, 1) == partitions
