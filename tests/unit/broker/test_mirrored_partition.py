"""A leader whose records come from another cluster: same bytes, cuts, and what a promotion removes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.mirrors.mirror import Mirror
from ottla.broker.mirrors.status import partition_row
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, finish
from ottla.common.work import Worker
from ottla.config import resolve_mirror
from ottla.log import Log
from ottla.log.config import LogConfig
from ottla.log.transaction_marker import TransactionEnd
from ottla.metadata.image import TOPIC, MetadataImage, TopicImage
from ottla.metadata.mirrors import MIRROR_SETTING, MIRRORING, STATE_SETTING, STOPPED, STOPPING, UNHANDLED
from ottla.partitions.partition import Partition, Replication
from ottla.partitions.promotion import forget_producers
from ottla.partitions.replication.followed import EARLIEST
from ottla.partitions.replication.mirrored import UNKNOWN, MirroredPartition, MirrorPorts
from ottla.partitions.topic_settings import TopicSettings, refusal_of
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.records import BatchProducer, Codec, ProduceRules
from ottla.records.batch import TRANSACTIONAL
from ottla.replication.follower import Action, Step
from ottla.replication.leader import Leader
from ottla.replication.replica import ReplicaFetch
from tests.storage.helpers import START, ManualClock, append, batch, open_at, records, values
from tests.unit.broker.harness import Threads
from tests.unit.replication.support import cluster, partition

GENERATION = 1 << 20
ASKED_MS = 1
SOURCE_EPOCH = 4
MIRRORED = {"ottla.mirror": "dr", "ottla.mirror.state": "MIRRORING"}


class Copy:
    """A source log, and a mirrored partition with the replicas 1 (this one), 2 and 3."""

    def __init__(self, path: Path, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        self.path = path
        self.clock, self.threads = ManualClock(), Threads()
        self.source = open_at(str(path / "source"), clock=self.clock)
        self.log = open_at(str(path / "target"), clock=self.clock)
        image = partition(isr=replicas, replicas=replicas)._replace(leader_epoch=GENERATION)
        self.leader = Leader(cluster(), image, min_insync_replicas=1, log_end_offset=0, now_ms=START)
        replication = Replication(self.leader, lambda _, __: None) if len(replicas) > 1 else None
        self.partition = Partition(
            self.log,
            leader_epoch=GENERATION,
            settings=TopicSettings(LogConfig(), ProduceRules("t"), 1, None),
            flush_in_thread=self.threads.run,
            replication=replication,
        )
        self.partition.refusal = refusal_of("t", MIRRORED)
        self.errors = 0
        ports = MirrorPorts(self.threads.run, self._failed)
        self.mirrored = MirroredPartition(self.partition, 9, SOURCE_EPOCH, ports)

    def _failed(self) -> None:
        self.errors += 1

    def fetch(self) -> None:
        """Take over what the source has."""
        found = self.source.read(self.log.log_end_offset, 1 << 20, self.source.log_end_offset)
        self.mirrored.append(found, START)
        self.mirrored.take_offsets(self.source.log_end_offset, self.source.log_start_offset, len(found), ASKED_MS)

    def fetched_by(self, node_id: int) -> None:
        end = self.log.log_end_offset
        self.partition.on_follower_fetch(ReplicaFetch(node_id, end, 0, 1, GENERATION))

    def open(self) -> None:
        """The topic is open to clients."""
        self.partition.refusal = None


def transactional(producer_id: int, sequence: int, *found: bytes) -> bytearray:
    producer = BatchProducer(producer_id, 0, sequence)
    return batch(*found, producer=producer, attributes=TRANSACTIONAL)


def bytes_of(log: Log) -> bytes:
    return b"".join(Path(segment.file.path()).read_bytes() for segment in log.segments)


def test_copy_has_the_bytes_epochs_and_transactions_of_the_source(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    append(copy.source, batch(b"a", b"b", codec=Codec.ZSTD), epoch=2)
    append(copy.source, transactional(7, 0, b"c"), epoch=SOURCE_EPOCH)
    end, _ = TransactionEnd(7, 0, 3, commit=False).encode(START)
    append(copy.source, end, epoch=SOURCE_EPOCH, origin="coordinator")
    copy.fetch()
    assert bytes_of(copy.log) == bytes_of(copy.source)
    assert copy.log.epochs.entries == copy.source.epochs.entries
    assert copy.log.aborted_transactions(0, 4) == copy.source.aborted_transactions(0, 4)
    assert (copy.mirrored.lag, copy.partition.high_watermark) == (0, 0)
    copy.fetched_by(2)
    copy.fetched_by(3)
    assert copy.partition.high_watermark == 4


def test_batch_of_a_later_epoch_than_the_request_is_not_appended(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    append(copy.source, batch(b"a"), epoch=SOURCE_EPOCH)
    append(copy.source, batch(b"b"), epoch=SOURCE_EPOCH + 1)
    copy.fetch()
    assert (copy.log.log_end_offset, copy.mirrored.lag) == (1, 1)
    assert copy.mirrored.follow(8, SOURCE_EPOCH + 1)
    assert not copy.mirrored.follow(9, SOURCE_EPOCH)
    copy.fetch()
    assert values(copy.log) == [b"a", b"b"]


def test_end_of_the_source_is_unknown_until_its_new_leader_has_named_it(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    append(copy.source, batch(b"a"), epoch=SOURCE_EPOCH)
    copy.fetch()
    assert (copy.mirrored.needs_end, copy.mirrored.lag, copy.mirrored.progress.as_of_ms >= 0) == (False, 0, True)
    copy.mirrored.follow(8, SOURCE_EPOCH + 1)
    # It has just been elected, and its high watermark is below records that the previous leader has acknowledged.
    copy.mirrored.take_offsets(0, 0, 0, ASKED_MS)
    assert (copy.mirrored.needs_end, copy.mirrored.progress.as_of_ms) == (True, UNKNOWN)
    copy.mirrored.take_end(3, ASKED_MS)
    assert (copy.mirrored.needs_end, copy.mirrored.lag, copy.mirrored.progress.as_of_ms >= 0) == (False, 2, True)
    copy.mirrored.take_offsets(4, 0, 0, ASKED_MS)
    assert copy.mirrored.lag == 3


def test_clients_cannot_write_until_the_topic_is_open(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    with pytest.raises(KafkaError, match="read-only: mirror dr") as raised:
        copy.partition.append_produced(memoryview(batch(b"x")), -1, START)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    copy.open()
    copy.partition.append_produced(memoryview(batch(b"x")), -1, START)
    assert copy.log.epochs.latest == GENERATION


def test_truncation_counts_records_and_the_high_watermark_waits_for_followers_again(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    for value in (b"a", b"b", b"c"):
        append(copy.source, batch(value), epoch=SOURCE_EPOCH)
    copy.fetch()
    copy.fetched_by(2)
    copy.fetched_by(3)
    assert copy.partition.high_watermark == 3
    assert copy.mirrored.truncate(1)
    assert (copy.mirrored.progress.truncated, copy.partition.high_watermark) == (2, 1)
    copy.source.truncate_to(1)
    for value in (b"d", b"e"):
        append(copy.source, batch(value), epoch=SOURCE_EPOCH)
    copy.fetch()
    # The followers had three records, but not these.
    assert copy.partition.high_watermark == 1
    copy.fetched_by(2)
    copy.fetched_by(3)
    assert (copy.partition.high_watermark, values(copy.log)) == (3, [b"a", b"d", b"e"])


def test_copy_of_a_partition_that_is_led_elsewhere_changes_no_record(tmp_path: Path) -> None:
    """Its log follows the leader in this cluster from then on."""
    copy = Copy(tmp_path)
    append(copy.source, batch(b"a"), epoch=SOURCE_EPOCH)
    copy.fetch()
    copy.log.high_watermark = 1
    copy.partition.close()
    changes = (
        lambda: copy.mirrored.truncate(0),
        lambda: copy.mirrored.restart(5),
        lambda: copy.mirrored.take_offsets(5, 1, 0, ASKED_MS),
        lambda: copy.mirrored.append(batch(b"b"), START),
    )
    for change in changes:
        with pytest.raises(KafkaError, match="is not served here"):
            change()
    assert (values(copy.log), copy.log.log_start_offset) == ([b"a"], 0)
    assert (copy.mirrored.progress.truncated, copy.mirrored.progress.skipped) == (0, 0)
    assert copy.mirrored.progress.source_end == 1


def test_request_that_waits_for_a_dropped_record_fails(tmp_path: Path) -> None:
    """Otherwise it would succeed with the source's record at this offset."""
    copy = Copy(tmp_path)
    copy.open()
    info = copy.partition.append_produced(memoryview(batch(b"ours")), -1, START)
    waiting = copy.partition.when_durable(info.last_offset + 1)
    assert waiting is not None
    copy.mirrored.truncate(0)
    with pytest.raises(KafkaError) as raised:
        waiting.result()
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_truncation_is_synced_before_the_next_fetch(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    append(copy.source, batch(b"a"), epoch=SOURCE_EPOCH)
    copy.fetch()
    copy.threads.held = True
    copy.mirrored.truncate(0)
    synced = copy.mirrored.truncated()
    assert not copy.mirrored.is_truncation_synced
    copy.threads.finish()
    assert synced.done
    assert copy.mirrored.is_truncation_synced


def test_records_that_the_source_deleted_before_the_copy_are_skipped_and_counted(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    assert copy.mirrored.first_lookup == EARLIEST
    step = copy.mirrored.on_lookup(EARLIEST, 5)
    assert (step.action, step.offset) == (Action.RESTART, 5)
    copy.mirrored.restart(5)
    assert (copy.log.log_start_offset, copy.partition.high_watermark, copy.mirrored.progress.skipped) == (5, 5, 5)
    # Never truncate to the high watermark of a source that does not know the epoch of the fetch.
    assert copy.mirrored.on_lookup(EARLIEST, 0).action is Action.BACK_OFF


def test_records_of_a_promotion_that_the_source_does_not_know_are_dropped(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    append(copy.source, batch(b"a"), epoch=SOURCE_EPOCH)
    copy.fetch()
    for value, generation in ((b"b", 1), (b"c", 1), (b"d", 2)):
        append(copy.log, batch(value), epoch=generation * GENERATION)
    # The source cannot compare an epoch that it has not had, and answers OFFSET_OUT_OF_RANGE.
    for end in (3, 1):
        step = copy.mirrored.on_lookup(EARLIEST, 0)
        assert step == Step(Action.TRUNCATE, end)
        assert copy.mirrored.truncate(step.offset)
    assert (values(copy.log), copy.mirrored.progress.truncated) == ([b"a"], 3)
    # Epochs of one generation are the source's: it may have been restored with earlier ones.
    copy.mirrored.leader_epoch = SOURCE_EPOCH - 1
    assert copy.mirrored.on_lookup(EARLIEST, 0).action is Action.BACK_OFF
    assert copy.mirrored.on_lookup(EARLIEST, 2) == Step(Action.RESTART, 2)


def test_log_start_follows_the_source_up_to_the_high_watermark(tmp_path: Path) -> None:
    copy = Copy(tmp_path, replicas=(1,))
    for value in (b"a", b"b"):
        append(copy.source, batch(value), epoch=SOURCE_EPOCH)
    copy.source.high_watermark = 2
    copy.source.delete_records_before(1)
    found = copy.source.read(1, 1 << 20, 2)
    copy.mirrored.restart(1)
    copy.mirrored.append(found, START)
    copy.mirrored.take_offsets(2, 2, len(found), ASKED_MS)
    assert (copy.log.log_start_offset, records(copy.log)) == (2, [])


def test_error_of_the_source_is_reported_until_the_next_answer(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.mirrored.note_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (copy.errors, copy.mirrored.progress.problem) == (1, "The source answers NOT_LEADER_OR_FOLLOWER")
    copy.mirrored.note_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert copy.mirrored.progress.problem.endswith("; give the mirror's user READ on the topic")
    copy.mirrored.take_offsets(0, 0, 0, ASKED_MS)
    assert copy.mirrored.progress.problem, "the leader has not named its end yet"
    copy.mirrored.take_end(0, ASKED_MS)
    assert copy.mirrored.progress.problem == ""
    copy.mirrored.note_failure("the disk is full")
    row = partition_row(copy.partition, MIRRORING, copy.mirrored, 0)
    assert (row["problem"], row["copy_end"]) == ("the disk is full", 0)
    copy.mirrored.take_offsets(0, 0, 0, ASKED_MS)
    assert copy.mirrored.progress.problem == ""


class MirrorNode:
    """A node with one led partition of a mirrored topic; its source answers until `is_source_lost`."""

    def __init__(self, copy: Copy, loop: asyncio.AbstractEventLoop) -> None:
        self.node_id = 1
        self.copy, self.clock, self.logs = copy, copy.clock, None
        self.image = MetadataImage()
        self.is_active_controller = False
        self.leader: tuple[int, None] | None = None
        self.metadata = self.partitions = self.coordinators = self
        numbers = SimpleNamespace(int=lambda _: 1, static={})
        self.settings = SimpleNamespace(static=numbers, current=numbers)
        self.schedulers = SimpleNamespace(
            flush_threads=copy.threads, call_later=loop.call_later, worker=Worker(copy.clock, loop.call_soon)
        )
        self.is_source_lost = False
        self.errors: list[Exception] = []
        """Raised by the next comparisons."""
        self.set_state(MIRRORING)
        settings = {"bootstrap.servers": "127.0.0.1:1", "topics": "t"}
        self.mirror = Mirror(
            cast("Any", self), "dr", {key: each.value for key, each in resolve_mirror(settings).items()}
        )
        self.mirror.source.metadata = self.source_metadata  # type: ignore[method-assign]

    def changed(self) -> Mirror:
        """Return a mirror with other settings in place of the present one."""
        former, settings = self.mirror, {"bootstrap.servers": "127.0.0.1:2", "topics": "t"}
        typed = {key: each.value for key, each in resolve_mirror(settings).items()}
        former.close()
        self.mirror = Mirror(cast("Any", self), "dr", typed)
        self.mirror.replaces(former)
        self.mirror.source.metadata = self.source_metadata  # type: ignore[method-assign]
        return self.mirror

    def get(self, _topic: str, _index: int) -> Partition:
        return self.copy.partition

    def set_state(self, state: str) -> MetadataImage:
        """Change the state of the topic; returns the previous image."""
        old, log = self.image, self.copy.log
        image = partition()._replace(leader_epoch=GENERATION)
        topic = TopicImage(log.topic_partition.topic, log.topic_id, {log.topic_partition.partition: image})
        settings = {MIRROR_SETTING: "dr", STATE_SETTING: state}
        self.image = MetadataImage(topics_by_name={topic.name: topic}, configs={(TOPIC, topic.name): settings})
        return old

    async def source_metadata(self, _topics: object) -> MetadataResponse:
        if self.is_source_lost:
            await asyncio.Event().wait()
        if self.errors:
            raise self.errors.pop()
        log = self.copy.log
        index = log.topic_partition.partition
        row = MetadataResponsePartition(partition_index=index, leader_id=9, leader_epoch=SOURCE_EPOCH)
        topic = MetadataResponseTopic(name=log.topic_partition.topic, topic_id=log.topic_id, partitions=[row])
        return MetadataResponse(topics=[topic])

    @property
    def copies(self) -> bool:
        """Whether the mirror copies the partition."""
        [row] = cast("Any", self.mirror.status()["partitions"])
        return "truncated" in row

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0)


def test_mirror_goes_on_after_an_unhandled_error_and_reports_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        node = MirrorNode(Copy(tmp_path), asyncio.get_running_loop())
        node.errors = [ValueError("a defect"), ValueError("a defect")]
        await node.until(lambda: "a defect" in str(node.mirror.status()["problem"]))
        assert str(node.mirror.status()["problem"]).startswith(UNHANDLED)
        await node.until(lambda: node.copies)
        await node.until(lambda: node.mirror.status()["problem"] == "")
        node.mirror.close()

    asyncio.run(scenario())
    assert len([each for each in caplog.records if each.exc_info]) == 1, "one traceback for equal errors"


def test_mirror_that_is_paused_or_changed_still_reports_how_far_its_copy_was(tmp_path: Path) -> None:
    """An unplanned promotion needs it, when other settings were tried after the loss of the source."""

    async def scenario() -> None:
        node = MirrorNode(Copy(tmp_path), asyncio.get_running_loop())
        await node.until(lambda: node.copies)
        [copy] = node.mirror._copies.values()
        copy.take_end(7, node.clock.monotonic_ms())
        copy.progress.truncated = 3
        changed = node.changed()
        node.is_source_lost = True
        [row] = cast("Any", changed.status()["partitions"])
        assert (row["lag"], row["age_ms"], row["truncated"]) == (7, 0, 3)
        node.is_source_lost = False
        await node.until(lambda: bool(changed._copies))
        [row] = cast("Any", changed.status()["partitions"])
        assert (row["lag"], row["age_ms"], row["truncated"]) == (7, UNKNOWN, 3), "the source has to answer again"
        node.copy.partition.close()
        changed._drop_ended()
        assert not changed._former, "another leader has other records"
        changed.close()

    asyncio.run(scenario())


def test_node_of_the_source_that_does_not_answer_is_the_problem_while_it_leads(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = MirrorNode(Copy(tmp_path), asyncio.get_running_loop())
        await node.until(lambda: node.copies)
        failed = node.mirror._context()
        assert failed.on_failure is not None
        failed.on_failure(8, "the leader of another partition, long ago")
        assert node.mirror.status()["problem"] == ""
        failed.on_failure(9, "no route to kafka-9:9092")
        assert "no route to kafka-9:9092; each broker" in str(node.mirror.status()["problem"])
        failed.on_answer(9)
        assert node.mirror.status()["problem"] == ""
        node.mirror.close()

    asyncio.run(scenario())


def test_partition_without_a_leader_is_reported_by_every_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = MirrorNode(Copy(tmp_path), asyncio.get_running_loop())
        assert node.mirror.status()["leaderless"] == []
        [topic] = node.image.topics_by_name.values()
        [(index, image)] = topic.partitions.items()
        lost = TopicImage(topic.name, topic.topic_id, {index: image._replace(leader=-1)})
        node.image = MetadataImage(topics_by_name={topic.name: lost}, configs=node.image.configs)
        assert node.mirror.status()["leaderless"] == [(topic.name, index)]
        assert node.mirror.status()["partitions"] == []
        node.mirror.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_closed", [True, False])
def test_copy_ends_at_once_though_the_source_does_not_answer(tmp_path: Path, is_closed: bool) -> None:
    async def scenario() -> None:
        node = MirrorNode(Copy(tmp_path), asyncio.get_running_loop())
        await node.until(lambda: node.copies)
        node.is_source_lost = True
        if is_closed:
            node.copy.partition.close()
        old = node.set_state(MIRRORING if is_closed else STOPPING)
        node.mirror.publish(old, node.image)
        assert not node.copies
        node.mirror.close()

    asyncio.run(scenario())


def test_markers_of_a_promotion_are_written_in_slices_until_the_topic_is_open(tmp_path: Path) -> None:
    copy = Copy(tmp_path, replicas=(1,))
    for producer_id in range(4):
        append(copy.source, batch(b"a", producer=BatchProducer(producer_id, 0, 0)), epoch=SOURCE_EPOCH)
    copy.fetch()

    async def scenario() -> None:
        node = MirrorNode(copy, asyncio.get_running_loop())
        await node.until(lambda: node.copies)
        work = forget_producers(copy.partition, lambda: node.mirror._is_stopping(copy.partition))
        node.set_state(STOPPING)
        next(work)
        next(work)
        assert set(copy.log.producers.entries) == {1, 2, 3}
        node.set_state(STOPPED)
        finish(work)
        assert set(copy.log.producers.entries) == {1, 2, 3}, "they may be producers of this cluster"
        node.mirror.publish(node.set_state(STOPPING), node.image)
        await node.until(lambda: not copy.log.producers.entries)
        assert copy.log.log_end_offset == 8, "one marker for each"
        node.mirror.close()

    asyncio.run(scenario())


def test_problems_of_topics_are_reported_until_they_are_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")]

    def forget_or_fail(*_: object) -> Slices[None]:
        yield
        if failures:
            raise failures[0]

    monkeypatch.setattr("ottla.broker.mirrors.mirror.forget_producers", forget_or_fail)

    async def scenario() -> None:
        node = MirrorNode(Copy(tmp_path, replicas=(1,)), asyncio.get_running_loop())
        node.mirror._problems.of_source = {"other": "found by this node, when it was the active controller"}
        node.mirror.publish(node.set_state(STOPPING), node.image)
        await node.until(lambda: "offline" in str(node.mirror.status()["topics"]))
        failures.clear()
        node.mirror.publish(node.set_state(STOPPING), node.image)
        await node.until(lambda: node.mirror.status()["topics"] == {})
        node.mirror.close()

    asyncio.run(scenario())


def test_markers_end_with_the_leadership(tmp_path: Path) -> None:
    copy = Copy(tmp_path, replicas=(1,))
    append(copy.source, batch(b"a", producer=BatchProducer(5, 0, 0)), epoch=SOURCE_EPOCH)
    copy.fetch()

    async def scenario() -> None:
        node = MirrorNode(copy, asyncio.get_running_loop())
        node.set_state(STOPPING)
        copy.partition.close()
        assert not node.mirror._is_stopping(copy.partition)
        node.mirror.close()

    asyncio.run(scenario())


def test_producer_that_is_removed_already_gets_no_other_marker(tmp_path: Path) -> None:
    copy = Copy(tmp_path, replicas=(1,))
    for producer_id in range(2):
        append(copy.source, batch(b"a", producer=BatchProducer(producer_id, 0, 0)), epoch=SOURCE_EPOCH)
    copy.fetch()
    work = forget_producers(copy.partition, lambda: True)
    next(work)
    forget(copy)
    finish(work)
    assert copy.log.log_end_offset == 4


def forget(copy: Copy) -> None:
    finish(forget_producers(copy.partition, lambda: True))


def promote(copy: Copy) -> None:
    forget(copy)
    copy.open()


def test_promotion_aborts_open_transactions_and_forgets_every_producer(tmp_path: Path) -> None:
    copy = Copy(tmp_path, replicas=(1,))
    append(copy.source, batch(b"a", producer=BatchProducer(5, 0, 0)), epoch=SOURCE_EPOCH)
    append(copy.source, transactional(7, 0, b"b"), epoch=SOURCE_EPOCH)
    copy.fetch()
    assert copy.partition.last_stable_offset == 1
    promote(copy)
    assert not copy.log.producers.entries
    assert copy.partition.last_stable_offset == copy.log.log_end_offset == 4
    [aborted] = copy.log.aborted_transactions(0, 4)
    assert (aborted.producer_id, aborted.first_offset) == (7, 1)


def test_producer_with_an_id_of_the_source_is_not_taken_for_its_namesake(tmp_path: Path) -> None:
    """Both clusters allocate producer ids from 0."""
    copy = Copy(tmp_path, replicas=(1,))
    append(copy.source, batch(b"theirs", producer=BatchProducer(5, 0, 0)), epoch=SOURCE_EPOCH)
    copy.fetch()
    promote(copy)
    info = copy.partition.append_produced(memoryview(batch(b"ours", producer=BatchProducer(5, 0, 0))), -1, START)
    assert not info.duplicate
    assert values(copy.log)[-1] == b"ours"


def test_recovery_and_replicas_forget_the_same_producers(tmp_path: Path) -> None:
    copy = Copy(tmp_path, replicas=(1,))
    append(copy.source, batch(b"theirs", producer=BatchProducer(5, 0, 0)), epoch=SOURCE_EPOCH)
    copy.fetch()
    promote(copy)
    copy.partition.append_produced(memoryview(batch(b"ours", producer=BatchProducer(5, 0, 0))), -1, START)
    copy.log.abandon()
    again = open_at(str(tmp_path / "target"), clock=copy.clock)
    [entry] = again.producers.entries.values()
    assert [(each.first_offset, each.first_sequence) for each in entry.batches] == [(2, 0)]


def test_promotion_of_a_promoted_log_writes_nothing(tmp_path: Path) -> None:
    copy = Copy(tmp_path, replicas=(1,))
    append(copy.source, batch(b"a", producer=BatchProducer(5, 0, 0)), epoch=SOURCE_EPOCH)
    copy.fetch()
    forget(copy)
    end = copy.log.log_end_offset
    forget(copy)
    assert copy.log.log_end_offset == end
    assert isinstance(copy.mirrored.truncated(), Completion)
