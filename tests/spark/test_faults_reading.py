"""Faults while a task reads its range: corrupt batches, leader changes, failed requests. Without Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.clients import ClientError, CorruptRecords
from ottla.clients.consumer.ranges import RangeReader
from ottla.spark import range_columns
from ottla.spark.client_pool import ClientPool
from ottla.spark.offsets import OffsetRange
from ottla.spark.range_reader import read_range
from ottla.testing import Ottla

PATIENCE = {"default.api.timeout.ms": "10000"}


@pytest.fixture(autouse=True)
def own_readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the readers of each test at its end."""
    pool: ClientPool[RangeReader] = ClientPool(RangeReader)
    monkeypatch.setattr(range_columns, "_readers", pool)
    yield
    pool.close()


def filled(ottla: Ottla, batches: int = 4, size: int = 5) -> str:
    """Create a topic with `batches` batches of `size` records."""
    topic = ottla.topic()
    for batch in range(batches):
        ottla.produce(topic, *(f"v{batch * size + i}" for i in range(size)))
    return topic


def offsets(ottla: Ottla, topic: str, start: int, end: int, **wishes: Any) -> list[int]:
    client = {"bootstrap.servers": ottla.bootstrap, **PATIENCE, **wishes.pop("client", {})}
    batches = read_range(client, OffsetRange(topic, 0, start, end), **wishes)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize(
    ("corrupt", "start", "end", "left"),
    [
        (7, 0, 20, [*range(5), *range(10, 20)]),
        (7, 0, 10, [*range(5)]),  # the range ends with the corrupt batch
        (7, 6, 9, []),  # the range is within the corrupt batch
        (1, 3, 12, [*range(5, 12)]),
        (17, 0, 18, [*range(15)]),
    ],
)
def test_corrupt_batch_is_an_error_or_skipped(
    ottla: Ottla, caplog: pytest.LogCaptureFixture, corrupt: int, start: int, end: int, left: list[int]
) -> None:
    topic = filled(ottla)
    first = max(corrupt // 5 * 5, start)
    ottla.faults.corrupt(topic, offset=corrupt)
    with pytest.raises(CorruptRecords, match=f"{topic}-0 at offset {first}: .*failOnDataLoss=false") as error:
        offsets(ottla, topic, start, end)
    assert (error.value.topic, error.value.partition, error.value.offset) == (topic, 0, first)
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        assert offsets(ottla, topic, start, end, fail_on_data_loss=False) == left
    last = min(corrupt // 5 * 5 + 5, end) - 1
    assert f"offsets {first} to {last} are skipped, since failOnDataLoss is false" in caplog.text


def test_several_corrupt_batches_are_each_skipped(ottla: Ottla, caplog: pytest.LogCaptureFixture) -> None:
    topic = filled(ottla)
    for offset in (0, 5, 15):
        ottla.faults.corrupt(topic, offset=offset, on_disk=True)
    assert offsets(ottla, topic, 0, 20, fail_on_data_loss=False) == [*range(10, 15)]
    assert [record.getMessage().count("are skipped") for record in caplog.records if record.name == "ottla.spark"] == [
        1
    ] * 3
    assert offsets(ottla, topic, 10, 15) == [*range(10, 15)], "intact batches are read with both settings"


def test_client_setting_to_skip_corrupt_records_does_not_stall(ottla: Ottla) -> None:
    topic = filled(ottla)
    ottla.faults.corrupt(topic, offset=15)
    assert offsets(ottla, topic, 0, 20, fail_on_data_loss=False, client={"on.corrupt.records": "skip"}) == [*range(15)]


def test_batch_corrupted_by_the_network_is_fetched_again(ottla: Ottla) -> None:
    topic = filled(ottla)
    fault = ottla.faults.corrupt(topic, offset=7, times=1)
    assert offsets(ottla, topic, 0, 20) == [*range(20)]
    assert fault.count == 1


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "KAFKA_STORAGE_ERROR"])
def test_retriable_fetch_error_is_retried(ottla: Ottla, error: str) -> None:
    topic = filled(ottla)
    fault = ottla.faults.fail("Fetch", error, times=2, topic=topic)
    assert offsets(ottla, topic, 0, 20) == [*range(20)]
    assert fault.count == 2


def test_leader_change_between_two_fetches_loses_no_record(ottla: Ottla) -> None:
    topic = filled(ottla, batches=40)
    client = {"bootstrap.servers": ottla.bootstrap, "max.partition.fetch.bytes": "400", **PATIENCE}
    batches = read_range(client, OffsetRange(topic, 0, 0, 200), max_bytes_per_batch=200)
    seen = next(batches).column("offset").to_pylist()
    fault = ottla.faults.move_leader(topic)
    for batch in batches:
        seen += batch.column("offset").to_pylist()
    assert seen == [*range(200)]
    assert fault.count


@pytest.mark.parametrize("kind", ["disconnect", "swallow"])
def test_lost_connections_are_reestablished(ottla: Ottla, kind: str) -> None:
    topic = filled(ottla)
    fault = getattr(ottla.faults, kind)("Fetch", times=2)
    assert offsets(ottla, topic, 0, 20) == [*range(20)]
    assert fault.count == 2


def test_permanent_fetch_error_is_raised_within_the_timeout(ottla: Ottla) -> None:
    topic = filled(ottla)
    ottla.faults.fail("Fetch", "KAFKA_STORAGE_ERROR", times=None, topic=topic)
    with pytest.raises(ClientError, match=rf"{topic}-0 at offset 3: no records within 1\.5 s"):
        offsets(ottla, topic, 3, 20, client={"default.api.timeout.ms": "1500"})


def test_missing_read_authorization_is_an_error_at_once(ottla: Ottla) -> None:
    topic = filled(ottla)
    ottla.faults.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=None, topic=topic)
    with pytest.raises(ClientError, match=rf"(?i){topic}.*authori[sz]"):
        offsets(ottla, topic, 0, 20)
