"""A leader whose records come from another cluster: same bytes, cuts, and what a promotion removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.mirrors.mirror import forget_producers
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import Log
from ottla.log.transaction_marker import TransactionEnd
from ottla.partitions.partition import Partition, Replication
from ottla.partitions.replication.followed import EARLIEST
from ottla.partitions.replication.mirrored import MirroredPartition, MirrorPorts
from ottla.partitions.topic_settings import refusal_of
from ottla.records import BatchProducer, Codec, ProduceRules
from ottla.records.batch import TRANSACTIONAL
from ottla.replication.follower import Action
from ottla.replication.leader import Leader
from ottla.replication.replica import ReplicaFetch
from tests.storage.helpers import START, ManualClock, append, batch, open_at, records, values
from tests.unit.broker.harness import Threads
from tests.unit.replication.support import cluster, partition

GENERATION = 1 << 20
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
            rules=ProduceRules("t"),
            min_insync_replicas=1,
            flush_in_thread=self.threads.run,
            replication=replication,
        )
        self.partition.refusal = refusal_of("t", MIRRORED)
        self.errors = 0
        ports = MirrorPorts(self.threads.run, self.clock.monotonic_ms, self._failed)
        self.mirrored = MirroredPartition(self.partition, 9, SOURCE_EPOCH, ports)

    def _failed(self) -> None:
        self.errors += 1

    def fetch(self) -> None:
        """Take over what the source has."""
        found = self.source.read(self.log.log_end_offset, 1 << 20, self.source.log_end_offset)
        self.mirrored.append(found, START)
        self.mirrored.take_offsets(self.source.log_end_offset, self.source.log_start_offset, len(found))

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


def test_log_start_follows_the_source_up_to_the_high_watermark(tmp_path: Path) -> None:
    copy = Copy(tmp_path, replicas=(1,))
    for value in (b"a", b"b"):
        append(copy.source, batch(value), epoch=SOURCE_EPOCH)
    copy.source.high_watermark = 2
    copy.source.delete_records_before(1)
    found = copy.source.read(1, 1 << 20, 2)
    copy.mirrored.restart(1)
    copy.mirrored.append(found, START)
    copy.mirrored.take_offsets(2, 2, len(found))
    assert (copy.log.log_start_offset, records(copy.log)) == (2, [])


def test_error_of_the_source_is_reported_until_the_next_answer(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.mirrored.note_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (copy.errors, copy.mirrored.progress.error) == (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    copy.mirrored.take_offsets(0, 0, 0)
    assert copy.mirrored.progress.error is None


def promote(copy: Copy) -> None:
    forget_producers(copy.partition)
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
    forget_producers(copy.partition)
    end = copy.log.log_end_offset
    forget_producers(copy.partition)
    assert copy.log.log_end_offset == end
    assert isinstance(copy.mirrored.truncated(), Completion)
