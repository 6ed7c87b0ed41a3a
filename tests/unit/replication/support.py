"""A log in memory, and partitions as the metadata describes them."""

from __future__ import annotations

from ottla.metadata.image import BrokerImage, PartitionImage
from ottla.replication.leader import ClusterView


class ModelLog:
    """Records with their leader epochs; implements `FollowerLog`."""

    def __init__(self, epochs: list[int] | None = None) -> None:
        self.records: list[tuple[int, int]] = [(epoch, 0) for epoch in epochs or []]
        self.log_start_offset = 0

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.records[-1][0] if self.records else -1

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """Kafka's lookup: an epoch below all others ends where the first one begins; one above all is unknown."""
        epochs = [each for each, _ in self.records]
        if not epochs or epoch > epochs[-1]:
            return -1, -1
        end = self.log_start_offset + sum(each <= epoch for each in epochs)
        return max((each for each in epochs if each <= epoch), default=epoch), end

    def truncate(self, offset: int) -> None:
        del self.records[max(offset - self.log_start_offset, 0) :]


def broker(node_id: int, epoch: int = 1, *, fenced: bool = False, stopping: bool = False) -> BrokerImage:
    return BrokerImage(node_id, epoch, bytes(16), (), (), None, fenced, stopping, ())


def cluster(node_id: int = 1, brokers: int = 3, lag_ms: int = 30_000) -> ClusterView:
    return ClusterView(node_id, {each: broker(each) for each in range(1, brokers + 1)}, lag_ms)


def partition(
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
) -> PartitionImage:
    return PartitionImage(replicas, isr, leader, leader_epoch, partition_epoch)
