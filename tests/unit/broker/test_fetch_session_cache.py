"""Which fetch sessions a new session evicts."""

from __future__ import annotations

from itertools import count

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.partitions.fetch_session import NO_SESSION, FetchSession, FetchSessionCache

IDLE_MS = 120_000


@pytest.fixture
def cache() -> FetchSessionCache:
    ids = count(1)
    return FetchSessionCache(10, lambda: next(ids), min_eviction_ms=IDLE_MS)


def opened(cache: FetchSessionCache, now_ms: int) -> FetchSession:
    return cache.open(now_ms, uses_topic_ids=True)


def test_new_session_evicts_idle_ones(cache: FetchSessionCache) -> None:
    first, second, third = (opened(cache, now_ms) for now_ms in (0, 1, 2))
    opened(cache, IDLE_MS + 1)
    assert (first.closed, second.closed, third.closed) == (True, True, False)
    with pytest.raises(KafkaError) as raised:
        cache.resume(first.id, 1, IDLE_MS + 2, uses_topic_ids=True)
    assert raised.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_sessions_that_are_left_become_fewer(cache: FetchSessionCache) -> None:
    for _ in range(10):
        opened(cache, 0)
    for number in range(10):
        assert opened(cache, IDLE_MS + number).id != NO_SESSION
    assert len(cache) == 10


def test_used_session_stays(cache: FetchSessionCache) -> None:
    session = opened(cache, 0)
    cache.resume(session.id, 1, IDLE_MS - 1, uses_topic_ids=True)
    opened(cache, IDLE_MS + 10)
    assert not session.closed


def test_session_with_a_waiting_fetch_stays(cache: FetchSessionCache) -> None:
    session = opened(cache, 0)
    session.on_change = lambda appended_bytes: None
    opened(cache, 2 * IDLE_MS)
    assert not session.closed


def test_full_cache_of_used_sessions_opens_none(cache: FetchSessionCache) -> None:
    for _ in range(10):
        opened(cache, 0)
    assert opened(cache, 1).id == NO_SESSION
