"""The committed metadata of a simulated cluster, and what must hold in it, whatever fails.

- All nodes have the same image at the same offset, also one that was loaded from a snapshot.
- A leader is in the ISR; the ISR has only replicas, and only active brokers, except that without eligible leader
  replicas the last in-sync replica stays in the ISR of a partition without a leader.
- A new leader was in sync or eligible, or its leader has just brought it into the ISR; otherwise the election was
  unclean, which must be allowed, and the partition says so.
- The leader epoch and the partition epoch of a partition never decrease, and change with the leader and the partition.
- A registration of a broker has a higher epoch than all earlier ones. Producer ids are allocated once.
"""

from __future__ import annotations

from ottla.log.log import Log
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, NO_LEADER, TOPIC, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.snapshot import snapshot_records
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.raft.control import LeaderChange
from ottla.records import decode_batch, iter_batches
from tests.simulation.world.quorum_disk import Data, Entry

RECOVERING = 1


class MetadataHistory:
    """The image after each committed batch, by the offset at which the batch ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.images: dict[int, MetadataImage] = {0: EMPTY_IMAGE}
        self.end = 0
        self.unclean_requested: set[tuple[str, int]] = set()
        """Partitions for which an administrator requested an unclean election."""
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._broker_epochs: dict[int, int] = {}

    @property
    def image(self) -> MetadataImage:
        """The latest committed image."""
        return self.images[self.end]

    def fail(self, problem: str) -> str:
        return f"{problem} ({self.name})"

    def committed(self, offset: int, entries: tuple[Entry, ...], image: MetadataImage) -> None:
        """A node's image is `image` after the committed entries, which begin at `offset`."""
        batch: list[Message] = []
        for position, (epoch, value) in enumerate(entries[max(0, self.end - offset) :], max(self.end, offset)):
            if isinstance(value, Data):
                batch.append(decode(value))
                if value.left:
                    continue
            for record in batch:
                self._delta.replay(record)
            after = self._delta.apply(position, epoch)
            self._check_change(self.image, after, batch)
            self.end = position + 1
            self.images[self.end] = after
            batch = []
        end = offset + len(entries)
        assert end in self.images, self.fail(f"a node committed up to {end}, inside of a batch")
        assert self.images[end] == image, self.fail(f"the images at offset {end} differ")

    def entries(self, log: Log, end: int) -> tuple[Entry, ...]:
        """The records of a node's log from the end of this history up to `end`, as `committed` takes them."""
        found: list[Entry] = []
        start = self.end
        assert log.log_start_offset <= start, self.fail(f"a node publishes first at {end}")
        while start + len(found) < end:
            data = log.read(start + len(found), 1 << 20, end)
            for position, header in iter_batches(data):
                if header.base_offset < start + len(found):
                    continue
                records = list(decode_batch(data, position))
                epoch = header.partition_leader_epoch
                for left, record in zip(reversed(range(len(records))), records, strict=True):
                    value = LeaderChange(0, (), ()) if header.is_control else Data(record.value or b"", left)
                    found.append((epoch, value))
        return tuple(found)

    def load_snapshot(self, end_offset: int) -> MetadataImage:
        """The image of a snapshot that ends at a committed offset, decoded from the snapshot's records."""
        image = self.images[end_offset]
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in snapshot_records(image):
            delta.replay(record)
        loaded = delta.apply(image.offset, image.epoch)
        assert loaded == image, self.fail(f"the snapshot at {end_offset} is not the image")
        return loaded

    # -- changes -----------------------------------------------------------------------------------------------------

    def _check_change(self, before: MetadataImage, after: MetadataImage, batch: list[Message]) -> None:
        after.validate()
        assert after.producer_ids_next >= before.producer_ids_next, self.fail("producer ids are allocated twice")
        for record in batch:
            if isinstance(record, m.RegisterBrokerRecord):
                self._check_registration(record, before)
        for topic in after.topics_by_id.values():
            old = before.topics_by_id.get(topic.topic_id)
            for index, partition in topic.partitions.items():
                previous = None if old is None else old.partitions.get(index)
                problems = [*_problems(after, partition)]
                if previous is not None and previous != partition:
                    problems += _change_problems(previous, partition)
                    problems += self._election_problems(before, topic, index, previous, partition)
                text = f"{topic.name}-{index} at {after.offset}: {problems} {previous} -> {partition}"
                assert not problems, self.fail(text)

    def _check_registration(self, record: m.RegisterBrokerRecord, before: MetadataImage) -> None:
        known = self._broker_epochs.get(record.broker_id, -1)
        present = before.brokers.get(record.broker_id)
        same = present is not None and present.incarnation_id == record.incarnation_id
        expected = record.broker_epoch == known if same else record.broker_epoch > known
        assert expected, self.fail(f"broker {record.broker_id} gets epoch {record.broker_epoch} after {known}")
        self._broker_epochs[record.broker_id] = record.broker_epoch

    def _election_problems(
        self, image: MetadataImage, topic: TopicImage, index: int, before: PartitionImage, after: PartitionImage
    ) -> list[str]:
        leader = after.leader
        if leader in (NO_LEADER, before.leader) or leader in (*before.isr, *before.eligible_leader_replicas):
            return []
        is_moved = before.is_reassigning and not after.is_reassigning
        if is_moved and set(after.replicas) <= set(after.isr) and before.leader != NO_LEADER:
            return []  # The previous leader brought it into the ISR, which completed a reassignment.
        allowed = image.config(TOPIC, topic.name).get("unclean.leader.election.enable") == "true"
        allowed = allowed or (topic.name, index) in self.unclean_requested
        allowed = allowed or before.last_known_elr == (leader,)
        if not allowed:
            return ["an unclean election that is not allowed"]
        is_shown = is_moved or after.leader_recovery_state == RECOVERING
        if not is_shown or after.isr != (leader,):
            return ["an unclean election that the partition does not show"]
        return []


def decode(value: Data) -> Message:
    """The metadata record."""
    return m.decode_metadata_record(value.value)


def _problems(image: MetadataImage, partition: PartitionImage) -> list[str]:
    found = []
    isr, elr = partition.isr, partition.eligible_leader_replicas
    if partition.leader != NO_LEADER and partition.leader not in isr:
        found.append("the leader is not in sync")
    if set(isr) & set(elr) or not set(elr) <= set(partition.replicas):
        found.append("the eligible replicas are in sync, or no replicas")
    if len(set(isr)) != len(isr) or len(set(elr)) != len(elr):
        found.append("a replica is named twice")
    if not isr and partition.leader != NO_LEADER:
        found.append("a leader without in-sync replicas")
    inactive = [each for each in isr if each not in image.brokers or not image.brokers[each].is_active]
    if inactive and not (partition.leader == NO_LEADER and len(isr) == 1):
        found.append(f"brokers {inactive} are in sync, but not active")
    return found


def _change_problems(before: PartitionImage, after: PartitionImage) -> list[str]:
    found = []
    if after.partition_epoch <= before.partition_epoch:
        found.append("the partition epoch does not increase")
    if after.leader_epoch < before.leader_epoch:
        found.append("the leader epoch decreases")
    if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
        found.append("another leader in the same epoch")
    if not set(before.replicas) <= set(after.replicas) and after.leader_epoch == before.leader_epoch:
        found.append("a replica is removed in the same leader epoch")
    return found
