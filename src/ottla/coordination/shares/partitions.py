"""The share partitions that this node leads, loaded at their first fetch. KIP-932.

`find` returns a share partition, or a completion while it is being loaded. A share partition is dropped when its topic
partition is closed or has another leader epoch, when the share coordinator fences it, and when its group has no members
any more; the next fetch loads it again from the share coordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.coordination.shares.partition import SharedPartition, Surroundings, error_of
from ottla.coordination.shares.settings import ShareSettings, reset_timestamp_ms
from ottla.coordinators.share.events import ReadState, ShareKey
from ottla.coordinators.share.partition import SharePartition, StoredState

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.common.ids import Uuid
    from ottla.common.timers import CallLater
    from ottla.coordination.peers.share_states import ShareStates
    from ottla.partitions.partition import Partition
    from ottla.partitions.partitions import Partitions

logger = logging.getLogger(__name__)

# Segments whose timestamps are looked up in one slice.
SLICE_SEGMENTS = 4
LOAD_ATTEMPTS, LOAD_PAUSE_MS = 20, 100


class SharedPartitions:
    """The share partitions of this node by key. `run` executes sliced work, `settings` reads a group's settings."""

    def __init__(
        self,
        logs: Partitions,
        storage: ShareStates,
        settings: Callable[[str], ShareSettings],
        *,
        run: Callable[[Slices[SharedPartition]], Completion[SharedPartition]],
        clock: Clock,
        call_later: CallLater,
    ) -> None:
        self._logs = logs
        self._storage = storage
        self._settings = settings
        self._run = run
        self._clock = clock
        self._call_later = call_later
        self._around = Surroundings(storage.submit, clock, call_later, self._drop)
        self._loaded: dict[ShareKey, SharedPartition] = {}
        self._by_group: dict[str, dict[ShareKey, SharedPartition]] = {}
        self._loading: dict[ShareKey, Completion[SharedPartition]] = {}
        # Those that must not be loaded with the state that was read.
        self._outdated: set[ShareKey] = set()

    def __len__(self) -> int:
        return len(self._loaded)

    def knows_topic(self, topic_id: Uuid) -> bool:
        """Whether this node serves partitions of the topic."""
        return self._logs.topic_name(topic_id) is not None

    def existing(self, key: ShareKey) -> SharedPartition | None:
        """The share partition if it is loaded: only a fetch loads one."""
        found = self._loaded.get(key)
        if found is None:
            return None
        partition = found.partition
        if partition.closed or partition.leader_epoch != found.leader_epoch:
            found.close()
            return None
        found.share.limits = self._settings(key.group_id).limits
        return found

    def find(self, key: ShareKey) -> SharedPartition | Completion[SharedPartition]:
        """Return the share partition; load it if necessary.

        Raises, or fails with, UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_NOT_AVAILABLE (retriable),
        or UNKNOWN_SERVER_ERROR, which the log explains.
        """
        found = self.existing(key)
        if found is not None:
            return found
        loading = self._loading.get(key)
        if loading is None:
            partition = self._logs.get_by_id(key.topic_id, key.partition)
            loading = self._loading[key] = self._run(self._load(key, partition))
            loading.on_done(partial(self._finished_loading, key))
        return loading

    def _finished_loading(self, key: ShareKey, _done: Completion[SharedPartition]) -> None:
        self._loading.pop(key, None)
        self._outdated.discard(key)

    def drop(self, key: ShareKey) -> None:
        """Forget a share partition whose state is about to be replaced or deleted."""
        found = self._loaded.get(key)
        if found is not None:
            found.close()
        if key in self._loading:
            self._outdated.add(key)

    def of_group(self, group_id: str) -> list[SharedPartition]:
        """The share partitions of a group that are loaded."""
        return list(self._by_group.get(group_id, {}).values())

    def drop_group(self, group_id: str) -> None:
        """Forget the share partitions of a group that has no members any more."""
        for found in self.of_group(group_id):
            found.close()

    def close(self) -> None:
        """Forget all share partitions."""
        for found in tuple(self._loaded.values()):
            found.close()

    def _drop(self, shared: SharedPartition) -> None:
        if self._loaded.get(shared.key) is shared:
            del self._loaded[shared.key]
            group = self._by_group[shared.key.group_id]
            del group[shared.key]
            if not group:
                del self._by_group[shared.key.group_id]

    def _load(self, key: ShareKey, partition: Partition) -> Slices[SharedPartition]:
        leader_epoch = partition.leader_epoch
        for _ in range(LOAD_ATTEMPTS):
            result = yield from result_of(self._storage.submit(ReadState(key, leader_epoch)))
            error = error_of(result)
            if error is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                break
            # The coordinator is loading, too. Members do not expect its errors in a response to a fetch.
            pause: Completion[bool] = Completion()
            self._call_later(LOAD_PAUSE_MS / 1000, partial(_complete, pause))
            yield from result_of(pause)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, result.message)
        settings = self._settings(key.group_id)
        start_offset = result.start_offset
        if start_offset == -1:
            start_offset = yield from self._reset_offset(partition, settings.offset_reset)
        partition.check_open()
        if partition.leader_epoch != leader_epoch or key in self._outdated:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            share = SharePartition(StoredState(result.state_epoch, start_offset, result.batches), settings.limits)
        except ValueError as problem:
            logger.error(  # noqa: TRY400 - the message suffices; a traceback adds nothing
                "Failed to initialize the share partition: %s:%s: %s", key.group_id, partition.topic_partition, problem
            )
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from problem
        loaded = self._loaded[key] = SharedPartition(key, partition, share, self._around)
        self._by_group.setdefault(key.group_id, {})[key] = loaded
        return loaded

    def _reset_offset(self, partition: Partition, offset_reset: str) -> Slices[int]:
        """Where a group without a start offset begins. As in Kafka, it is stored with the first acknowledgement."""
        if offset_reset == "earliest":
            return partition.log.log_start_offset
        timestamp_ms = reset_timestamp_ms(offset_reset, self._clock.wall_ms())
        if timestamp_ms is None:
            return partition.high_watermark
        while not partition.log.learn_timestamps(SLICE_SEGMENTS):
            yield
        found = partition.log.offset_for_timestamp(timestamp_ms, partition.high_watermark)
        return partition.high_watermark if found is None else min(found[1], partition.high_watermark)


def _complete(pause: Completion[bool]) -> None:
    pause.complete(True)
