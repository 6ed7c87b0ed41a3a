"""Requests of clients with quotas: throttled fetches of sessions, exempt requests, and what is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.security.client_quotas import Quota

from .harness import BrokerHarness, batch, open_harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    with open_harness(tmp_path) as harness:
        harness.create("t", 1)
        yield harness


def limit(harness: BrokerHarness, **quotas: float) -> None:
    """Limit all users."""
    operations = [OpData(name, value) for name, value in quotas.items()]
    entry = RequestEntryData([RequestEntityData("user", None)], operations)
    assert harness.ask(AlterClientQuotasRequest([entry])).entries[0].error_code == 0


def use(harness: BrokerHarness, quota: Quota, value: float) -> None:
    """Count usage of the harness's client."""
    harness.broker.security.quotas.clients.count(quota, "ANONYMOUS", "", value, harness.loop.monotonic_ms())


def fetched(harness: BrokerHarness, offset: int | None = None, **fields: Any) -> Any:
    partitions = [] if offset is None else [FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic="t", partitions=partitions)] if partitions else []
    return harness.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics, **fields), 12)


def test_offsets_that_a_throttled_client_did_not_get_are_reported_later(harness: BrokerHarness) -> None:
    opened = fetched(harness, 0, session_epoch=0)
    assert opened.responses[0].partitions[0].high_watermark == 0
    harness.produce(("t", {0: batch(b"a")}))
    limit(harness, consumer_byte_rate=1_000)
    use(harness, Quota.FETCH, 11_000)
    # The client knows the record and continues behind it; the response that is not sent has the high watermark.
    throttled = fetched(harness, 1, session_id=opened.session_id, session_epoch=1)
    assert (throttled.session_id, throttled.responses) == (opened.session_id, [])
    assert throttled.throttle_time_ms > 0
    harness.loop.advance(60_000)
    later = fetched(harness, session_id=opened.session_id, session_epoch=2)
    assert later.throttle_time_ms == 0
    assert [part.high_watermark for topic in later.responses for part in topic.partitions] == [1]


def test_new_session_of_a_throttled_client_is_not_opened(harness: BrokerHarness) -> None:
    limit(harness, consumer_byte_rate=1_000)
    use(harness, Quota.FETCH, 11_000)
    throttled = fetched(harness, 0, session_epoch=0)
    assert (throttled.session_id, throttled.responses) == (0, [])
    assert throttled.throttle_time_ms > 0
    assert len(harness.broker.fetch_sessions) == 0


def test_followers_are_exempt(harness: BrokerHarness) -> None:
    limit(harness, consumer_byte_rate=1_000, request_percentage=1)
    use(harness, Quota.FETCH, 11_000)
    use(harness, Quota.REQUEST, 1_000)
    assert fetched(harness, 0, session_epoch=-1).throttle_time_ms > 0
    assert fetched(harness, 0, session_epoch=-1, replica_id=2).throttle_time_ms == 0


def test_batch_that_is_larger_than_the_quota_of_a_window_is_returned_with_its_pause(harness: BrokerHarness) -> None:
    limit(harness, consumer_byte_rate=100)
    harness.produce(("t", {0: batch(bytes(5_000))}))
    response = fetched(harness, 0, session_epoch=-1)
    assert len(response.responses[0].partitions[0].records) > 5_000
    assert response.throttle_time_ms > 30_000
    # Until then it gets nothing more.
    assert fetched(harness, 0, session_epoch=-1).responses == []


def test_cached_and_shared_responses_of_other_clients_do_not_have_the_pause(harness: BrokerHarness) -> None:
    for request, version in ((MetadataRequest(topics=None), 12), (ApiVersionsRequest("a", "1"), 3)):
        assert harness.ask(request, version).throttle_time_ms == 0
    limit(harness, request_percentage=1)
    use(harness, Quota.REQUEST, 1_000)
    for request, version in ((MetadataRequest(topics=None), 12), (ApiVersionsRequest("a", "1"), 3)):
        assert 0 < harness.ask(request, version).throttle_time_ms <= 1_000
    # Far later, the rate is low again.
    harness.loop.advance(600_000)
    for request, version in ((MetadataRequest(topics=None), 12), (ApiVersionsRequest("a", "1"), 3)):
        assert harness.ask(request, version).throttle_time_ms == 0


def test_time_of_work_in_slices_is_counted(harness: BrokerHarness) -> None:
    """Requests whose handler is a generator count all its slices, and only them."""
    ticks = iter(range(0, 10**9, 1_000_000))
    quotas = harness.broker.security.quotas
    quotas.now_ns = lambda: next(ticks)
    limit(harness, request_percentage=1)
    counted: list[float] = []
    count = quotas.clients.count

    def note(quota: Quota, user: str, client_id: str, value: float, now_ms: int, *, keep: bool = True) -> int:
        counted.append(value)
        return count(quota, user, client_id, value, now_ms, keep=keep)

    quotas.clients.count = note  # type: ignore[method-assign]
    entries = [RequestEntryData([RequestEntityData("user", f"u{number}")], []) for number in range(5)]
    harness.ask(AlterClientQuotasRequest(entries))
    # Each reading of the clock is a millisecond later: the call and at least one slice.
    assert counted[0] > 0.15
