"""Requests with any values, from any node: each is answered, and neither leader nor follower stops or loses its log.

A new leader is announced only for old epochs here: two announced leaders of one epoch stop a node, as in Kafka.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop

from ottla.common.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol.message import Message
from ottla.protocol.messages import add_raft_voter as add
from ottla.protocol.messages import begin_quorum_epoch as begin
from ottla.protocol.messages import end_quorum_epoch as end
from ottla.protocol.messages import fetch, fetch_snapshot, vote
from ottla.protocol.messages import remove_raft_voter as remove
from ottla.protocol.messages import update_raft_voter as update

from .support import CLUSTER_ID, HOST, Quorum, directory_id, until

SEEDS = range(2)
REQUESTS = 250
NUMBERS = (-(1 << 31), -2, -1, 0, 1, 2, 3, 4, 7, 1000, (1 << 31) - 1)


class Forger:
    """Makes requests; epochs stay near the present one most of the time, so that they are not all outdated."""

    def __init__(self, seed: int, epoch: int, end: int) -> None:
        self._random = Random(seed)
        self._epoch = epoch
        self._end = end

    def request(self) -> Message:
        kinds = (self._vote, self._begin, self._end_epoch, self._fetch, self._snapshot, self._voter)
        return self._random.choice(kinds)()

    def _number(self) -> int:
        return self._random.choice(NUMBERS)

    def _node(self) -> int:
        return self._random.choice((-1, 0, 1, 2, 3, 4, 99))

    def _some_epoch(self) -> int:
        # A forged epoch of 2^31 - 1 would leave no epoch for the next election, as in Kafka.
        number = min(self._number(), self._epoch + 1000)
        return self._random.choice((self._epoch, self._epoch, self._epoch - 1, self._epoch + 1, number))

    def _offset(self) -> int:
        return self._random.choice((0, 1, self._end - 1, self._end, self._end + 1, self._number(), 1 << 62))

    def _directory(self) -> bytes:
        return self._random.choice((bytes(16), directory_id(1), directory_id(2), directory_id(3), directory_id(77)))

    def _cluster(self) -> str | None:
        return self._random.choice((CLUSTER_ID, CLUSTER_ID, CLUSTER_ID, None, "another"))

    def _name(self) -> str:
        return self._random.choice((METADATA_TOPIC,) * 9 + ("t",))

    def _vote(self) -> Message:
        partition = vote.RequestPartitionData(
            partition_index=self._random.choice((0, 0, 0, 1)),
            replica_epoch=self._some_epoch(),
            replica_id=self._node(),
            replica_directory_id=self._directory(),
            voter_directory_id=self._directory(),
            last_offset_epoch=self._some_epoch(),
            last_offset=self._offset(),
            pre_vote=self._random.random() < 0.5,
        )
        topics = [vote.RequestTopicData(topic_name=self._name(), partitions=[partition])]
        return vote.VoteRequest(cluster_id=self._cluster(), voter_id=self._node(), topics=topics)

    def _begin(self) -> Message:
        partition = begin.RequestPartitionData(
            partition_index=0,
            voter_directory_id=self._directory(),
            leader_id=self._node(),
            leader_epoch=self._epoch - self._random.choice((1, 2, 1000, 1 << 31)),
        )
        topics = [begin.RequestTopicData(topic_name=self._name(), partitions=[partition])]
        places = [begin.LeaderEndpoint("CONTROLLER", HOST, 1)] * self._random.randrange(2)
        return begin.BeginQuorumEpochRequest(
            cluster_id=self._cluster(), voter_id=self._node(), topics=topics, leader_endpoints=places
        )

    def _end_epoch(self) -> Message:
        partition = end.RequestPartitionData(
            partition_index=0,
            leader_id=self._node(),
            leader_epoch=self._epoch - self._random.choice((1, 2, 1000, 1 << 31)),
            preferred_candidates=[end.ReplicaInfo(self._node(), self._directory())],
        )
        topics = [end.RequestTopicData(topic_name=self._name(), partitions=[partition])]
        return end.EndQuorumEpochRequest(cluster_id=self._cluster(), topics=topics)

    def _fetch(self) -> Message:
        partition = fetch.FetchPartition(
            partition=0,
            current_leader_epoch=self._some_epoch(),
            fetch_offset=self._offset(),
            last_fetched_epoch=self._some_epoch(),
            replica_directory_id=self._directory(),
            high_watermark=self._offset(),
        )
        topic = fetch.FetchTopic(topic=self._name(), topic_id=METADATA_TOPIC_ID, partitions=[partition])
        return fetch.FetchRequest(
            cluster_id=self._cluster(),
            replica_id=self._node(),
            max_wait_ms=self._random.choice((0, 10, self._number())),
            max_bytes=self._number(),
            topics=[topic] * self._random.choice((1, 1, 1, 0, 2)),
        )

    def _snapshot(self) -> Message:
        partition = fetch_snapshot.RequestPartitionSnapshot(
            partition=0,
            current_leader_epoch=self._some_epoch(),
            snapshot_id=fetch_snapshot.RequestSnapshotId(self._offset(), self._some_epoch()),
            position=self._offset(),
            replica_directory_id=self._directory(),
        )
        return fetch_snapshot.FetchSnapshotRequest(
            cluster_id=self._cluster(),
            replica_id=self._node(),
            max_bytes=self._number(),
            topics=[fetch_snapshot.RequestTopicSnapshot(name=self._name(), partitions=[partition])],
        )

    def _voter(self) -> Message:
        node, directory = self._node(), self._directory()
        kind = self._random.randrange(3)
        if kind == 0:
            return add.AddRaftVoterRequest(
                cluster_id=self._cluster(),
                timeout_ms=self._random.choice((-1, 0, 10)),
                voter_id=node,
                voter_directory_id=directory,
                listeners=[add.Listener("CONTROLLER", HOST, 1)] * self._random.randrange(2),
            )
        if kind == 1:  # A valid removal would be executed: Kafka's administrators may do that too.
            return remove.RemoveRaftVoterRequest(
                cluster_id=self._cluster(), voter_id=node, voter_directory_id=directory_id(77)
            )
        return update.UpdateRaftVoterRequest(
            cluster_id=self._cluster(),
            current_leader_epoch=self._some_epoch(),
            voter_id=self._random.choice((-1, 0, 4, 99)),
            voter_directory_id=directory,
            listeners=[update.Listener("CONTROLLER", HOST, 1)] * self._random.randrange(2),
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_forged_requests_stop_no_node_and_change_no_committed_metadata(tmp_path: Path, seed: int) -> None:
    async def story() -> None:
        async with Quorum(tmp_path) as quorum:
            await quorum.create("a")
            await quorum.published("a")
            random = Random(seed)
            answers: list[Any] = []
            for i in range(REQUESTS):
                node = random.choice(list(quorum.nodes.values()))
                raft = node.running.raft
                forger = Forger(seed * 10_000 + i, raft.epoch, raft.end.offset)
                answers.append(node.running.quorum.receive(forger.request(), "CONTROLLER"))
                if i % 25 == 0:
                    await asyncio.sleep(0.01)
                assert node.running.quorum.failure is None, node.running.quorum.failure
            assert all("a" in node.running.image.topics_by_name for node in quorum.nodes.values())
            await until(lambda: sum(not each.done for each in answers) < 5, "requests without an answer")
            assert all(node.running.quorum.failure is None for node in quorum.nodes.values())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(story(), 60))
