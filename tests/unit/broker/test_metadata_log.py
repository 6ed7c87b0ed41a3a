"""The metadata log: acknowledged operations are synced, and synced operations survive every kind of stop."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.cluster.metadata import batches as metadata_batches
from ottla.cluster.metadata import snapshots
from ottla.cluster.metadata.batches import MAX_BATCH_BYTES
from ottla.cluster.metadata.log import MetadataShell
from ottla.cluster.metadata.snapshotting import MetadataLogSettings
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.shortage import ShortageError
from ottla.controller import Outcome
from ottla.coordination.transactions.producer_ids import ProducerIds
from ottla.log.files import Files
from ottla.metadata.features import default_levels
from ottla.metadata.image import BROKER, TOPIC, MetadataImage
from ottla.protocol import metadata_records as m
from ottla.records import Buffer, iter_batches
from tests.simulation.world.disk import SimulatedDisk

from .metadata_support import Thread, create, open_shell, register

LOG = "__cluster_metadata-0"


def started(directory: Path, **options: object) -> MetadataShell:
    shell = open_shell(str(directory), **options)  # type: ignore[arg-type]
    register(shell)
    return shell


def content(image: MetadataImage) -> MetadataImage:
    """The image without the fields that every start changes."""
    return replace(image, offset=0, epoch=0, brokers={})


def test_a_fresh_directory_becomes_a_cluster_of_one(tmp_path: Path) -> None:
    shell = started(tmp_path)
    quorum = shell.describe_quorum()
    assert quorum is not None
    assert (quorum.leader_id, quorum.leader_epoch) == (1, 1)
    assert quorum.high_watermark == quorum.voters[0].log_end_offset == 9, "leader change, features, registration"
    assert shell.image.features == default_levels()
    assert shell.image.config(BROKER, "") == {"min.insync.replicas": "1"}
    assert shell.image.brokers[1].is_active
    shell.close()
    assert (tmp_path / "bootstrap.checkpoint").exists()
    assert {path.name for path in (tmp_path / LOG).iterdir()} >= {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
    }


def test_only_voter_is_the_active_controller_until_its_disk_fails(tmp_path: Path) -> None:
    files = SimulatedDisk(7)
    shell = open_shell("/d", files=files)
    seen: list[tuple[int | None, bool]] = []

    def changed() -> None:
        seen.append((shell.leader[0] if shell.leader is not None else None, shell.is_active_controller))

    shell.on_leader_change(changed)
    register(shell)
    files.fail_syncs = errno.EIO
    create(shell, "t")
    assert seen == [(1, True), (1, False)]


def test_each_start_is_a_new_epoch_with_the_same_metadata(tmp_path: Path) -> None:
    shell = started(tmp_path)
    assert create(shell, "a", 3).result().topics[0].error_code == 0
    before = shell.image
    shell.close()
    again = started(tmp_path)
    assert again.raft.epoch == 2
    assert content(again.image) == content(before)
    again.close()


def test_responses_wait_for_the_flush_and_operations_share_it(tmp_path: Path) -> None:
    thread = Thread()
    shell = started(tmp_path, thread=thread)
    seen: list[set[str]] = []
    shell.subscribe(lambda _, new: seen.append(set(new.topics_by_name)))
    first = create(shell, "a")
    assert not first.done
    assert "a" not in shell.image.topics_by_name
    others = [create(shell, name) for name in "bcd"]
    assert len(thread.work) == 1, "one fsync at a time"
    refused = create(shell, "a")
    thread.finish_one()
    assert first.done
    assert not others[0].done
    assert not refused.done, "responses keep their order"
    assert len(thread.work) == 1
    thread.finish_one()
    assert all(completion.result().topics[0].error_code == 0 for completion in others)
    assert refused.result().topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert not thread.work
    assert seen == [set(), {"a"}, {"a", "b", "c", "d"}]
    shell.close()


def test_operation_submitted_by_a_listener_is_executed(tmp_path: Path) -> None:
    shell = started(tmp_path)
    asked = []

    def listener(_: MetadataImage | None, new: MetadataImage) -> None:
        if "a" in new.topics_by_name and not asked:
            asked.append(create(shell, "b"))

    shell.subscribe(listener)
    assert create(shell, "a").done
    assert asked[0].result().topics[0].error_code == 0
    assert create(shell, "c").done
    shell.close()


def test_failed_disk_fails_all_waiting_operations(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    thread = Thread()
    failures: list[KafkaError] = []
    shell = open_shell("/d", files=disk, thread=thread, on_failure=failures.append)
    register(shell)
    first, second = create(shell, "a"), create(shell, "b")
    disk.fail_syncs = errno.EIO
    thread.finish_one()
    for completion in (first, second, create(shell, "c")):
        with pytest.raises(KafkaError) as error:
            completion.result()
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(failures) == 1
    assert "a" not in shell.image.topics_by_name


class Scarce(Files):
    """Has no descriptors while it is scarce; then only for the first `left` that are asked for."""

    scarce = False
    left = 0

    def _take(self) -> None:
        if self.scarce:
            if not self.left:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self.left -= 1

    def dup(self, fd: int) -> int:
        self._take()
        return super().dup(fd)

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        self._take()
        return super().open(path, create=create, truncate=truncate, read_only=read_only)


def test_flush_without_a_descriptor_is_retried_by_the_next_tick(tmp_path: Path) -> None:
    files, thread = Scarce(), Thread()
    failures: list[KafkaError] = []
    shell = open_shell(str(tmp_path), files=files, thread=thread, on_failure=failures.append)
    register(shell)
    asked = create(shell, "a")
    files.scarce = True
    thread.finish_one()
    assert not asked.done
    shell.tick()
    thread.finish_one()
    assert not asked.done
    files.scarce = False
    shell.tick()
    thread.finish_one()
    assert asked.result()
    assert not failures
    shell.close()
    assert "a" in started(tmp_path).image.topics_by_name


@pytest.mark.parametrize("left", range(8))
def test_metadata_transaction_that_a_shortage_cuts_short_is_aborted(
    tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every batch rolls the log, which needs descriptors. The records of the topic exceed one batch.
    monkeypatch.setattr(metadata_batches, "MAX_BATCH_BYTES", 40)
    files = Scarce()
    failures: list[KafkaError] = []
    settings = MetadataLogSettings(segment_bytes=350)
    shell = open_shell(str(tmp_path), files=files, settings=settings, on_failure=failures.append)
    register(shell)
    files.scarce, files.left = True, left
    refused = create(shell, "refused", partitions=5)
    files.scarce = False
    with pytest.raises(ShortageError):
        refused.result()
    assert create(shell, "created").result()
    assert not failures
    shell.close()
    assert set(started(tmp_path).image.topics_by_name) == {"created"}


def test_listener_that_raises_does_not_stop_the_metadata_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    thread = Thread()
    shell = started(tmp_path, thread=thread)
    seen: list[set[str]] = []

    def listener(_: MetadataImage | None, new: MetadataImage) -> None:
        if "a" in new.topics_by_name and "b" not in new.topics_by_name:
            raise ZeroDivisionError("a listener's mistake")

    def callback(_: object) -> None:
        raise ZeroDivisionError("a client's mistake")

    shell.subscribe(listener)
    shell.subscribe(lambda _, new: seen.append(set(new.topics_by_name)))
    first, second = create(shell, "a"), create(shell, "b")
    first.on_done(callback)
    for _ in range(2):
        thread.finish_one()
    assert first.done
    assert second.done
    assert seen == [set(), {"a"}, {"a", "b"}]
    assert "a listener's mistake" in caplog.text
    assert "a client's mistake" in caplog.text
    shell.close()


@pytest.mark.parametrize("seed", range(40))
def test_acknowledged_operations_survive_a_power_cut(seed: int) -> None:
    disk = SimulatedDisk(seed)
    answered: set[str] = set()
    asked = 0
    for life in range(4):
        thread = Thread()
        shell = open_shell("/d", files=disk, thread=thread, seed=seed)
        register(shell, incarnation=life, clean=False)
        shell.image.validate()
        assert answered <= set(shell.image.topics_by_name), f"seed {seed}, life {life}"
        assert shell.raft.epoch > life
        for _ in range(disk.random.randint(0, 8)):
            name = f"t{asked}"
            asked += 1
            create(shell, name, 2).on_done(lambda done, n=name: answered.add(n) if done.result() else None)
            if disk.random.random() < 0.4 and thread.work:
                thread.finish_one()
            if disk.random.random() < 0.2:
                shell.begin_snapshot()
            shell.tick()
        disk = disk.crash()
    shell = open_shell("/d", files=disk, seed=seed)
    assert answered <= set(shell.image.topics_by_name)


def test_torn_last_batch_is_truncated_and_overwritten(tmp_path: Path) -> None:
    shell = started(tmp_path)
    create(shell, "a")
    create(shell, "b", 5)
    shell.close()
    path = tmp_path / LOG / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    (tmp_path / LOG / "synced-offset").unlink()  # as if that batch had never been synced
    again = started(tmp_path)
    assert set(again.image.topics_by_name) == {"a"}
    assert create(again, "b", 2).result().topics[0].error_code == 0
    again.close()
    third = started(tmp_path)
    assert len(third.image.topics_by_name["b"].partitions) == 2
    third.close()


def test_an_operation_too_large_for_a_batch_is_one_transaction(tmp_path: Path) -> None:
    shell = started(tmp_path)
    create(shell, "t")
    value = "v" * 1000
    records = [
        m.ConfigRecord(resource_type=TOPIC, resource_name="t", name=f"k{i}", value=value)
        for i in range(MAX_BATCH_BYTES // 1000 + 10)
    ]
    assert shell.submit(lambda _: Outcome(list(records), None)).done
    size = len(shell.image.config(TOPIC, "t"))
    assert size == len(records)
    shell.close()
    path = tmp_path / LOG / "00000000000000000000.log"
    data = path.read_bytes()
    positions = [position for position, _ in iter_batches(data)]
    again = started(tmp_path)
    assert len(again.image.config(TOPIC, "t")) == size
    again.close()
    path.write_bytes(data[: positions[-1]])  # the end of the transaction is missing
    (tmp_path / LOG / "synced-offset").unlink()
    third = started(tmp_path)
    assert not third.image.config(TOPIC, "t")
    assert create(third, "u").result().topics[0].error_code == 0
    third.close()
    fourth = started(tmp_path)
    assert set(fourth.image.topics_by_name) == {"t", "u"}
    fourth.close()


def snapshot(shell: MetadataShell) -> None:
    shell.begin_snapshot()
    for _ in range(50):
        shell.tick()


def test_snapshot_and_later_records_give_the_same_image(tmp_path: Path) -> None:
    shell = started(tmp_path)
    for i in range(5):
        create(shell, f"a{i}", 700)
    snapshot(shell)
    create(shell, "later")
    before = shell.image
    shell.close()
    [snapshot_id] = snapshots.list_ids(shell.log.files, str(tmp_path / LOG))
    assert snapshot_id.epoch == 1
    again = started(tmp_path)
    assert content(again.image) == content(before)
    again.close()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_corrupt_snapshot_is_skipped(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    shell = started(tmp_path)
    create(shell, "a")
    snapshot(shell)
    before = shell.image
    shell.close()
    [path] = (tmp_path / LOG).glob("*.checkpoint")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes({"cut": bytes(data[: len(data) // 2]), "flipped": bytes(data), "empty": b""}[damage])
    again = started(tmp_path)
    assert content(again.image) == content(before)
    assert "Skipping the snapshot" in caplog.text
    again.close()


def test_old_snapshots_and_the_log_before_them_are_deleted(tmp_path: Path) -> None:
    settings = MetadataLogSettings(segment_bytes=2000, bytes_between_snapshots=1000, retention_bytes=3000)
    shell = started(tmp_path, settings=settings)
    for i in range(60):
        create(shell, f"t{i}")
        for _ in range(3):
            shell.tick()
    directory = str(tmp_path / LOG)
    ids = snapshots.list_ids(shell.log.files, directory)
    assert len(ids) <= 2
    assert shell.log.log_start_offset > 0
    shell.log.reconfigure(replace(shell.log.config, file_delete_delay_ms=0))
    create(shell, "last")
    shell.tick()
    assert not list((tmp_path / LOG).glob("*.deleted")), "their files are deleted, too"
    before = shell.image
    shell.close()
    again = started(tmp_path, settings=settings)
    assert content(again.image) == content(before)
    again.close()


def test_log_without_its_beginning_and_without_a_snapshot_is_rejected(tmp_path: Path) -> None:
    settings = MetadataLogSettings(segment_bytes=2000, bytes_between_snapshots=1000, retention_bytes=3000)
    shell = started(tmp_path, settings=settings)
    for i in range(60):
        create(shell, f"t{i}")
        for _ in range(3):
            shell.tick()
    shell.close()
    for path in (tmp_path / LOG).glob("*.checkpoint"):
        path.unlink()
    with pytest.raises(KafkaError, match="no snapshot reaches there"):
        open_shell(str(tmp_path), settings=settings)


def test_producer_ids_are_never_allocated_twice(tmp_path: Path) -> None:
    given: list[int] = []
    for life in range(3):
        thread = Thread()
        shell = open_shell(str(tmp_path), thread=thread)
        register(shell, incarnation=life)
        epoch = shell.image.brokers[1].epoch
        ids = ProducerIds(lambda s=shell, e=epoch: s.submit(lambda c: c.allocate_producer_ids(1, e)))  # type: ignore[misc]
        waiting = [ids.next_id() for _ in range(1500)]
        while thread.work:
            thread.finish_one()
        given += [completion.result() for completion in waiting]
        shell.close()
    assert len(set(given)) == len(given) == 4500


def test_unhandled_error_fails_only_its_operation(tmp_path: Path) -> None:
    thread = Thread()
    shell = started(tmp_path, thread=thread)
    wrong = shell.submit(lambda _: Outcome([], 1 // 0))
    with pytest.raises(ZeroDivisionError):
        wrong.result()
    asked = create(shell, "a")
    thread.finish_one()
    assert asked.done
    shell.close()


def test_corrupt_quorum_state_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shell = started(tmp_path)
    create(shell, "a")
    epoch = shell.raft.epoch
    shell.close()
    (tmp_path / LOG / "quorum-state").write_text("nonsense")
    again = open_shell(str(tmp_path))
    assert set(again.image.topics_by_name) == {"a"}
    assert again.raft.epoch > epoch
    again.close()
    assert "quorum-state: it cannot be read" in caplog.text


@pytest.mark.parametrize("unclean", [False, True])
def test_corrupt_synced_byte_is_rejected_with_its_position(tmp_path: Path, *, unclean: bool) -> None:
    shell = started(tmp_path)
    create(shell, "a")
    create(shell, "b")
    shell.tick()
    if unclean:
        shell.log.abandon()
    else:
        shell.close()
    path = tmp_path / LOG / "00000000000000000000.log"
    data = path.read_bytes()
    positions = [position for position, _ in iter_batches(data)]
    for harmed in (positions[1] + 70, positions[-1] + 70):
        path.write_bytes(data[:harmed] + bytes([data[harmed] ^ 1]) + data[harmed + 1 :])
        for _ in range(2):  # also at the second start: the first one repaired nothing
            with pytest.raises(KafkaError, match=f"{LOG} is corrupt at offset"):
                open_shell(str(tmp_path))
    path.write_bytes(data)
    again = started(tmp_path)
    assert set(again.image.topics_by_name) == {"a", "b"}
    again.close()


@pytest.mark.parametrize("unclean", [False, True])
def test_missing_metadata_segment_is_an_error_not_an_empty_log(tmp_path: Path, *, unclean: bool) -> None:
    settings = MetadataLogSettings(segment_bytes=2000)
    shell = started(tmp_path, settings=settings)
    for number in range(60):
        create(shell, f"t{number}")
    shell.tick()
    if unclean:
        shell.log.abandon()
    else:
        shell.close()
    missing = sorted((tmp_path / LOG).glob("*.log"))[2]
    data = missing.read_bytes()
    missing.unlink()
    for _ in range(2):
        with pytest.raises(KafkaError, match=f"{LOG} is corrupt at offset {int(missing.stem)}"):
            open_shell(str(tmp_path), settings=settings)
    missing.write_bytes(data)
    again = started(tmp_path, settings=settings)
    assert len(again.image.topics_by_name) == 60, "the directory is unchanged"
    again.close()


def test_start_from_a_snapshot_without_its_log_begins_a_later_epoch(tmp_path: Path) -> None:
    for _ in range(4):
        started(tmp_path).close()
    shell = started(tmp_path)
    create(shell, "a")
    shell.begin_snapshot()
    shell.tick()
    shell.tick()
    epoch = shell.raft.epoch
    shell.close()
    for path in (tmp_path / LOG).iterdir():
        if path.suffix != ".checkpoint":
            path.unlink()
    again = started(tmp_path)
    assert set(again.image.topics_by_name) == {"a"}
    assert again.raft.epoch > epoch
    again.close()


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_disk_failure_during_close_is_reported_and_not_raised(tmp_path: Path, failing: str) -> None:
    class Failing(Files):
        fails = ""

        def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
            if self.fails == "write":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(path, data, sync=sync)

        def fsync(self, fd: int) -> None:
            if self.fails == "fsync":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().fsync(fd)

    files = Failing()
    failures: list[KafkaError] = []
    shell = open_shell(str(tmp_path), files=files, thread=Thread(), on_failure=failures.append)
    register(shell)
    asked = create(shell, "a")
    files.fails = failing
    shell.close()
    assert shell.log.closed
    if failing == "fsync":
        with pytest.raises(KafkaError):
            asked.result()
    else:
        assert asked.result().topics[0].error_code == 0
    assert len(failures) == (failing == "fsync"), "the failure is reported once"
