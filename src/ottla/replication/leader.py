"""The leader of one partition: followers, high watermark, and changes of the in-sync replicas (ISR).

KIP-497 (AlterPartition), KIP-841 (fenced brokers do not join), KIP-903 (broker epochs), KIP-966 (the high watermark
does not advance below `min.insync.replicas`).

A change of the ISR is proposed to the controller and takes effect with the controller's answer, or with newer metadata,
whichever comes first. Until then either ISR may be the committed one. The high watermark therefore waits for the
replicas of both, the maximal ISR, while `min.insync.replicas` counts only the replicas of the committed ISR.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.values import value
from ottla.replication.replica import ANY_BROKER_EPOCH, Replica, ReplicaFetch, not_a_replica

if TYPE_CHECKING:
    from ottla.metadata.image import BrokerImage, PartitionImage


class ClusterView:
    """The state that the leaders of one node share: the registered brokers and `replica.lag.time.max.ms`."""

    __slots__ = ("brokers", "lag_time_max_ms", "node_id")

    def __init__(self, node_id: int, brokers: Mapping[int, BrokerImage], lag_time_max_ms: int = 30_000) -> None:
        self.node_id = node_id
        self.brokers = brokers
        self.lag_time_max_ms = lag_time_max_ms

    @property
    def broker_epoch(self) -> int:
        """The epoch of this node's registration; -1 if it is not registered."""
        broker = self.brokers.get(self.node_id)
        return ANY_BROKER_EPOCH if broker is None else broker.epoch


@value
class IsrProposal:
    """A change of the ISR to request with AlterPartition: (node id, broker epoch) of each member, and on what state."""

    members: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int

    @property
    def isr(self) -> tuple[int, ...]:
        """The node ids of the members."""
        return tuple(node_id for node_id, _ in self.members)


@value
class IsrDecision:
    """The state of a partition after AlterPartition, by the controller's answer."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Next(Enum):
    """The next step after an answer to a proposal."""

    DONE = "done"
    RETRY = "retry"
    """Send the same proposal again: its outcome is unknown."""
    AWAIT_METADATA = "await metadata"
    """The metadata has changed; the proposal stays pending until the change arrives."""


# The controller changed nothing and will not: the leader continues with the committed ISR and may propose again.
_NOT_ATTEMPTED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_OUTDATED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class Leader:
    """The state of a partition's leader in one leader epoch after another."""

    __slots__ = (
        "_cluster",
        "_maximal_isr",
        "_rejected",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "min_insync_replicas",
        "partition_epoch",
        "pending",
    )

    def __init__(
        self,
        cluster: ClusterView,
        partition: PartitionImage,
        *,
        min_insync_replicas: int,
        log_end_offset: int,
        now_ms: int,
    ) -> None:
        self._cluster = cluster
        self.min_insync_replicas = min_insync_replicas
        self.followers: dict[int, Replica] = {}
        self.leader_epoch = self.partition_epoch = -1
        self.epoch_start_offset = log_end_offset
        self.isr: tuple[int, ...] = ()
        self.pending: IsrProposal | None = None
        self._maximal_isr: frozenset[int] = frozenset()
        # The members that the controller rejected: not proposed again until the metadata or their epochs change.
        self._rejected: tuple[tuple[int, int], ...] = ()
        self.follow(partition, log_end_offset, now_ms)

    # -- metadata ----------------------------------------------------------------------------------------------

    def follow(self, partition: PartitionImage, log_end_offset: int, now_ms: int) -> bool:
        """Take over newer metadata, in which this node is the leader; False if it is not newer.

        It replaces a pending proposal, whose answer is ignored if it still comes. Metadata of the same partition epoch
        may still bring other replicas: an answer to AlterPartition contains only the ISR.
        """
        if partition.partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = partition.leader_epoch > self.leader_epoch
        followers = {}
        for node_id in partition.replicas:
            if node_id == self._cluster.node_id:
                continue
            replica = self.followers.get(node_id)
            if replica is None or is_new_epoch:
                replica = Replica(node_id) if replica is None else replica
                replica.start_epoch(now_ms, in_sync=node_id in partition.isr)
            replica.directory = partition.directory_of(node_id)
            followers[node_id] = replica
        self.followers = followers
        if is_new_epoch:
            self.epoch_start_offset = log_end_offset
            self.leader_epoch = partition.leader_epoch
        if partition.partition_epoch > self.partition_epoch:
            self.partition_epoch = partition.partition_epoch
            self._commit(partition.isr)
        return True

    def _commit(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.pending = None
        self._rejected = ()
        self._maximal_isr = frozenset(isr)

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, at most the number of replicas."""
        return min(self.min_insync_replicas, len(self.followers) + 1)

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR and, while a proposal is pending, the proposed one."""
        return self._maximal_isr

    # -- high watermark ----------------------------------------------------------------------------------------

    def high_watermark(self, current: int, log_end_offset: int, now_ms: int) -> int:
        """The high watermark of a log that ends at `log_end_offset`; never below `current`.

        It also waits for an eligible follower that is about to join the ISR. Otherwise a follower could run behind a
        moving high watermark and never join.
        """
        if len(self.isr) < self.effective_min_isr:
            return current
        lowest = log_end_offset
        maximal = self._maximal_isr
        for replica in self.followers.values():
            end = replica.log_end_offset
            if end < lowest and (replica.node_id in maximal or self._is_joining(replica, log_end_offset, now_ms)):
                lowest = end
        return max(current, lowest)

    def _is_joining(self, replica: Replica, log_end_offset: int, now_ms: int) -> bool:
        return replica.is_caught_up(log_end_offset, now_ms, self._cluster.lag_time_max_ms) and self._is_eligible(
            replica
        )

    def cut(self, log_end_offset: int) -> None:
        """Note that the log was cut: followers that had more records have at most these after their next fetch."""
        for replica in self.followers.values():
            replica.log_end_offset = min(replica.log_end_offset, log_end_offset)
        self.epoch_start_offset = min(self.epoch_start_offset, log_end_offset)

    # -- followers ---------------------------------------------------------------------------------------------

    def on_fetch(
        self, fetch: ReplicaFetch, *, log_end_offset: int, high_watermark: int, now_ms: int
    ) -> IsrProposal | None:
        """Take in the position of a follower, whose log does not diverge; a proposal if it can join the ISR.

        Raises UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER: the fetching node is not a replica, as far as this
        leader knows, or it was registered again since (KIP-903).
        """
        replica = self.check_replica(fetch)
        replica.on_fetch(fetch, log_end_offset, now_ms)
        return None if fetch.node_id in self.isr else self._expand(replica, high_watermark)

    def check_joining(self, high_watermark: int, *, is_answered: bool = False) -> IsrProposal | None:
        """A proposal with a follower that can join the ISR now.

        Call it when the brokers in the metadata have changed, and after an answer to a proposal (`is_answered`): a
        follower of an idle partition may have reported its position before it was eligible.
        """
        if not is_answered:
            self._rejected = ()
        for node_id, replica in self.followers.items():
            proposal = None if node_id in self.isr else self._expand(replica, high_watermark)
            if proposal is not None:
                return proposal
        return None

    def _expand(self, replica: Replica, high_watermark: int) -> IsrProposal | None:
        """A proposal with a follower that is not in the ISR, if it has everything committed and its broker is live."""
        if self.pending is not None or replica.log_end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        if not self._is_eligible(replica):
            return None
        isr = (*self.isr, replica.node_id)
        if self._members(isr) == self._rejected:
            return None
        return self._propose(isr, self._maximal_isr | {replica.node_id})

    def check_replica(self, fetch: ReplicaFetch) -> Replica:
        """Return the follower that fetches. Raises UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER; see `on_fetch`."""
        replica = self.followers.get(fetch.node_id)
        if replica is None:
            raise not_a_replica(fetch)
        broker = self._cluster.brokers.get(fetch.node_id)
        if fetch.broker_epoch != ANY_BROKER_EPOCH and broker is not None and broker.epoch > fetch.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker epoch {fetch.broker_epoch} of node {fetch.node_id} is older than {broker.epoch}",
            )
        return replica

    def check_lag(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """A proposal without the followers that were not caught up for `replica.lag.time.max.ms`, if there are any.

        Call it at least twice in that time: a follower that has everything now is noted as caught up now, since the
        fetches of an idle partition are not reported.
        """
        lag_ms = self._cluster.lag_time_max_ms
        self._rejected = ()
        for replica in self.followers.values():
            if replica.log_end_offset == log_end_offset:
                replica.last_caught_up_ms = max(replica.last_caught_up_ms, now_ms)
        if self.pending is not None:
            return None
        followers = self.followers
        remaining = tuple(
            node_id
            for node_id in self.isr
            if node_id not in followers or followers[node_id].is_caught_up(log_end_offset, now_ms, lag_ms)
        )
        if len(remaining) == len(self.isr):
            return None
        return self._propose(remaining, self._maximal_isr)

    def low_watermark(self, log_start_offset: int) -> int:
        """The lowest log start of this replica, which is `log_start_offset`, and the followers on live brokers."""
        lowest = log_start_offset
        for replica in self.followers.values():
            broker = self._cluster.brokers.get(replica.node_id)
            if broker is not None and not broker.fenced:
                lowest = min(lowest, replica.log_start_offset)
        return lowest

    def _is_eligible(self, replica: Replica) -> bool:
        broker = self._cluster.brokers.get(replica.node_id)
        if broker is None or not broker.is_active or replica.broker_epoch is None:
            return False
        if not broker.has_online_directory(replica.directory):
            return False  # It fetches no more, though it may have had everything.
        return replica.broker_epoch in (ANY_BROKER_EPOCH, broker.epoch)

    # -- ISR ---------------------------------------------------------------------------------------------------

    def _propose(self, isr: tuple[int, ...], maximal: frozenset[int]) -> IsrProposal:
        self._maximal_isr = maximal
        self.pending = IsrProposal(self._members(isr), self.leader_epoch, self.partition_epoch)
        return self.pending

    def _members(self, isr: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        return tuple((node_id, self._broker_epoch_of(node_id)) for node_id in isr)

    def _broker_epoch_of(self, node_id: int) -> int:
        if node_id == self._cluster.node_id:
            return self._cluster.broker_epoch
        replica = self.followers.get(node_id)
        epoch = None if replica is None else replica.broker_epoch
        return ANY_BROKER_EPOCH if epoch is None else epoch

    def on_answer(self, proposal: IsrProposal, error: ErrorCode, decision: IsrDecision | None = None) -> Next:
        """Take in the controller's answer, with `decision` if there was no error.

        An answer to an older proposal is ignored: newer metadata has replaced it.
        """
        if self.pending is not proposal:
            return Next.DONE
        if error in _NOT_ATTEMPTED:
            self._commit(self.isr)
            self._rejected = proposal.members
            return Next.DONE
        if error in _OUTDATED:
            return Next.AWAIT_METADATA
        if error is not ErrorCode.NONE or decision is None:
            return Next.RETRY
        if decision.leader_epoch != self.leader_epoch or decision.partition_epoch < self.partition_epoch:
            return Next.AWAIT_METADATA
        self.partition_epoch = decision.partition_epoch
        self._commit(decision.isr)
        return Next.DONE
