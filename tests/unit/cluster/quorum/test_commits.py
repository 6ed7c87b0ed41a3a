"""A replica that does not lead publishes what the leader says is committed, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.cluster.metadata.log import MetadataShell
from ottla.cluster.metadata.options import MetadataOptions, NodeIdentity
from ottla.cluster.metadata.snapshots import SnapshotId as SnapshotFileId
from ottla.cluster.metadata.snapshots import SnapshotWriter
from ottla.cluster.quorum.transport import QuorumTransport
from ottla.common.clock import SystemClock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages import begin_quorum_epoch as begin
from ottla.protocol.messages import fetch
from ottla.protocol.metadata_records import encode_metadata_record
from ottla.raft import QuorumConfig, VoterSet, wire_requests, wire_responses
from ottla.raft.messages import FetchResponse, FetchSnapshotResponse
from ottla.raft.values import Node, SnapshotId
from ottla.records import encode_batch
from tests.unit.broker.harness import ManualLoop
from tests.unit.controller.support import Rules

SNAPSHOT = SnapshotId(4, 5)


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

    def answer_with_snapshot(self, data: bytes) -> None:
        """Answer the last fetch: the log begins at the snapshot 4-5. Then send it."""
        for length in (0, len(data)):
            message, answer = self.asked[-1]
            request = wire_requests.decode(message)
            if length:
                part: Any = FetchSnapshotResponse(ErrorCode.NONE, 5, 2, (), SNAPSHOT, len(data), 0, length)
            else:
                part = FetchResponse(ErrorCode.NONE, 5, 2, snapshot=SNAPSHOT)
            answer.complete(wire_responses.encode(request, part, "CONTROLLER", data[:length]))


def snapshot_of(*names: str) -> bytes:
    records = [(m.TopicRecord(name=name, topic_id=name.encode().ljust(16)), 0) for name in names]
    writer = SnapshotWriter(SnapshotFileId(*SNAPSHOT), records, {}, 0, 0)
    while writer.step():
        pass
    return bytes(writer.data)


def topics(offset: int, *names: str) -> bytes:
    rows = [m.TopicRecord(name=name, topic_id=name.encode().ljust(16)) for name in names]
    values = [(0, None, encode_metadata_record(row, 0), ()) for row in rows]
    return bytes(encode_batch(values, base_offset=offset, leader_epoch=5))


def follower(directory: Path, transport: QuorumTransport, loop: ManualLoop | None = None, **how: Any) -> MetadataShell:
    """Node 1 of three voters, which follows node 2."""
    voters = VoterSet.of_addresses("CONTROLLER", {node: ("127.0.0.1", 9000 + node) for node in (1, 2, 3)})
    options = MetadataOptions(
        quorum=QuorumConfig(1, cluster_id="cluster", static_voters=voters, **how),
        random=Random(0),
        transport=transport,
        call_later=loop.call_later if loop is not None else None,
    )
    shell = MetadataShell.open(str(directory), NodeIdentity(1, "cluster"), Rules(), loop or SystemClock(), options)
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


def test_damaged_snapshot_of_the_leader_is_fetched_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    leader, loop = Leader(), ManualLoop()
    shell = follower(tmp_path, leader, loop)
    data = snapshot_of("a", "b")
    for damaged in (data[:-20], data[:100] + b"x" + data[101:]):
        leader.answer_with_snapshot(damaged)
        assert shell.quorum.failure is None
        assert set(shell.image.topics_by_name) == set()
        assert not list(shell_files(shell))
        asked = len(leader.asked)
        loop.advance(500)
        assert len(leader.asked) == asked
        loop.advance(600)
        assert len(leader.asked) == asked + 1
    leader.answer_with_snapshot(data)
    assert set(shell.image.topics_by_name) == {"a", "b"}
    assert [path.name for path in shell_files(shell)] == [SnapshotFileId(*SNAPSHOT).file_name]
    assert caplog.text.count("Fetching a metadata snapshot of the leader again, because it is damaged") == 1
    shell.close()


def shell_files(shell: MetadataShell) -> Iterator[Path]:
    return Path(shell.log.directory).glob("*.checkpoint*")


def test_broker_without_a_vote_fetches_all_metadata_again_if_it_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leader, loop = Leader(), ManualLoop()
    shell = follower(tmp_path, leader, loop)
    leader.answer_with_snapshot(snapshot_of("a"))
    shell.close()
    (path,) = shell_files(shell)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(KafkaError, match="restore the directory from a copy, or format the node with a new one"):
        follower(tmp_path, leader, loop)
    observer = follower(tmp_path, leader, loop, can_become_voter=False)
    assert "Fetching all metadata again from the controllers" in caplog.text
    assert (observer.log.log_start_offset, observer.log.log_end_offset) == (0, 0)
    assert list(shell_files(observer)) == []
    observer.close()
