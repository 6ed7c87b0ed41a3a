"""A replica that does not lead publishes what the leader says is committed, and nothing more."""

from __future__ import annotations

from pathlib import Path
from random import Random

from ottla.broker.metadata_log import MetadataShell
from ottla.broker.metadata_options import MetadataOptions, NodeIdentity
from ottla.broker.quorum.transport import QuorumTransport
from ottla.common.clock import SystemClock
from ottla.common.completion import Completion
from ottla.common.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages import begin_quorum_epoch as begin
from ottla.protocol.messages import fetch
from ottla.protocol.metadata_records import encode_metadata_record
from ottla.raft import QuorumConfig, VoterSet
from ottla.raft.values import Node
from ottla.records import encode_batch
from tests.unit.controller.support import Rules


class Leader:
    """Node 2, the leader of epoch 5: the test answers its requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[Message, Completion[Message]]] = []

    def start(self, on_lost: object) -> None:
        pass

    def close(self) -> None:
        pass

    def send(self, to: Node, request: Message, *, least_version: int, timeout_s: float) -> Completion[Message]:
        answer: Completion[Message] = Completion()
        self.asked.append((request, answer))
        return answer

    def answer(self, records: bytes, high_watermark: int) -> None:
        """Answer the last fetch."""
        request, answer = self.asked[-1]
        assert isinstance(request, fetch.FetchRequest)
        partition = fetch.PartitionData(
            partition_index=0,
            high_watermark=high_watermark,
            current_leader=fetch.LeaderIdAndEpoch(2, 5),
            records=records,
        )
        topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
        answer.complete(fetch.FetchResponse(responses=[topic]))


def topics(offset: int, *names: str) -> bytes:
    rows = [m.TopicRecord(name=name, topic_id=name.encode().ljust(16)) for name in names]
    values = [(0, None, encode_metadata_record(row, 0), ()) for row in rows]
    return bytes(encode_batch(values, base_offset=offset, leader_epoch=5))


def follower(directory: Path, transport: QuorumTransport) -> MetadataShell:
    """Node 1 of three voters, which follows node 2."""
    voters = VoterSet.of_addresses("CONTROLLER", {node: ("127.0.0.1", 9000 + node) for node in (1, 2, 3)})
    options = MetadataOptions(
        quorum=QuorumConfig(1, cluster_id="cluster", static_voters=voters), random=Random(0), transport=transport
    )
    shell = MetadataShell.open(str(directory), NodeIdentity(1, "cluster"), Rules(), SystemClock(), options)
    partition = begin.RequestPartitionData(partition_index=0, leader_id=2, leader_epoch=5)
    topic = begin.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    shell.quorum.receive(begin.BeginQuorumEpochRequest(cluster_id="cluster", topics=[topic]), "CONTROLLER").result()
    return shell


def test_records_that_are_not_committed_are_not_published(tmp_path: Path) -> None:
    leader = Leader()
    shell = follower(tmp_path, leader)
    assert shell.leader is not None
    assert shell.leader[0] == 2
    leader.answer(topics(0, "a") + topics(1, "b"), 1)
    assert shell.log.log_end_offset == 2
    assert set(shell.image.topics_by_name) == {"a"}
    leader.answer(topics(2, "c"), 3)
    assert set(shell.image.topics_by_name) == {"a", "b", "c"}
    shell.close()
    again = follower(tmp_path, leader)
    assert set(again.image.topics_by_name) == set()
    leader.answer(b"", 2)
    assert set(again.image.topics_by_name) == {"a", "b"}
    again.close()


def test_part_of_a_metadata_transaction_is_not_published(tmp_path: Path) -> None:
    leader = Leader()
    shell = follower(tmp_path, leader)
    begins = encode_metadata_record(m.BeginTransactionRecord(name=None), 0)
    ends = encode_metadata_record(m.EndTransactionRecord(), 0)
    first = bytes(encode_batch([(0, None, begins, ())], base_offset=0, leader_epoch=5))
    last = bytes(encode_batch([(0, None, ends, ())], base_offset=2, leader_epoch=5))
    leader.answer(first + topics(1, "a"), 2)
    assert (shell.image.offset, set(shell.image.topics_by_name)) == (-1, set())
    leader.answer(last, 3)
    assert (shell.image.offset, set(shell.image.topics_by_name)) == (2, {"a"})
    shell.close()


def test_corrupt_records_of_the_leader_are_rejected_and_fetched_again(tmp_path: Path) -> None:
    leader = Leader()
    shell = follower(tmp_path, leader)
    leader.answer(topics(0, "a")[:-1] + b"x", 1)
    assert shell.log.log_end_offset == 0
    assert shell.quorum.failure is None
    shell.close()
