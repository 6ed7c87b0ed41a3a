"""A coordinator's topic, for example `__consumer_offsets`: its leaders, and its creation for the first request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import group_partition
from ottla.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from ottla.common.timers import CallLater
    from ottla.metadata.image import PartitionImage
    from ottla.partitions.partition import Partition

logger = logging.getLogger(__name__)

CREATION_TIMEOUT_MS = 10_000
# A client may send a key of 32 KB. Caching thousands of such keys would waste memory.
LONGEST_CACHED = 256
_cached_partition_of = lru_cache(maxsize=16_384)(group_partition)


def partition_of(key: str, count: int) -> int:
    """The partition that holds a coordinator's key: a group id, a transactional id or a share partition."""
    return (_cached_partition_of if len(key) <= LONGEST_CACHED else group_partition)(key, count)


class InternalTopic:
    """The topic of one coordinator, as the node `node_id` sees it.

    `partitions()` come from the metadata image, empty while the topic does not exist. They include partitions that
    cannot be served now, because their number determines which partition holds a key. `find_partition(index)` returns a
    partition that is led here, or raises KafkaError. `create()` completes when the topic is created; call `changed`
    when the image contains it.
    """

    def __init__(
        self,
        name: str,
        node_id: int,
        *,
        partitions: Callable[[], Mapping[int, PartitionImage]],
        find_partition: Callable[[int], Partition],
        create: Callable[[], Completion[None]],
        call_later: CallLater,
    ) -> None:
        self.name = name
        self.find_partition = find_partition
        self._node_id = node_id
        self._partitions = partitions
        self._create = create
        self._call_later = call_later
        self._creating: Completion[None] | None = None

    def partition_count(self) -> int:
        """The number of partitions; 0 while the topic does not exist."""
        return len(self._partitions())

    def leader(self, index: int) -> int:
        """The node that leads partition `index`, or NO_LEADER."""
        partition = self._partitions().get(index)
        return NO_LEADER if partition is None else partition.leader

    def leader_of(self, key: str) -> int:
        """The node that coordinates `key`, or NO_LEADER."""
        count = self.partition_count()
        return self.leader(partition_of(key, count)) if count else NO_LEADER

    def leader_epoch(self, index: int) -> int | None:
        """The leader epoch of partition `index` if this node leads it."""
        partition = self._partitions().get(index)
        return partition.leader_epoch if partition is not None and partition.leader == self._node_id else None

    def led(self) -> list[int]:
        """The partitions that this node leads."""
        return [index for index, partition in self._partitions().items() if partition.leader == self._node_id]

    def changed(self) -> None:
        """The image has other partitions of the topic: requests that wait for its creation go on."""
        if self._creating is not None and self.partition_count():
            self._creating.complete(None)

    def ensure(self) -> Completion[None]:
        """Create the topic if it does not exist; fails with COORDINATOR_NOT_AVAILABLE (retriable).

        Completes when this node's metadata has the topic, so that the coordinator of a key is known.
        """
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
                # A client or another broker may have created the topic at the same time.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    logger.warning("Auto topic creation failed for %s: %s", self.name, error)
                    creating.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
                    return
            # Another node's controller may have created it: this node learns it from the metadata log.
            self.changed()

        def finished(_done: Completion[None]) -> None:
            deadline.cancel()
            self._creating = None

        creating.on_done(finished)
        self._create().on_done(created)
        return creating
