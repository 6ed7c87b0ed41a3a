"""The leader of a partition: high watermark, in-sync replicas, answers of the controller."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.replication.leader import ClusterView, IsrDecision, IsrProposal, Leader, Next
from ottla.replication.replica import ReplicaFetch
from tests.unit.replication.support import broker, cluster, partition

NOW = 1_000_000
LAG = 30_000


class Scene:
    """A leader with its log end and high watermark, as the broker keeps them."""

    def __init__(
        self,
        *,
        isr: tuple[int, ...] = (1, 2, 3),
        replicas: tuple[int, ...] = (1, 2, 3),
        end: int = 0,
        high_watermark: int = 0,
        min_isr: int = 1,
    ) -> None:
        self.view: ClusterView = cluster()
        self.end, self.high_watermark, self.now = end, high_watermark, NOW
        image = partition(isr=isr, replicas=replicas)
        self.leader = Leader(self.view, image, min_insync_replicas=min_isr, log_end_offset=end, now_ms=self.now)

    def fetch(self, node_id: int, offset: int, epoch: int = 1) -> IsrProposal | None:
        proposal = self.leader.on_fetch(
            ReplicaFetch(node_id, offset, 0, epoch, self.leader.leader_epoch),
            log_end_offset=self.end,
            high_watermark=self.high_watermark,
            now_ms=self.now,
        )
        self.advance()
        return proposal

    def advance(self) -> int:
        self.high_watermark = self.leader.high_watermark(self.high_watermark, self.end, self.now)
        return self.high_watermark

    def check_lag(self) -> IsrProposal | None:
        return self.leader.check_lag(self.end, self.now)

    def accept(self, proposal: IsrProposal) -> Next:
        epoch = proposal.partition_epoch + 1
        return self.leader.on_answer(proposal, ErrorCode.NONE, IsrDecision(proposal.leader_epoch, epoch, proposal.isr))


def test_high_watermark_waits_for_every_in_sync_replica() -> None:
    scene = Scene(end=10)
    assert scene.advance() == 0
    scene.fetch(2, 10)
    assert scene.high_watermark == 0
    scene.fetch(3, 7)
    assert scene.high_watermark == 7
    scene.fetch(3, 10)
    assert scene.high_watermark == 10


def test_leader_alone_in_the_isr_commits_at_once() -> None:
    scene = Scene(isr=(1,), end=10)
    assert scene.advance() == 10


def test_high_watermark_never_moves_back_when_a_follower_does() -> None:
    scene = Scene(end=10)
    scene.fetch(2, 10)
    scene.fetch(3, 10)
    scene.fetch(3, 4)
    assert scene.high_watermark == 10


def test_high_watermark_stays_below_min_insync_replicas() -> None:
    scene = Scene(isr=(1,), end=10, min_isr=2)
    assert scene.advance() == 0


def test_min_insync_replicas_above_the_replication_factor_requires_all_replicas() -> None:
    scene = Scene(isr=(1,), replicas=(1,), end=10, min_isr=2)
    assert scene.advance() == 10


def test_follower_that_reaches_the_high_watermark_is_proposed_with_its_broker_epoch() -> None:
    scene = Scene(isr=(1, 2), end=10)
    scene.fetch(2, 10)
    assert scene.fetch(3, 9) is None
    proposal = scene.fetch(3, 10)
    assert proposal is not None
    assert proposal.members == ((1, 1), (2, 1), (3, 1))


def test_pending_expansion_counts_for_the_high_watermark_but_not_for_min_insync_replicas() -> None:
    scene = Scene(isr=(1,), end=10, min_isr=1)
    scene.advance()
    proposal = scene.fetch(2, 10)
    assert proposal is not None
    scene.leader.min_insync_replicas = 2
    scene.leader.min_insync_replicas = 1
    scene.end = 12
    scene.now += 2 * LAG
    assert scene.advance() == 10
    assert scene.accept(proposal) is Next.DONE
    assert scene.leader.isr == (1, 2)
    assert scene.fetch(2, 12) is None
    assert scene.high_watermark == 12


def test_follower_below_the_start_of_the_leader_epoch_does_not_join() -> None:
    """It has not shown that its log agrees with this leader's up to here."""
    scene = Scene(isr=(1,), end=10, high_watermark=5)
    scene.leader.min_insync_replicas = 1
    proposal = scene.leader.on_fetch(ReplicaFetch(2, 7, 0, 1, 0), log_end_offset=10, high_watermark=5, now_ms=NOW)
    assert proposal is None


@pytest.mark.parametrize(
    "image", [broker(3, fenced=True), broker(3, stopping=True), broker(3, epoch=0)], ids=["fenced", "stopping", "old"]
)
def test_unavailable_broker_does_not_join_the_isr(image: object) -> None:
    scene = Scene(isr=(1, 2), end=0)
    scene.fetch(2, 0)
    scene.view.brokers = {**scene.view.brokers, 3: image}  # type: ignore[dict-item]
    assert scene.fetch(3, 0) is None


def test_fetch_of_an_earlier_registration_is_rejected() -> None:
    scene = Scene(end=10)
    scene.view.brokers = {**scene.view.brokers, 3: broker(3, epoch=7)}
    with pytest.raises(KafkaError) as raised:
        scene.fetch(3, 10, epoch=6)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scene.leader.followers[3].log_end_offset == -1


def test_fetch_of_a_node_without_a_replica_is_rejected() -> None:
    scene = Scene()
    with pytest.raises(KafkaError) as raised:
        scene.fetch(9, 0)
    assert raised.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_follower_that_stops_fetching_leaves_the_isr_after_the_lag_time() -> None:
    scene = Scene(end=0)
    scene.fetch(2, 0)
    scene.fetch(3, 0)
    assert scene.check_lag() is None
    scene.end = 5
    scene.now += LAG
    scene.fetch(2, 5)
    assert scene.check_lag() is None
    scene.now += 1
    proposal = scene.check_lag()
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert scene.advance() == 0, "the shrunk ISR is not committed yet"
    scene.accept(proposal)
    assert scene.advance() == 5


def test_follower_that_fetches_steadily_behind_a_moving_end_stays_in_sync() -> None:
    scene = Scene()
    for _ in range(20):
        scene.now += LAG // 2
        scene.fetch(2, scene.end)
        scene.fetch(3, scene.end)
        scene.end += 10
        assert scene.check_lag() is None


def test_idle_partition_gives_its_followers_the_whole_lag_time_from_the_last_check() -> None:
    scene = Scene()
    scene.fetch(2, 0)
    scene.fetch(3, 0)
    scene.now += 10 * LAG
    assert scene.check_lag() is None
    scene.end = 1
    scene.now += LAG // 2
    assert scene.check_lag() is None


def test_one_proposal_at_a_time() -> None:
    scene = Scene(isr=(1,), end=0)
    assert scene.fetch(2, 0) is not None
    assert scene.fetch(3, 0) is None
    assert scene.check_lag() is None


def test_rejected_proposal_restores_the_committed_isr() -> None:
    scene = Scene(isr=(1,), end=0)
    proposal = scene.fetch(2, 0)
    assert proposal is not None
    assert scene.leader.on_answer(proposal, ErrorCode.INELIGIBLE_REPLICA) is Next.DONE
    assert scene.leader.maximal_isr == {1}
    assert scene.fetch(2, 0) is None
    assert scene.leader.check_joining(0, is_answered=True) is None
    assert scene.leader.check_joining(0) is not None


def test_follower_that_returned_with_a_new_epoch_is_proposed_after_its_old_one_was_rejected() -> None:
    scene = Scene(isr=(1,), end=0)
    proposal = scene.fetch(2, 0)
    assert proposal is not None
    scene.view.brokers = {**scene.view.brokers, 2: broker(2, epoch=2)}
    assert scene.leader.check_joining(0) is None
    assert scene.fetch(2, 0, epoch=2) is None
    assert scene.leader.on_answer(proposal, ErrorCode.INELIGIBLE_REPLICA) is Next.DONE
    proposal = scene.leader.check_joining(0, is_answered=True)
    assert proposal is not None
    assert proposal.members == ((1, 1), (2, 2))


def test_follower_whose_directory_failed_does_not_join_until_the_directory_is_back() -> None:
    """It fetches no more, and the high watermark would wait for it until it lags."""
    first, second = b"first directory.", b"second directory"
    scene = Scene(end=10)
    scene.fetch(2, 10)
    scene.fetch(3, 10)
    scene.view.brokers = {**scene.view.brokers, 2: broker(2)._replace(directories=(second,))}
    image = partition(isr=(1, 3), partition_epoch=1)._replace(directories=(first, first, first))
    scene.leader.follow(image, scene.end, scene.now)
    assert scene.leader.check_joining(10) is None
    scene.end = 11
    scene.fetch(3, 11)
    assert scene.high_watermark == 11
    scene.view.brokers = {**scene.view.brokers, 2: broker(2)._replace(directories=(first, second))}
    proposal = scene.fetch(2, 11)
    assert proposal is not None
    assert set(proposal.isr) == {1, 2, 3}


def test_lost_answer_is_requested_again_with_the_same_proposal() -> None:
    scene = Scene(isr=(1,), end=0)
    proposal = scene.fetch(2, 0)
    assert proposal is not None
    assert scene.leader.on_answer(proposal, ErrorCode.REQUEST_TIMED_OUT) is Next.RETRY
    assert scene.leader.pending is proposal
    assert scene.leader.maximal_isr == {1, 2}


def test_outdated_proposal_stays_pending_until_newer_metadata() -> None:
    scene = Scene(isr=(1,), end=0)
    proposal = scene.fetch(2, 0)
    assert proposal is not None
    assert scene.leader.on_answer(proposal, ErrorCode.INVALID_UPDATE_VERSION) is Next.AWAIT_METADATA
    assert scene.leader.maximal_isr == {1, 2}
    assert scene.leader.follow(partition(isr=(1,), partition_epoch=1), 0, NOW)
    assert scene.leader.maximal_isr == {1}


def test_answer_after_newer_metadata_is_ignored() -> None:
    scene = Scene(isr=(1,), end=0)
    proposal = scene.fetch(2, 0)
    assert proposal is not None
    scene.leader.follow(partition(isr=(1, 2), partition_epoch=3), 0, NOW)
    assert scene.accept(proposal) is Next.DONE
    assert (scene.leader.isr, scene.leader.partition_epoch) == ((1, 2), 3)


def test_older_metadata_is_ignored_and_metadata_of_the_same_epoch_brings_replicas() -> None:
    scene = Scene(isr=(1, 2), replicas=(1, 2, 3), end=0)
    proposal = scene.fetch(3, 0)
    assert proposal is not None
    scene.accept(proposal)
    assert not scene.leader.follow(partition(isr=(1, 2)), 0, NOW)
    assert scene.leader.isr == (1, 2, 3)
    scene.leader.follow(partition(replicas=(1, 2, 3, 4), isr=(1, 2, 3), partition_epoch=1), 0, NOW)
    assert list(scene.leader.followers) == [2, 3, 4]


def test_new_leader_epoch_forgets_the_positions_of_followers() -> None:
    scene = Scene(end=10)
    scene.fetch(2, 10)
    scene.fetch(3, 10)
    scene.leader.follow(partition(leader_epoch=1, partition_epoch=1), 12, NOW)
    scene.end = 12
    assert scene.advance() == 10
    assert scene.leader.followers[2].log_end_offset == -1
    assert scene.leader.epoch_start_offset == 12


def test_follower_about_to_join_holds_the_high_watermark() -> None:
    scene = Scene(isr=(1,), end=0)
    scene.view.brokers = {**scene.view.brokers, 2: broker(2, epoch=2)}
    scene.fetch(2, 0, epoch=2)  # proposed
    assert scene.leader.pending is not None
    scene.leader.on_answer(scene.leader.pending, ErrorCode.INELIGIBLE_REPLICA)
    scene.end = 4
    assert scene.advance() == 0
    scene.now += LAG + 1
    assert scene.advance() == 4
