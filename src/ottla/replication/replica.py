"""One follower, as its leader knows it."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import DIRECTORY_UNASSIGNED
from ottla.common.values import value

UNKNOWN_OFFSET = -1
ANY_BROKER_EPOCH = -1


@value
class ReplicaFetch:
    """A follower as its fetch describes it. `broker_epoch` is -1 before version 15, `leader_epoch` if not given."""

    node_id: int
    fetch_offset: int
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = ANY_BROKER_EPOCH
    leader_epoch: int = -1


def not_a_replica(fetch: ReplicaFetch) -> KafkaError:
    """The error for the fetch of a node that is not a follower, as far as the leader knows."""
    # With a leader epoch, the fetching node may have newer metadata than the leader.
    code = ErrorCode.UNKNOWN_LEADER_EPOCH if fetch.leader_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    return KafkaError(code, f"Node {fetch.node_id} is not a replica")


class Replica:
    """A follower's log end, and when it last had all records of its leader.

    A follower whose fetch reaches the end of the leader's log is caught up now. One that only reaches the end as it was
    at its previous fetch was caught up then: a follower that fetches steadily under load is in sync, though it never
    reaches the moving end.
    """

    __slots__ = (
        "broker_epoch",
        "directory",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "node_id",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.log_start_offset = self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_ms = self.last_caught_up_ms = 0
        self.broker_epoch: int | None = None
        """The epoch of the broker that fetched last; None before its first fetch."""
        self.directory = DIRECTORY_UNASSIGNED
        """Its log directory, as far as the metadata shows it."""

    def start_epoch(self, now_ms: int, *, in_sync: bool) -> None:
        """Forget the follower's state: nothing is known in a new leader epoch. In-sync replicas get time to fetch."""
        self.log_start_offset = self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_ms = 0
        self.last_caught_up_ms = now_ms if in_sync else 0
        self.broker_epoch = None

    def on_fetch(self, fetch: ReplicaFetch, leader_end: int, now_ms: int) -> None:
        """Take in a fetch, which the leader received when its log ended at `leader_end`."""
        offset = fetch.fetch_offset
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.last_fetch_ms and offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = fetch.log_start_offset
        self.log_end_offset = offset
        self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = now_ms
        self.broker_epoch = fetch.broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether the follower has all records, or had all of them at most `lag_time_max_ms` ago."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
