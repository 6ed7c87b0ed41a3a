"""The work on partitions that waits for later event loop iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.partitions.partition_set import PartitionSet

if TYPE_CHECKING:
    from ottla.common.ids import TopicPartition


class PendingWork:
    """The partitions and topics with work of each kind; `later` calls a function in the next event loop iteration."""

    __slots__ = ("_is_scheduled", "later", "postponed", "unchanged", "unconfigured", "undeleted", "unopened")

    def __init__(self, later: Callable[[Callable[[], None]], object] | None) -> None:
        self.later = later
        self._is_scheduled = False
        self.unchanged = PartitionSet()
        """Partitions that have not taken the role of the newest image yet."""
        self.unopened = PartitionSet()
        """Partitions of the image that are not open yet."""
        self.postponed = PartitionSet()
        """Partitions that could not be opened for lack of descriptors: a request opens them, no iteration does."""
        self.undeleted: dict[TopicPartition, None] = {}
        """Partitions of deleted topics whose logs are not set aside yet."""
        self.unconfigured: dict[str, None] = {}
        """Topics whose changed settings are not applied to their partitions yet."""

    def schedule(self, do_slice: Callable[[], None]) -> None:
        """Call `do_slice` in the next event loop iteration if work is left, until none is."""
        is_left = self.unchanged or self.unopened or self.undeleted or self.unconfigured

        def run() -> None:
            self._is_scheduled = False
            do_slice()
            self.schedule(do_slice)

        if self.later is not None and is_left and not self._is_scheduled:
            self._is_scheduled = True
            self.later(run)

    def opened(self, topic: str, index: int) -> None:
        """Note that a partition need not be opened any more."""
        self.unopened.discard(topic, index)
        self.postponed.discard(topic, index)

    def topic_deleted(self, topic: str, deleted: Iterable[TopicPartition]) -> None:
        """Forget the work on a topic, and note whose logs have to be set aside."""
        for waiting in (self.unchanged, self.unopened, self.postponed):
            waiting.discard_topic(topic)
        self.undeleted.update(dict.fromkeys(deleted))
