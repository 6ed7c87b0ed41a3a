"""A leader with followers: what is visible, what is acknowledged, and what fails when it loses its followers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.config import LogConfig
from ottla.partitions.partition import Partition, Replication
from ottla.partitions.reading import READ_ALL, READ_UNCOMMITTED
from ottla.partitions.topic_settings import TopicSettings
from ottla.records import ProduceRules
from ottla.replication.leader import IsrDecision, IsrProposal, Leader, Next
from ottla.replication.replica import ReplicaFetch
from tests.storage.helpers import ManualClock, append, batch, open_at
from tests.unit.broker.harness import Threads
from tests.unit.replication.support import broker, cluster, partition


class Watcher:
    """A waiting fetch: the sizes of the appends it was notified of, and how often the high watermark moved."""

    def __init__(self) -> None:
        self.changes: list[int] = []
        self.moves = 0

    def partition_changed(self, appended_bytes: int) -> None:
        self.changes.append(appended_bytes)

    def high_watermark_moved(self) -> None:
        self.moves += 1


class Scene:
    """A partition with three records, one of them committed."""

    def __init__(
        self, path: Path, *, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1, replicas: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        self.clock, self.threads = ManualClock(), Threads()
        self.log = open_at(str(path), clock=self.clock)
        for value in (b"a", b"b", b"c"):
            append(self.log, batch(value))
        self.log.high_watermark = 1
        self.proposals: list[IsrProposal] = []
        image = partition(isr=isr, replicas=replicas)
        end, now_ms = self.log.log_end_offset, self.clock.now
        self.view = cluster()
        leader = Leader(self.view, image, min_insync_replicas=min_isr, log_end_offset=end, now_ms=now_ms)
        self.partition = Partition(
            self.log,
            leader_epoch=0,
            settings=TopicSettings(LogConfig(), ProduceRules("t"), min_isr, None),
            flush_in_thread=self.threads.run,
            replication=self.replication(leader) if len(replicas) > 1 else None,
        )

    def replication(self, leader: Leader) -> Replication:
        return Replication(leader, lambda _, proposal: self.proposals.append(proposal))

    def fetch(self, node_id: int, offset: int) -> None:
        self.partition.on_follower_fetch(ReplicaFetch(node_id, offset, 0, 1, 0))

    def append(self, acks: int = -1) -> int:
        return self.partition.append(memoryview(batch(b"new")), required_acks=acks).last_offset + 1


def code_of(completion: Completion[None] | None) -> ErrorCode:
    assert completion is not None
    with pytest.raises(KafkaError) as raised:
        completion.result()
    return raised.value.code


def test_new_leader_shows_only_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.partition.high_watermark == 1
    assert not scene.partition.look_up(1, 1000, READ_UNCOMMITTED, min_one_batch=True)
    assert scene.partition.look_up(1, 1000, READ_ALL, min_one_batch=True)
    scene.fetch(2, 3)
    scene.fetch(3, 3)
    assert scene.partition.high_watermark == 3


def test_follower_is_notified_of_an_append_and_a_consumer_of_the_commit(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    consumer, follower = Watcher(), Watcher()
    scene.fetch(2, 3)
    scene.fetch(3, 3)
    scene.partition.watchers[consumer] = None
    scene.partition.followers[follower] = None
    end = scene.append()
    assert (len(follower.changes), consumer.changes) == (1, [])
    scene.fetch(2, end)
    scene.fetch(3, end)
    assert (len(consumer.changes), follower.moves) == (1, 1)


def test_acks_all_waits_for_the_followers_and_acks_one_does_not(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    end = scene.append()
    assert scene.partition.when_flushed(end) is None
    durable = scene.partition.when_durable(end)
    assert durable is not None
    scene.fetch(2, end)
    assert not durable.done
    scene.fetch(3, end)
    assert durable.done


def test_acks_all_is_rejected_below_min_insync_replicas(tmp_path: Path) -> None:
    scene = Scene(tmp_path, isr=(1,), min_isr=2)
    with pytest.raises(KafkaError) as raised:
        scene.append()
    assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    scene.append(acks=1)
    assert scene.partition.high_watermark == 1


def test_fetch_outside_of_the_log_is_not_noted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(KafkaError) as raised:
        scene.fetch(2, 4)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert scene.partition.replication is not None
    assert scene.partition.replication.followers[2].log_end_offset == -1


def test_lagging_follower_leaves_the_isr_and_the_waiting_records_are_committed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    durable = scene.partition.when_durable(scene.append())
    scene.fetch(2, 4)
    scene.clock.now += 30_001
    scene.fetch(2, 4)
    scene.partition.check_lag()
    (proposal,) = scene.proposals
    assert proposal.isr == (1, 2)
    assert durable is not None
    assert not durable.done
    answered = scene.partition.on_isr_answer(proposal, ErrorCode.NONE, IsrDecision(0, 1, (1, 2)))
    assert answered is Next.DONE
    assert durable.done
    assert (scene.partition.isr_size, scene.partition.replica_count) == (2, 3)


def test_closed_leader_fails_its_waiters_and_ignores_answers(tmp_path: Path) -> None:
    scene = Scene(tmp_path, isr=(1, 2))
    durable = scene.partition.when_durable(scene.append())
    scene.fetch(3, 4)
    (proposal,) = scene.proposals
    scene.partition.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert code_of(durable) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scene.partition.on_isr_answer(proposal, ErrorCode.NONE, IsrDecision(0, 1, (1, 2, 3))) is None


def test_followers_are_added_to_and_removed_from_a_partition_of_one_replica(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replicas=(1,), isr=(1,))
    scene.partition.follow(None, partition(replicas=(1,), isr=(1,), partition_epoch=1))
    assert scene.partition.replication is None
    assert scene.append() == scene.partition.high_watermark == 4
    more = partition(replicas=(1, 2), isr=(1,), partition_epoch=2)
    leader = Leader(cluster(), more, min_insync_replicas=1, log_end_offset=4, now_ms=scene.clock.now)
    scene.partition.follow(scene.replication(leader), more)
    scene.fetch(2, 4)
    (proposal,) = scene.proposals
    scene.partition.on_isr_answer(proposal, ErrorCode.NONE, IsrDecision(0, 3, (1, 2)))
    scene.append()
    assert scene.partition.high_watermark == 4
    scene.fetch(2, 5)
    assert scene.partition.high_watermark == 5


def test_deletion_of_records_waits_for_the_live_followers(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.fetch(2, 3)
    scene.fetch(3, 3)
    assert scene.partition.delete_records_before(2) == 2
    deleted = scene.partition.when_deleted(2)
    assert deleted is not None
    scene.partition.on_follower_fetch(ReplicaFetch(2, 3, 2, 1, 0))
    assert not deleted.done
    view = scene.view
    view.brokers = {**view.brokers, 3: broker(3, fenced=True)}
    scene.partition.check_joining()
    assert deleted.done
    assert scene.partition.when_deleted(2) is None


def test_deletion_without_other_replicas_waits_for_none(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.partition.follow(None, partition(replicas=(1,), isr=(1,), partition_epoch=1))
    scene.partition.delete_records_before(2)
    assert scene.partition.when_deleted(2) is None
