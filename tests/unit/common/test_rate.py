"""Rates over samples and token buckets, as Kafka computes them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.rate import UNLIMITED, SampledRate, TokenBucket
from tests.conftest import DRAWN_EXAMPLES

SAMPLES, SAMPLE_MS = 11, 1000


def test_burst_is_followed_by_a_pause() -> None:
    rate = SampledRate(SAMPLES, SAMPLE_MS)
    assert rate.wait_ms(100, 0) == 0
    rate.record(100, 0)
    assert rate.wait_ms(100, 0) == 0
    rate.record(150, 200)
    # 250 bytes are what 2.5 seconds admit, and at least one has passed.
    assert rate.wait_ms(100, 200) == 1500
    assert rate.wait_ms(100, 2000) == 500
    assert rate.wait_ms(100, 2500) == 0
    assert rate.wait_ms(UNLIMITED, 200) == 0
    assert rate.wait_ms(float("nan"), 200) == rate.wait_ms(float("inf"), 200) == 0


def test_average_over_the_samples_is_the_limit() -> None:
    for least in (0, SAMPLES - 1):
        rate, now_ms, total = SampledRate(SAMPLES, SAMPLE_MS, least_samples=least), 0, 0
        while now_ms < 60_000:
            wait_ms = rate.wait_ms(10_000, now_ms)
            if not wait_ms:
                rate.record(3000, now_ms)
                total += 3000
            now_ms += max(wait_ms, 1)
        # The first burst is what the whole samples admit that are assumed before it.
        assert 0.9 < (total - least * 10_000) / 600_000 < 1.1


def test_old_samples_do_not_count() -> None:
    rate = SampledRate(samples=2, sample_ms=1000)
    rate.record(1_000_000, 0)
    assert rate.wait_ms(1, 1999) > 0
    assert not rate.is_idle(1999)
    assert rate.wait_ms(1, 2000) == 0
    assert rate.is_idle(2000)


@dataclass
class Sample:
    began_ms: int
    last_ms: int
    total: float


class KafkaRate:
    """Kafka's algorithm: a ring of samples, of which old ones begin again when the rate is measured."""

    def __init__(self) -> None:
        self.ring: list[Sample] = []
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.ring:
            self.ring.append(Sample(now_ms, now_ms, 0))
        if now_ms - self.ring[self.current].began_ms >= SAMPLE_MS:
            self.current = (self.current + 1) % (SAMPLES + 1)
            self.ring[self.current : self.current + 1] = [Sample(now_ms, now_ms, 0)]
        self.ring[self.current].total += value
        self.ring[self.current].last_ms = now_ms

    def wait_ms(self, limit: float, now_ms: int) -> float:
        for sample in self.ring:
            if now_ms - sample.last_ms >= SAMPLES * SAMPLE_MS:
                sample.began_ms, sample.last_ms, sample.total = now_ms, now_ms, 0
        passed_ms = now_ms - min(sample.began_ms for sample in self.ring)
        passed_ms += max(SAMPLES - 1 - passed_ms // SAMPLE_MS, 0) * SAMPLE_MS
        return max(sum(sample.total for sample in self.ring) / limit * 1000 - max(passed_ms, 1), 0)


EVENTS = st.lists(
    st.tuples(st.integers(0, 4_000) | st.integers(0, 30_000), st.integers(1, 5_000)), min_size=1, max_size=60
)


@settings(max_examples=2 * DRAWN_EXAMPLES, deadline=None)
@given(EVENTS)
def test_pause_equals_kafkas_within_a_sample(events: list[tuple[int, int]]) -> None:
    """Samples that Kafka cleared may seem older than the first of the counted ones, by a part of a sample."""
    rate, kafka, now_ms = SampledRate(SAMPLES, SAMPLE_MS, least_samples=SAMPLES - 1), KafkaRate(), 0
    for pause_ms, value in events:
        now_ms += pause_ms
        rate.record(value, now_ms)
        kafka.record(value, now_ms)
        assert abs(rate.wait_ms(1_000, now_ms) - kafka.wait_ms(1_000, now_ms)) <= SAMPLE_MS


@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
@given(EVENTS)
def test_what_is_taken_back_does_not_count(events: list[tuple[int, int]]) -> None:
    rate, other, now_ms = SampledRate(), SampledRate(), 0
    for pause_ms, value in events:
        now_ms += pause_ms
        for each in (rate, other):
            each.record(value, now_ms)
        rate.record(7, now_ms)
        rate.record(-7, now_ms)
        assert rate.wait_ms(1_000, now_ms) == other.wait_ms(1_000, now_ms)


def test_bucket_admits_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(burst_s=10)
    assert bucket.wait_ms(5, 1_000_000) == 0
    bucket.take(50, 5, 1_000_000)
    assert bucket.wait_ms(5, 1_000_000) == 0
    bucket.take(10, 5, 1_000_000)
    assert bucket.wait_ms(5, 1_000_000) == 2000
    assert bucket.wait_ms(5, 1_001_500) == 500
    assert bucket.wait_ms(5, 1_002_000) == 0
    assert not bucket.is_idle(5, 1_011_000)
    assert bucket.is_idle(5, 1_012_000)


def test_rate_per_second_is_of_the_last_samples() -> None:
    rate = SampledRate(samples=10, sample_ms=1000)
    assert rate.per_second(0) == 0
    for now_ms in range(0, 20_000, 500):
        rate.record(50, now_ms)
    # The last ten seconds, which end 500 ms after the last record.
    assert 90 <= rate.per_second(20_000) <= 110
    assert rate.per_second(40_000) == 0
