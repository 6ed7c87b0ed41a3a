"""The invariants of a cluster of real nodes, checked after each event of each node, whatever fails.

- *Quorum*: an epoch of the metadata quorum has one active controller. A node never returns to an earlier epoch, and
  votes for one candidate in it, also after a crash. All nodes publish the same image at an offset, and each change of
  it is legal (`MetadataHistory`).
- *Partitions*: a leader epoch has one leader. A high watermark does not decrease in its epoch. Every in-sync replica
  has each record below any high watermark, at its offset; so has each later leader, and each replica that starts again
  or returns to the ISR (`Committed`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.ids import TopicPartition
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.partitions.partition import Partition
from ottla.raft.values import Election, ReplicaKey
from tests.simulation.world.committed import Committed, contents
from tests.simulation.world.metadata_history import MetadataHistory

if TYPE_CHECKING:
    from ottla.broker.server import Node
    from tests.simulation.world.cluster import NodeRun, SimulatedCluster
    from tests.simulation.world.retained import Retained


class Led(NamedTuple):
    """A partition in one leader epoch."""

    partition: TopicPartition
    epoch: int


class ClusterChecks:
    """Everything that was committed in one cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.history = MetadataHistory(f"seed {cluster.seed}")
        self.partitions: dict[TopicPartition, Committed] = {}
        self.loses_page_cache = True
        """Whether a power cut loses records of the replicas of a machine, since they are not synced."""
        self.retained: Retained | None = None
        """Checks the topics that are compacted or subject to retention."""
        self._controllers: dict[int, int] = {}
        self._elections: dict[ReplicaKey, Election] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._leaders: dict[Led, int] = {}
        self._images: dict[NodeRun, MetadataImage] = {}
        self._watermarks: dict[NodeRun, dict[Partition, int]] = {}
        cluster.on_kill.append(self._killed)

    @property
    def losses(self) -> int:
        """How often a partition lost all of its in-sync replicas."""
        return sum(each.losses for each in self.partitions.values())

    def losses_of(self, topic: str) -> int:
        """How often partitions of a topic did."""
        return sum(known.losses for name, known in self.partitions.items() if name.topic == topic)

    def values(self, topic: str, index: int) -> list[bytes | None]:
        """The committed values of a partition."""
        known = self.partitions.get(TopicPartition(topic, index))
        return [value for _, value in known.records] if known is not None else []

    def after_event(self, run: NodeRun) -> None:
        """Check what one event of a node changed."""
        node = run.node
        metadata = node._metadata.shell if node is not None else None
        if node is None or metadata is None:
            return
        if metadata.quorum.failure is None:  # otherwise it may not be on disk, and nothing is sent
            self._elected(node.config.node_id, metadata.raft.election)
        if metadata.is_active_controller:
            leader = self._controllers.setdefault(metadata.raft.epoch, node.config.node_id)
            assert leader == node.config.node_id, self.cluster.fail(
                f"{leader} and {node.config.node_id} lead epoch {metadata.raft.epoch} of the quorum"
            )
        image = metadata.image
        if image is not self._images.get(run):
            self._images[run] = image
            self._published(node, image)
        if not node._started:
            return
        if run not in self._watermarks:
            self._watermarks[run] = {}
            self._started(node)
        seen = self._watermarks[run]
        for partition in node.broker.partitions:
            if seen.get(partition) != partition.high_watermark:
                seen[partition] = partition.high_watermark
                self._advanced(node, partition)

    def _elected(self, node_id: int, election: Election) -> None:
        # A replaced disk is another replica of the quorum.
        replica = ReplicaKey(node_id, self.cluster.directories[node_id])
        before = self._elections.get(replica)
        if election is before:
            return
        self._elections[replica] = election
        assert before is None or election.epoch >= before.epoch, self.cluster.fail(
            f"node {node_id} returns from epoch {before.epoch if before else 0} to {election.epoch}"
        )
        if election.has_voted:
            voted = self._votes.setdefault((replica, election.epoch), election.voted)
            assert voted.node_id == election.voted.node_id, self.cluster.fail(
                f"node {node_id} votes for {voted.node_id} and {election.voted.node_id} in epoch {election.epoch}"
            )

    # -- metadata ----------------------------------------------------------------------------------------------------

    def _published(self, node: Node, image: MetadataImage) -> None:
        history = self.history
        end = image.offset + 1
        if end <= history.end:
            known = history.images.get(end) if end else None  # the first image depends on the node's snapshot
            problem = f"node {node.config.node_id} has another image at {end}"
            assert known is None or known == image, history.fail(problem)
            return
        before = history.image
        assert node._metadata.shell is not None
        history.committed(history.end, history.entries(node._metadata.shell.log, end), image)
        for topic_id, topic in image.topics_by_id.items():
            known_topic = before.topics_by_id.get(topic_id)
            for index, partition in topic.partitions.items():
                previous = known_topic.partitions.get(index) if known_topic is not None else None
                if partition is not previous:
                    self._changed(TopicPartition(topic.name, index), partition, previous, image)

    def _changed(
        self, name: TopicPartition, partition: PartitionImage, before: PartitionImage | None, image: MetadataImage
    ) -> None:
        known = self.partitions.setdefault(name, Committed(str(name)))
        epochs = {broker_id: broker.epoch for broker_id, broker in image.brokers.items()}
        known.follow(partition, before, epochs)
        if partition.leader >= 0:
            leader = self._leaders.setdefault(Led(name, partition.leader_epoch), partition.leader)
            assert leader == partition.leader, self.cluster.fail(f"{name} has two leaders in one epoch")
        for node_id in set(partition.isr) - set(before.isr if before is not None else ()):
            self._check_replica(known, name, node_id, 0)

    # -- partitions --------------------------------------------------------------------------------------------------

    def _started(self, node: Node) -> None:
        """A node has opened its logs: those in sync have everything."""
        node_id = node.config.node_id
        for name, known in self.partitions.items():
            image = self.image_of(name)
            if image is not None and node_id in image.isr and node_id not in known.lossy:
                self._check_replica(known, name, node_id, 0)

    def image_of(self, name: TopicPartition) -> PartitionImage | None:
        """A partition in the latest metadata."""
        topic = self.history.image.topics_by_name.get(name.topic)
        return topic.partitions.get(name.partition) if topic is not None else None

    def _advanced(self, node: Node, partition: Partition) -> None:
        name, log, node_id = partition.topic_partition, partition.log, node.config.node_id
        known = self.partitions[name]
        if partition.leader_epoch < known.from_epoch:
            return
        led = (node_id, partition.leader_epoch)
        is_new, previous = led not in known.high_watermarks, known.high_watermarks.get(led, 0)
        high_watermark = partition.high_watermark
        text = f"the high watermark of {name} on {node_id} in epoch {partition.leader_epoch} moves from {previous}"
        assert high_watermark >= previous, self.cluster.fail(f"{text} to {high_watermark}")
        known.high_watermarks[led] = high_watermark
        end = len(known.records)
        if high_watermark > end:
            if self.retained is not None and name.topic in self.retained:
                self.retained.take(known, log, end, high_watermark)
            else:
                known.records += contents(log, end, high_watermark)
            latest = max([partition.leader_epoch, *known.committed_in[-1:]])
            known.committed_in += [latest] * (high_watermark - end)
            image = self.image_of(name)
            for member in image.isr if image is not None else ():
                self._check_replica(known, name, member, end)
        if is_new:  # perhaps much later than the election, when others lead
            required = bisect_right(known.committed_in, partition.leader_epoch)
            self._check_log(known, log, f"leader {node_id} of epoch {partition.leader_epoch}", 0, required)

    def _check_replica(self, known: Committed, name: TopicPartition, node_id: int, start: int) -> None:
        node = self.cluster.running().get(node_id)
        if node is None or node_id in known.lossy:
            return
        log = node.broker.logs.get(name)
        if log is not None:
            self._check_log(known, log, f"in-sync replica {node_id}", start, len(known.records))

    def _check_log(self, known: Committed, log: Log, who: str, start: int, end: int) -> None:
        """A log must have the committed records of a range."""
        assert log.log_end_offset >= end, self.cluster.fail(
            f"{who} of {known.name} has {log.log_end_offset} of {end} committed records"
        )
        if self.retained is not None and known.name.rpartition("-")[0] in self.retained:
            self.retained.check(known, log, who, start, end)
            return
        own = contents(log, start, end)
        if own != known.records[start:end]:
            pairs = enumerate(zip(own, known.records[start:end], strict=True))
            at = next(i for i, pair in pairs if pair[0] != pair[1])
            problem = f"{who} of {known.name} has {own[at]} at offset {start + at}, not {known.records[start + at]}"
            raise AssertionError(self.cluster.fail(problem))

    def acknowledged(self, topic: str, index: int, offset: int, value: bytes | None) -> None:
        """A producer was notified that its record is at this offset."""
        known = self.partitions[TopicPartition(topic, index)]
        if known.losses:
            return
        assert offset < len(known.records), self.cluster.fail(f"{topic}-{index} acknowledges {offset} uncommitted")
        found = known.records[offset][1]
        assert found == value, self.cluster.fail(f"{topic}-{index} acknowledges {value!r} at {offset}, it is {found!r}")
        known.acknowledged[offset] = value

    # -- power cuts --------------------------------------------------------------------------------------------------

    def may_cut_power(self) -> bool:
        """Whether Kafka promises everything after a power cut: each partition has other replicas in sync."""
        return not self.loses_page_cache or all(
            len(partition.isr) == len(partition.replicas) > 1 and not self.partitions[TopicPartition(name, index)].lossy
            for name, topic in self.history.image.topics_by_name.items()
            for index, partition in topic.partitions.items()
        )

    def may_lose_disk(self, node_id: int) -> bool:
        """Whether two other replicas of each partition of the node are in sync."""
        return all(
            len(set(partition.isr) - {node_id} - self.partitions[TopicPartition(name, index)].lossy.keys()) >= 2
            for name, topic in self.history.image.topics_by_name.items()
            for index, partition in topic.partitions.items()
            if node_id in partition.replicas
        )

    def _killed(self, node_id: int, power: bool) -> None:
        if not power or not self.loses_page_cache:
            return
        broker = self.history.image.brokers.get(node_id)
        for known in self.partitions.values():
            known.lossy[node_id] = broker.epoch if broker is not None else -1
