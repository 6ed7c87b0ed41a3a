"""Members of a share group, and the model of the records that they acknowledged.

The latest leader of a partition must not acquire a record for a member after its acceptance was acknowledged, and must
count each delivery after a release that was acknowledged. At the end, members tried to accept each committed record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ottla.clients import AsyncAdmin, AsyncShareConsumer
from ottla.clients.admin import ConfigResource
from ottla.clients.share.acknowledgements import AcknowledgeType
from ottla.common.ids import TopicPartition
from ottla.coordination.shares.partition import SharedPartition
from ottla.coordinators.share.acquisition import AcquiredRange
from ottla.coordinators.share.partition import SharePartition
from tests.simulation.world.cluster_checks import ClusterChecks
from tests.simulation.world.programs import IN, Program, Work

GROUP = "sharers"
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "3000",
    "group.share.max.delivery.count.limit": "25",
    "group.share.delivery.count.limit": "10",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
}
Place = tuple[int, int]


class Shared:
    """The acknowledgements of one group, by partition and offset."""

    def __init__(self, checks: ClusterChecks) -> None:
        self._checks = checks
        self._fail = checks.cluster.fail
        self.attempted: set[Place] = set()
        """Records that a member tried to accept."""
        self.accepted: set[Place] = set()
        self.released: dict[Place, int] = {}
        """The highest delivery count of a release that was acknowledged."""
        self.loads = self.redeliveries = 0
        # By identity: the leader's partition, and the partition of the group itself, which must stay alive.
        self._known: dict[int, tuple[SharedPartition, SharePartition]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Check each acquisition of each leader."""
        create, acquire = SharedPartition.__init__, SharePartition.acquire

        def created(shared: SharedPartition, key: Any, partition: Any, share: SharePartition, around: Any) -> None:
            create(shared, key, partition, share, around)
            self._known[id(share)] = shared, share
            self.loads += 1

        def acquired(share: SharePartition, *arguments: Any) -> list[AcquiredRange]:
            found = acquire(share, *arguments)
            self._acquired(self._known[id(share)][0], found)
            return found

        with (
            mock.patch.object(SharedPartition, "__init__", created),
            mock.patch.object(SharePartition, "acquire", acquired),
        ):
            yield

    def _acquired(self, shared: SharedPartition, found: list[AcquiredRange]) -> None:
        index = shared.key.partition
        image = self._checks.image_of(TopicPartition(IN, index))
        if self._checks.losses or image is None or shared.leader_epoch < image.leader_epoch:
            return  # An earlier leader may deliver, but its acknowledgements are fenced.
        for each in found:
            for offset in range(each.first, each.last + 1):
                text = f"{IN}-{index} delivers {offset} with count {each.delivery_count} in epoch {shared.leader_epoch}"
                assert (index, offset) not in self.accepted, self._fail(f"{text} after its acceptance")
                before = self.released.get((index, offset), 0)
                self.redeliveries += before > 0
                assert each.delivery_count > before, self._fail(f"{text}, after a release with count {before}")

    def acknowledged(self, place: Place, kind: AcknowledgeType, count: int) -> None:
        """A member was notified that its acknowledgement is stored."""
        if kind is AcknowledgeType.ACCEPT:
            self.accepted.add(place)
        else:
            self.released[place] = max(count, self.released.get(place, 0))

    def missing(self) -> list[Place]:
        """The committed records that no member tried to accept."""
        partitions = self._checks.partitions
        return [
            (name.partition, offset)
            for name, known in partitions.items()
            if name.topic == IN
            for offset in range(len(known.records))
            if (name.partition, offset) not in self.attempted
        ]


class Sharer(Program):
    """A member of the share group: accepts or releases what it gets."""

    name = "sharer"

    def __init__(self, work: Work, index: int, shared: Shared) -> None:
        super().__init__(work, index)
        self._shared = shared
        self.accepts_all = False

    async def main(self) -> None:
        work = self.work
        consumer: AsyncShareConsumer[Any, Any] = AsyncShareConsumer(
            group_id=GROUP, share_acknowledgement_mode="explicit", default_api_timeout_ms=5_000, **work.connection
        )
        async with consumer:
            consumer.subscribe([IN])
            while not work.stopping:
                await self._share(consumer, await consumer.poll(0.5, max_records=work.random.choice((1, 5, 20))))

    async def _share(self, consumer: Any, records: list[Any]) -> None:
        kinds: dict[TopicPartition, list[tuple[Place, AcknowledgeType, int]]] = {}
        for record in records:
            place = record.partition, record.offset
            releases = not self.accepts_all and self.work.random.random() < 0.3
            kind = AcknowledgeType.RELEASE if releases else AcknowledgeType.ACCEPT
            count = consumer.delivery_count(record)
            consumer.acknowledge(record, kind)
            if kind is AcknowledgeType.ACCEPT:
                self._shared.attempted.add(place)
            kinds.setdefault(TopicPartition(IN, record.partition), []).append((place, kind, count))
        if not records:
            return
        results = await consumer.commit_sync(5.0)
        for partition, acknowledged in kinds.items():
            error = results.get(partition, _NO_RESULT)
            if error is None:
                for each in acknowledged:
                    self._shared.acknowledged(*each)
            elif error is not _NO_RESULT:
                self.work.note(error)  # type: ignore[arg-type]


_NO_RESULT = object()


class ShareSetup(Program):
    """Lets the group start with the first record."""

    name = "share-setup"
    done = False

    async def main(self) -> None:
        async with AsyncAdmin(**self.work.connection) as admin:
            await admin.alter_config(
                ConfigResource.group(GROUP), {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": 25}
            )
        self.done = self.stopping = True
