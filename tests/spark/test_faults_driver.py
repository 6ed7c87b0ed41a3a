"""Faults between the driver of a query and its cluster: leaders, connections, groups, permissions. Without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from ottla.spark.cluster import ClusterError, CommitError
from ottla.spark.offsets import OFFSET_MAX
from ottla.spark.options import read_source_options
from ottla.spark.readers import DataLossError, StreamReader
from ottla.testing import Ottla
from tests import deadlines

ALL = ReadMaxRows(OFFSET_MAX)


class Opens(Protocol):
    def __call__(self, topic: str, **given: str) -> StreamReader: ...


@pytest.fixture
def opened(ottla: Ottla) -> Iterator[Opens]:
    """Return a function that opens readers. They refresh metadata on each call and time out after two seconds."""
    readers: list[StreamReader] = []

    def open_reader(topic: str, **given: str) -> StreamReader:
        options = {
            "kafka.bootstrap.servers": ottla.bootstrap, "subscribe": topic, "startingOffsets": "earliest",
            "kafka.metadata.max.age.ms": "0", "kafka.default.api.timeout.ms": "2000", **given,
        }  # fmt: skip
        readers.append(StreamReader(read_source_options(options, streaming=True)))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.stop()


def filled(ottla: Ottla, count: int = 5) -> str:
    topic = ottla.topic()
    ottla.produce(topic, *(f"v{i}" for i in range(count)))
    return topic


def ends(topic: str, offset: int) -> dict[str, Any]:
    return {topic: {"0": offset}}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("fail", {"api": "ListOffsets", "error": "NOT_LEADER_OR_FOLLOWER"}),
        ("fail", {"api": "ListOffsets", "error": "LEADER_NOT_AVAILABLE"}),
        ("fail", {"api": "Metadata", "error": "LEADER_NOT_AVAILABLE"}),
        ("disconnect", {"api": "ListOffsets"}),
        ("swallow", {"api": "ListOffsets"}),
        ("disconnect", {"api": "Metadata"}),
    ],
)
def test_transient_errors_are_retried(ottla: Ottla, opened: Opens, kind: str, given: dict[str, Any]) -> None:
    topic = filled(ottla)
    reader = opened(topic)
    at = reader.initialOffset()
    fault = getattr(ottla.faults, kind)(**given, times=2)
    assert reader.latestOffset(at, ALL) == ends(topic, 5)
    ottla.produce(topic, "one more")
    assert reader.latestOffset(ends(topic, 5), ALL) == ends(topic, 6)
    assert fault.count == 2


def test_moved_leader_is_found(ottla: Ottla, opened: Opens) -> None:
    topic = filled(ottla)
    reader = opened(topic)
    at = reader.initialOffset()
    fault = ottla.faults.move_leader(topic, times=3)
    assert reader.latestOffset(at, ALL) == ends(topic, 5)
    assert fault.count


def test_permanent_error_is_raised_within_the_timeout(ottla: Ottla, opened: Opens) -> None:
    topic = filled(ottla)
    reader = opened(topic)
    at = reader.initialOffset()
    began = time.monotonic()
    with (
        ottla.faults.fail("ListOffsets", "LEADER_NOT_AVAILABLE", times=None),
        pytest.raises(
            ClusterError, match=rf"Asking {ottla.bootstrap} for the ends of partitions failed: Leader .*about {topic}-0"
        ),
    ):
        reader.latestOffset(at, ALL)
    assert 1 < time.monotonic() - began < 20, "the default is 60 s"
    assert reader.latestOffset(at, ALL) == ends(topic, 5), "the next call succeeds"


def test_unresponsive_broker_is_retried_and_then_named(ottla: Ottla, opened: Opens) -> None:
    topic = filled(ottla)
    reader = opened(topic, **{"kafka.request.timeout.ms": "1000"})
    at = reader.initialOffset()
    with ottla.faults.pause():
        back = threading.Timer(1.2, ottla.resume)
        back.start()
        assert reader.latestOffset(at, ALL) == ends(topic, 5)
        deadlines.join(back, "the broker is resumed")
    with (
        ottla.faults.pause(),
        pytest.raises(ClusterError, match=f"Asking {ottla.bootstrap} for the ends of partitions"),
    ):
        reader.latestOffset(at, ALL)
    assert reader.latestOffset(at, ALL) == ends(topic, 5)


def test_missing_authorization_is_an_error_at_once(ottla: Ottla, opened: Opens) -> None:
    topic = filled(ottla)
    reader = opened(topic)
    at = reader.initialOffset()
    fault = ottla.faults.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", times=None, topic=topic)
    with pytest.raises(ClusterError, match=rf"(?i)authori[sz].*{topic}-0"):
        reader.latestOffset(at, ALL)
    assert fault.count == 1, "the request is not retried"


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"])
def test_commit_is_retried_when_the_coordinator_moves(ottla: Ottla, opened: Opens, error: str) -> None:
    topic = filled(ottla)
    reader = opened(topic, commitGroup="mover")
    at = reader.latestOffset(reader.initialOffset(), ALL)
    fault = ottla.faults.fail("OffsetCommit", error, times=2)
    assert reader.latestOffset(at, ALL) == at
    assert ottla.wait_until(lambda: ottla.group("mover").positions == {(topic, 0): 5})
    assert fault.count == 2


def test_slow_commit_delays_no_batch_and_is_never_ahead_of_it(ottla: Ottla, opened: Opens) -> None:
    topic = filled(ottla)
    reader = opened(topic, commitGroup="late")
    at = reader.latestOffset(reader.initialOffset(), ALL)
    ottla.wait_until(lambda: ottla.group("late").positions == {(topic, 0): 0})
    with ottla.faults.delay("OffsetCommit", 1.0) as late:
        ottla.produce(topic, "x")
        at = reader.latestOffset(at, ALL)
        assert at == ends(topic, 6)
        late.wait(1)
        assert ottla.group("late").positions == {(topic, 0): 0}, "that batch is not processed yet"
    assert reader.latestOffset(at, ALL) == at
    assert ottla.group("late").positions == {(topic, 0): 6}, "without new records the commit catches up"


def test_unauthorized_commit_names_the_group(ottla: Ottla, opened: Opens) -> None:
    topic = filled(ottla)
    reader = opened(topic, commitGroup="theirs")
    ottla.faults.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None)
    at = reader.latestOffset(reader.initialOffset(), ALL)
    with pytest.raises(CommitError, match="cannot be committed to group theirs of commitGroup"):
        reader.latestOffset(at, ALL)


def test_unavailable_group_does_not_stop_the_query(
    ottla: Ottla, opened: Opens, caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(ottla)
    reader = opened(topic, commitGroup="away", **{"kafka.default.api.timeout.ms": "1000"})
    with ottla.faults.fail("OffsetCommit", "COORDINATOR_NOT_AVAILABLE", times=None):
        at = reader.latestOffset(reader.initialOffset(), ALL)
        assert reader.latestOffset(at, ALL) == at
    assert f"Offset of {topic}-0 was not committed to group away" in caplog.text
    assert reader.latestOffset(at, ALL) == at
    assert ottla.group("away").positions == {(topic, 0): 5}


def test_available_now_query_may_continue_without_a_deleted_topic(ottla: Ottla, opened: Opens) -> None:
    kept, deleted = filled(ottla), "deleted"
    at = ends(kept, 5) | ends(deleted, 5)
    lenient = opened(f"{kept},{deleted}", failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    assert lenient.latestOffset(at, ALL) == ends(kept, 5)
    strict = opened(f"{kept},{deleted}")
    strict.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match=r"deleted-0 no longer exists.*failOnDataLoss"):
        strict.latestOffset(at, ALL)
    new = opened(f"{kept},{deleted}", failOnDataLoss="false")
    new.prepareForTriggerAvailableNow()
    with pytest.raises(ClusterError, match="has no topic deleted; create it first"):
        new.initialOffset()
