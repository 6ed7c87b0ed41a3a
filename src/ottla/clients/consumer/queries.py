"""Queries about topics and offsets that have nothing to do with polling, with retries until a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ottla.clients.cluster import Backoff, PartitionInfo
from ottla.clients.consumer.effect_runner import EffectRunner
from ottla.clients.consumer.fetch_core import FetchCore
from ottla.clients.errors import ClientError, RequestTimedOut, UnknownTopicOrPartition, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition

R = TypeVar("R")


async def retry(attempt: Callable[[], Awaitable[R]], backoff: Backoff, limit_s: float) -> R:
    """Repeat `attempt` after retriable errors until it succeeds or `limit_s` seconds have passed."""
    deadline = time.monotonic() + limit_s
    failures = 0
    last: ClientError | None = None
    try:
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    return await attempt()
            except TimeoutError as error:
                no_result = f"No result within {limit_s:g} s"
                raise last or RequestTimedOut(no_result) from error.with_traceback(None)
            except ClientError as error:
                failures += 1
                delay_s = backoff.delay_ms(failures, 0.5) / 1000
                if not error.retriable or time.monotonic() + delay_s >= deadline:
                    raise
                last = error
            await asyncio.sleep(delay_s)
    finally:
        # The traceback of an error refers to this frame: a cycle for the garbage collector.
        del last


class Queries:
    """Queries to brokers; on the event loop. A timeout of None is default.api.timeout.ms."""

    def __init__(self, runner: EffectRunner[Any], fetch: FetchCore, api_timeout_s: float) -> None:
        self._runner = runner
        self._cluster = runner.cluster
        self._fetch = fetch
        self._api_timeout_s = api_timeout_s

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return (offset, timestamp in ms) of the first record not older than each timestamp; None without such.

        Timestamp -1 is the end of the partition, -2 the beginning. Each attempt sends one request to each leader for
        the partitions that have no result yet.
        """
        found: dict[TopicPartition, tuple[int, int] | None] = {}
        left = {TopicPartition(*tp): timestamp for tp, timestamp in wanted.items()}

        async def attempt() -> None:
            for node, rows in (await self._by_leader(left)).items():
                response = await self._runner.send(node, self._fetch.list_offsets_request(rows))
                for topic in response.topics:
                    for row in topic.partitions:
                        tp = TopicPartition(topic.name, row.partition_index)
                        if row.error_code:
                            await self._cluster.refresh({tp.topic})
                            raise error_for(row.error_code, f"{tp}: {ErrorCode(row.error_code).text}")
                        found[tp] = (row.offset, row.timestamp) if row.offset >= 0 else None
                        left.pop(tp, None)

        if left:
            await self._retry(attempt, timeout_s)
        return found

    async def _by_leader(self, wanted: Mapping[TopicPartition, int]) -> dict[int, dict[TopicPartition, int]]:
        view = self._cluster.view
        if any(view.leader(*tp) is None for tp in wanted):
            await self._cluster.refresh({tp.topic for tp in wanted})
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, timestamp in wanted.items():
            leader = view.leader(*tp)
            if leader is None:
                raise UnknownTopicOrPartition(f"{tp} does not exist or has no leader")
            by_leader.setdefault(leader, {})[tp] = timestamp
        return by_leader

    async def partitions_of(self, topic: str, timeout_s: float | None = None) -> list[int]:
        async def attempt() -> list[int]:
            await self._cluster.refresh({topic})
            partitions = self._cluster.view.partitions(topic)
            if partitions is None:
                code = self._cluster.view.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                error = error_for(code, f"Topic {topic!r}: {ErrorCode(code).text}")
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    error.retriable = False  # the caller wants to know whether the topic exists now
                raise error
            return partitions

        return await self._retry(attempt, timeout_s)

    async def partition_infos(self, topic: str, timeout_s: float | None = None) -> list[PartitionInfo]:
        await self.partitions_of(topic, timeout_s)
        return self._cluster.view.partition_infos(topic)

    async def topics(self, timeout_s: float | None = None) -> dict[str, list[int]]:
        async def attempt() -> dict[str, list[int]]:
            await self._cluster.refresh(None)
            rows = self._cluster.view.topics.values()
            return {row.name: list(row.partitions) for row in rows if not row.is_internal}

        return await self._retry(attempt, timeout_s)

    async def _retry(self, attempt: Callable[[], Awaitable[R]], timeout_s: float | None) -> R:
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        return await retry(attempt, self._fetch.settings.backoff, limit_s)
