"""Produce: each partition has its own result, and the response waits until the required acks are met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.ids import OFFSETS_TOPIC
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records import BatchProducer, Codec

from .harness import START_MS, BrokerHarness, batch, open_harness, produce_request


def parts(response: Any) -> dict[tuple[str, int], Any]:
    return {(topic.name, part.index): part for topic in response.responses for part in topic.partition_responses}


def codes(response: Any) -> dict[tuple[str, int], int]:
    return {key: part.error_code for key, part in parts(response).items()}


@pytest.mark.parametrize("acks", [1, -1])
def test_offsets_of_appended_records(harness: BrokerHarness, acks: int) -> None:
    harness.create("t", 2)
    harness.append("t", b"before")
    response = harness.produce(("t", {0: batch(b"a", b"b"), 1: batch(b"c")}), acks=acks)
    answers = parts(response)
    assert {key: part.base_offset for key, part in answers.items()} == {("t", 0): 1, ("t", 1): 0}
    assert all(
        (part.error_code, part.log_append_time_ms, part.log_start_offset) == (0, -1, 0) for part in answers.values()
    )
    assert harness.partition("t").high_watermark == 3


def test_acks_0_has_no_response_and_a_failure_closes_the_connection(harness: BrokerHarness) -> None:
    harness.create("t")
    assert harness.produce(("t", {0: batch(b"a")}), acks=0) is None
    assert (harness.partition("t").high_watermark, harness.client.closed) == (1, False)
    assert harness.produce(("t", {0: batch(b"b"), 1: batch(b"c")}), acks=0) is None
    assert (harness.partition("t").high_watermark, harness.client.closed) == (2, True)


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_invalid_acks_are_rejected_and_nothing_is_appended(harness: BrokerHarness, acks: int) -> None:
    harness.create("t")
    assert codes(harness.produce(("t", {0: batch(b"a")}), acks=acks)) == {("t", 0): ErrorCode.INVALID_REQUIRED_ACKS}
    assert harness.partition("t").high_watermark == 0


def test_each_partition_has_its_own_error_and_the_rest_is_appended(harness: BrokerHarness) -> None:
    harness.create("t", 4, max_message_bytes="200")
    harness.create(OFFSETS_TOPIC)
    corrupt = batch(b"a")
    corrupt[-1] ^= 1
    response = harness.produce(
        ("t", {0: batch(b"ok"), 1: corrupt, 2: batch(b"x" * 500), 3: None, 9: batch(b"a")}),
        ("none", {0: batch(b"a")}),
        (OFFSETS_TOPIC, {0: batch(b"a")}),
    )
    assert codes(response) == {
        ("t", 0): 0,
        ("t", 1): ErrorCode.CORRUPT_MESSAGE,
        ("t", 2): ErrorCode.MESSAGE_TOO_LARGE,
        ("t", 3): ErrorCode.INVALID_RECORD,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (OFFSETS_TOPIC, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    failed = [part for part in parts(response).values() if part.error_code]
    assert {(part.base_offset, part.log_start_offset, part.log_append_time_ms) for part in failed} == {(-1, -1, -1)}
    assert [harness.partition("t", index).high_watermark for index in range(4)] == [1, 0, 0, 0]


def test_invalid_records_are_reported_since_version_8(harness: BrokerHarness) -> None:
    harness.create("t", cleanup_policy="compact")
    for version, expected in ((7, []), (8, [0, 1])):
        part = parts(harness.produce(("t", {0: batch(b"a", b"b", key=None)}), version=version))["t", 0]
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in part.record_errors] == expected


def test_topics_by_id(harness: BrokerHarness) -> None:
    topic_id = harness.create("t")
    data = [PartitionProduceData(0, batch(b"a"))]
    request = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(topic_id=i, partition_data=data) for i in (topic_id, b"\1" * 16)]
    )
    response = harness.start(request, 13)
    assert {topic.topic_id: topic.partition_responses[0].error_code for topic in response.responses} == {
        topic_id: 0,
        b"\1" * 16: ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_duplicate_batch_returns_its_first_offset_and_a_sequence_gap_an_error(harness: BrokerHarness) -> None:
    harness.create("t")

    def send(sequence: int, epoch: int = 0) -> Any:
        data = batch(b"a", b"b", producer=BatchProducer(5, epoch, sequence))
        return parts(harness.produce(("t", {0: data})))["t", 0]

    assert [send(0).base_offset, send(2).base_offset] == [0, 2]
    again = send(0)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert send(6).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, epoch=1).base_offset == 4
    assert send(4).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert harness.partition("t").high_watermark == 6


def test_zstd_is_rejected_below_version_7(harness: BrokerHarness) -> None:
    harness.create("t")
    for version, code in ((6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, 0)):
        assert codes(harness.produce(("t", {0: batch(b"a", codec=Codec.ZSTD)}), version=version)) == {("t", 0): code}


def test_log_append_time_is_returned_and_written(harness: BrokerHarness) -> None:
    harness.create("t", message_timestamp_type="LogAppendTime")
    harness.loop.advance(5_000)
    part = parts(harness.produce(("t", {0: batch(b"a", timestamp=START_MS - 1)})))["t", 0]
    assert part.log_append_time_ms == START_MS + 5_000
    assert harness.partition("t").log.offset_for_timestamp(START_MS, 1) == (START_MS + 5_000, 0, 0)


def test_min_insync_replicas_is_capped_by_the_replicas_and_applies_to_acks_all_only(harness: BrokerHarness) -> None:
    harness.create("t", min_insync_replicas="2")
    assert codes(harness.produce(("t", {0: batch(b"a")}))) == {("t", 0): 0}
    partitions = harness.broker.partitions
    partition, image = harness.partition("t"), harness.broker.metadata.image.topics_by_name["t"].partitions[0]
    image = image._replace(replicas=(1, 2, 3), isr=(1,))
    partition.follow(partitions._replication(partition.log, image, 2), image)
    assert codes(harness.produce(("t", {0: batch(b"a")}))) == {("t", 0): ErrorCode.NOT_ENOUGH_REPLICAS}
    assert codes(harness.produce(("t", {0: batch(b"a")}), acks=1)) == {("t", 0): 0}
    image = image._replace(isr=(1, 2))
    partition.follow(partitions._replication(partition.log, image, 2), image)
    assert not harness.produce(("t", {0: batch(b"a")})).done, "the batch is appended and waits for the follower"


def test_response_waits_for_the_flush_of_every_partition(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        harness.create("synced", 2, flush_messages="1")
        harness.create("plain")
        harness.threads.held = True
        data = {0: batch(b"a"), 1: batch(b"b")}
        answer = harness.produce(("synced", data), ("plain", {0: batch(b"c"), 1: batch(b"d")}))
        assert isinstance(answer, Completion)
        assert harness.partition("synced").high_watermark == 0
        work, harness.threads.work = harness.threads.work[1:], harness.threads.work[:1]
        harness.threads.finish()
        assert not answer.done, "one partition is not synced yet"
        harness.threads.work = work
        harness.threads.finish()
        assert codes(answer.result()) == {
            ("synced", 0): 0,
            ("synced", 1): 0,
            ("plain", 0): 0,
            ("plain", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert harness.partition("synced").log.flushed_offset == 1


def test_one_flush_commits_all_earlier_appends_and_the_next_flush_the_rest(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        harness.create("t", flush_messages="1")
        harness.threads.held = True
        answers = [harness.produce(("t", {0: batch(b"a")})) for _ in range(3)]
        assert len(harness.threads.work) == 1
        harness.threads.finish()
        assert [answer.done for answer in answers] == [True, True, True]
        late = harness.produce(("t", {0: batch(b"a")}))
        assert not late.done
        harness.delete("t")
        assert codes(late.result()) == {("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_append_during_a_flush_is_covered_by_the_next_flush(harness: BrokerHarness) -> None:
    harness.create("t", flush_messages="1")
    harness.threads.held = True
    first = harness.produce(("t", {0: batch(b"a")}))
    ((work, completion),), harness.threads.work = harness.threads.work, []
    work()
    late = harness.produce(("t", {0: batch(b"b")}))
    completion.complete(None)
    assert (first.done, late.done) == (True, False)
    assert harness.partition("t").high_watermark == 1
    harness.threads.finish()
    assert late.done


def test_appends_do_not_wait_for_the_sync_of_a_rolled_segment(harness: BrokerHarness) -> None:
    harness.create("t")
    harness.append("t", b"a")
    partition = harness.partition("t")
    partition.log.roll()
    harness.threads.held = True
    partition.flush_if_due(harness.loop.wall_ms())
    assert harness.threads.work
    assert codes(harness.produce(("t", {0: batch(b"b")}))) == {("t", 0): 0}
    assert partition.high_watermark == 2
    harness.threads.finish()
    assert partition.log.flushed_offset == 2


def test_failed_flush_fails_waiting_requests_and_takes_the_directory_offline(harness: BrokerHarness) -> None:
    harness.create("t", flush_messages="1")
    harness.threads.held = True
    waiting = harness.produce(("t", {0: batch(b"a")}))

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    harness.partition("t").log.files.fsync = broken  # type: ignore[method-assign]
    harness.threads.finish()
    assert codes(waiting.result()) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
    assert parts(waiting.result())["t", 0].base_offset == -1
    assert codes(harness.produce(("t", {0: batch(b"a")}))) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}


def test_version_3_response_has_only_its_fields(harness: BrokerHarness) -> None:
    harness.create("t")
    response = harness.start(produce_request(("t", {0: batch(b"a")})), 3)
    assert codes(response) == {("t", 0): 0}
