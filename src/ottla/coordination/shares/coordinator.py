"""The share coordinator of this node: the shards of `__share_group_state`. KIP-932."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.ids import Uuid
from ottla.common.slices import Slices, result_of
from ottla.common.timers import CallLater
from ottla.coordination.internal_topic import InternalTopic
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.coordination.shards import Coordinator, CoordinatorOptions
from ottla.coordinators.share.events import (
    DeleteState,
    InitializeState,
    PruneLog,
    ReadState,
    ReadSummary,
    Result,
    ShareKey,
    TopicsDeleted,
    WriteState,
)
from ottla.coordinators.share.shard import ShareCoordinatorConfig, ShareCoordinatorShard, error_response

if TYPE_CHECKING:
    from ottla.coordinators.events import Effects, Moment, ParkedEffect

logger = logging.getLogger(__name__)

# Requests without an outcome, of one caller. Their writes are flushed together.
MOST_AT_ONCE = 64

Request: TypeAlias = InitializeState | ReadState | ReadSummary | WriteState | DeleteState

R = TypeVar("R", bound=Request)


class ShareCoordinator:
    """The share coordinator. `has_partition(topic id, index)` says whether the metadata has a partition."""

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        topic: InternalTopic,
        has_partition: Callable[[Uuid, int], bool],
        *,
        clock: Clock,
        call_later: CallLater,
        options: CoordinatorOptions,
    ) -> None:
        self._has_partition = has_partition
        coordinator = Coordinator(
            name="ShareCoordinator",
            logger=logging.getLogger("ottla.coordinators.share"),
            new_shard=lambda _index, _epoch: ShareCoordinatorShard(config),
            loaded=_loaded,
            error_response=error_response,
            execute=self._execute,
        )
        self.shards = CoordinatorRuntime(coordinator, topic, clock=clock, call_later=call_later, options=options)

    def submit(self, request: Request) -> Completion[Result]:
        """Pass `request` to the shard of its share partition; completes with the response and never fails."""
        key = request.key
        known = replace(request, topic_exists=self._has_partition(key.topic_id, key.partition))
        return self.shards.submit(key.coordinator_key, known)

    def topics_deleted(self, topic_ids: Iterable[Uuid]) -> Slices[None]:
        """Delete the share state of deleted topics. A shard that is loading refuses, and its state remains."""
        event = TopicsDeleted(frozenset(topic_ids))
        for index in self.shards.topic.led():
            yield
            yield from result_of(self.shards.ask(index, event))

    def _execute(self, index: int, _shard: ShareCoordinatorShard, effect: ParkedEffect) -> None:
        assert isinstance(effect, PruneLog), effect
        topic = self.shards.topic
        try:
            topic.find_partition(index).delete_records_before(effect.offset)
        except KafkaError as error:
            # The next prune deletes these records too.
            logger.warning("Failed to prune %s-%d below offset %d: %s", topic.name, index, effect.offset, error)


def _loaded(_index: int, shard: ShareCoordinatorShard, now: Moment) -> Effects:
    return shard.loaded(now)


def submit_all(requests: Iterable[R], submit: Callable[[R], Completion[Result]]) -> Slices[dict[ShareKey, Result]]:
    """Submit all requests, a limited number at a time; returns the result of each. The last one of a key counts."""
    results: dict[ShareKey, Result] = {}
    waiting: deque[tuple[ShareKey, Completion[Result]]] = deque()
    for request in requests:
        waiting.append((request.key, submit(request)))
        yield
        if len(waiting) >= MOST_AT_ONCE:
            key, done = waiting.popleft()
            results[key] = yield from result_of(done)
    for key, done in waiting:
        results[key] = yield from result_of(done)
    return results
