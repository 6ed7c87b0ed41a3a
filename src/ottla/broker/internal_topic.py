"""A coordinator's topic, for example `__consumer_offsets`: its partitions, and its creation for the first request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import group_partition

if TYPE_CHECKING:
    from ottla.broker.partition import Partition

logger = logging.getLogger(__name__)

CREATION_TIMEOUT_MS = 10_000
# A client may send a key of 32 KB. Caching thousands of such keys would waste memory.
LONGEST_CACHED = 256
_cached_partition_of = lru_cache(maxsize=16_384)(group_partition)


def partition_of(key: str, count: int) -> int:
    """The partition that holds a coordinator's key: a group id, a transactional id or a share partition."""
    return (_cached_partition_of if len(key) <= LONGEST_CACHED else group_partition)(key, count)


class TimerHandle(Protocol):
    """What `loop.call_later` returns."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]


class InternalTopic:
    """The topic of one coordinator.

    `find_partition(index)` returns a partition that is served here, or raises KafkaError. `partition_count()` is the
    number of partitions, 0 while the topic does not exist; it includes partitions that cannot be served now, because
    it determines which partition holds a key. `create()` completes once the partitions can be found.
    """

    def __init__(
        self,
        name: str,
        *,
        find_partition: Callable[[int], Partition],
        partition_count: Callable[[], int],
        create: Callable[[], Completion[None]],
        call_later: CallLater,
    ) -> None:
        self.name = name
        self.find_partition = find_partition
        self.partition_count = partition_count
        self._create = create
        self._call_later = call_later
        self._creating: Completion[None] | None = None

    def ensure(self) -> Completion[None]:
        """Create the topic if it does not exist; fails with COORDINATOR_NOT_AVAILABLE (retriable)."""
        if self.partition_count():
            return Completion.of(None)
        if self._creating is not None:
            return self._creating
        creating = self._creating = Completion()

        def give_up() -> None:
            message = f"{self.name} could not be created within {CREATION_TIMEOUT_MS} ms"
            creating.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))

        deadline = self._call_later(CREATION_TIMEOUT_MS / 1000, give_up)

        def created(done: Completion[None]) -> None:
            try:
                done.result()
            except KafkaError as error:
                # A client may have created the topic at the same time.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    logger.warning("Auto topic creation failed for %s: %s", self.name, error)
                    creating.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
                    return
            creating.complete(None)

        def finished(_done: Completion[None]) -> None:
            deadline.cancel()
            self._creating = None

        creating.on_done(finished)
        self._create().on_done(created)
        return creating
