"""Which quota holds for a client, and what a client at its limit gets, in simulated time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.client_quotas import AddressQuotas, ClientQuotas, Quota, Windows
from tests.conftest import DRAWN_EXAMPLES

# Users and client ids of entities; None is the default entity, "" stands for no such part.
ORDER = [("u", "c"), ("u", None), ("u", ""), (None, "c"), (None, None), (None, ""), ("", "c"), ("", None)]
SHARED = [("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c")]


def entity(user: str | None, client_id: str | None) -> tuple[tuple[str, str | None], ...]:
    parts = (("client-id", client_id), ("user", user))
    return tuple((kind, name) for kind, name in parts if name != "")


def quotas(**limits: float) -> ClientQuotas:
    made = ClientQuotas(Windows(), Windows())
    made.publish({(("client-id", name),): {"producer_byte_rate": limit} for name, limit in limits.items()})
    return made


@settings(max_examples=2 * DRAWN_EXAMPLES, deadline=None)
@given(st.sets(st.integers(0, len(ORDER) - 1)))
def test_the_first_quota_in_the_order_of_kafka_holds(present: set[int]) -> None:
    made = ClientQuotas(Windows(), Windows())
    made.publish({entity(*ORDER[place]): {"producer_byte_rate": place + 1.0} for place in present})
    expected = [(SHARED[place], place + 1.0) for place in sorted(present)[:1]]
    found = made.limit(Quota.PRODUCE, "u", "c")
    assert ([] if found is None else [found]) == expected
    assert made.limit(Quota.FETCH, "u", "c") is None
    without_client_id = made.limit(Quota.PRODUCE, "u", "")
    assert without_client_id == next(((("u", ""), place + 1.0) for place in (2, 5) if place in present), None)


def test_quota_of_a_user_is_shared_by_its_clients_and_a_default_quota_is_not_shared() -> None:
    made = ClientQuotas(Windows(), Windows())
    made.publish({(("user", "u"),): {"producer_byte_rate": 10.0}, (("client-id", None),): {"producer_byte_rate": 10.0}})
    assert made.count(Quota.PRODUCE, "u", "c", 100, 0) == 0
    assert made.count(Quota.PRODUCE, "u", "d", 10, 0) == 1_000
    assert made.count(Quota.PRODUCE, "v", "c", 100, 0) == 0
    assert made.count(Quota.PRODUCE, "w", "c", 10, 0) == 1_000
    assert made.count(Quota.PRODUCE, "w", "e", 100, 0) == 0


@pytest.mark.parametrize("value", [float("nan"), 0.0, -1.0])
def test_limits_that_are_not_positive_are_ignored(value: float) -> None:
    assert quotas(c=value).limit(Quota.PRODUCE, "u", "c") is None


def test_changed_limit_holds_at_once_for_what_was_counted_before() -> None:
    made = quotas(c=1_000.0)
    assert made.count(Quota.PRODUCE, "u", "c", 5_000, 0) == 0
    made.publish({(("client-id", "c"),): {"producer_byte_rate": 400.0}})
    assert made.count(Quota.PRODUCE, "u", "c", 0, 0) == 2_500
    made.publish({})
    assert made.count(Quota.PRODUCE, "u", "c", 1e9, 0) == 0


def test_value_that_is_not_kept_does_not_count() -> None:
    made = quotas(c=10.0)
    assert made.count(Quota.PRODUCE, "u", "c", 100, 0, keep=False) == 0
    for _ in range(3):
        assert made.count(Quota.PRODUCE, "u", "c", 50, 0, keep=False) == 5_000
    assert made.count(Quota.PRODUCE, "u", "c", 50, 0) == 5_000
    assert made.count(Quota.PRODUCE, "u", "c", 50, 0) == 10_000


def arrivals(made: ClientQuotas, client_id: str, size: int, busy_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """Times and pauses of a client that sends as fast as its pauses allow; each request takes `busy_ms`."""
    now_ms = 0
    while now_ms < until_ms:
        pause_ms = made.count(Quota.PRODUCE, "u", client_id, size, now_ms)
        yield now_ms, pause_ms
        now_ms += busy_ms + pause_ms


@pytest.mark.parametrize(("size", "busy_ms"), [(2_000, 1), (16_384, 1), (16_384, 7), (300_000, 1), (300_000, 7)])
def test_client_at_its_limit_gets_it_within_5_percent(size: int, busy_ms: int) -> None:
    limit, until_ms, after_ms = 1_000_000.0, 600_000, 60_000
    made = quotas(greedy=limit, modest=limit)
    used = sum(size for now_ms, _ in arrivals(made, "greedy", size, busy_ms, until_ms) if now_ms >= after_ms)
    rate = used / (until_ms - after_ms) * 1000
    assert 0.95 * limit < rate < 1.05 * limit
    # Another client is not concerned.
    assert not any(pause_ms for _, pause_ms in arrivals(made, "modest", 900, 1, 10_000))


def test_request_time_above_the_limit_costs_pauses_of_at_most_one_sample() -> None:
    made = ClientQuotas(Windows(), Windows())
    made.publish({(("user", None),): {"request_percentage": 10.0}})
    now_ms = busy_ms = 0
    while now_ms < 300_000:
        pause_ms = made.count(Quota.REQUEST, "u", "c", 5 * 0.1, now_ms)
        assert pause_ms <= 1_000
        busy_ms += 5
        now_ms += 5 + pause_ms
    assert 0.09 < busy_ms / now_ms < 0.12


def test_strict_mutations_may_overdraw_once_and_are_refused_until_then() -> None:
    made = ClientQuotas(Windows(), Windows(samples=10))
    made.publish({(("user", "u"),): {"controller_mutation_rate": 2.0}})

    def take(count: int, now_ms: int, *, is_strict: bool = True) -> int:
        return made.take_mutations("u", "c", count, now_ms, is_strict=is_strict)

    assert take(24, 0) == 0
    assert take(1, 0) == 2_000
    assert take(1, 1_999) > 0
    assert take(1, 2_000) == 0
    assert take(4, 2_000, is_strict=False) == 2_500
    assert made.take_mutations("other", "c", 10**6, 0, is_strict=True) == 0


def test_clients_that_are_idle_are_forgotten() -> None:
    made = ClientQuotas(Windows(), Windows())
    made.publish({(("client-id", None),): {"producer_byte_rate": 1.0, "controller_mutation_rate": 1.0}})
    for number in range(20_000):
        made.count(Quota.PRODUCE, "u", f"client-{number}", 1, number)
        made.take_mutations("u", f"client-{number}", 1, number, is_strict=True)
    # The clients of the last eleven seconds are active, and a few are not examined yet.
    assert len(made) < 2 * 2 * 11_000
    for number in range(20_000):
        made.count(Quota.PRODUCE, "u", f"later-{number}", 1, 1_000_000 + number * 100)
        made.take_mutations("u", f"later-{number}", 1, 1_000_000 + number * 100, is_strict=True)
    assert len(made) < 1_000


def test_addresses_may_connect_at_their_rate() -> None:
    made = AddressQuotas(Windows())
    limit = {"connection_creation_rate": 2.0}
    made.publish({(("ip", "10.0.0.1"),): limit, (("ip", None),): {"connection_creation_rate": 5.0}})
    assert sum(not made.connect("10.0.0.1", now_ms) for now_ms in range(60_000)) == pytest.approx(120 + 20, rel=0.15)
    assert sum(not made.connect("10.0.0.2", now_ms) for now_ms in range(60_000)) == pytest.approx(300 + 50, rel=0.15)
    made.publish({(("ip", "2001:DB8::1"),): limit, (("ip", "a-host"),): limit})
    assert made.connect("10.0.0.1", 60_000) == 0
    assert sum(not made.connect("2001:db8::1", 0) for _ in range(1_000)) == 20
