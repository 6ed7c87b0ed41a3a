"""A log that was lost with its directory is created again only while another node leads the partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.common.ids import DIRECTORY_UNASSIGNED, TopicPartition, Uuid
from ottla.metadata.image import EMPTY_IMAGE, NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.partitions.lost_logs import LostLogs

HERE, ALSO_HERE, LOST = b"h" * 16, b"a" * 16, b"l" * 16
NODE, OTHER = 1, 2


def topic(directory: Uuid, leader: int, partitions: int = 1) -> TopicImage:
    image = PartitionImage((OTHER, NODE), (OTHER, NODE), leader, 1, 1, (b"o" * 16, directory))
    return TopicImage("t", b"t" * 16, dict.fromkeys(range(partitions), image))


class Logs:
    def __init__(self, *, online: bool = True) -> None:
        self.found: set[TopicPartition] = set()
        self.directories = [
            SimpleNamespace(directory_id=HERE, online=True),
            SimpleNamespace(directory_id=ALSO_HERE if online else bytes(16), online=online),
        ]

    def get(self, topic_partition: TopicPartition) -> object | None:
        return topic_partition if topic_partition in self.found else None

    def log_directories(self) -> list[Any]:
        return self.directories


def lost_logs(logs: Logs, *, first: MetadataImage | None = None) -> LostLogs:
    lost = LostLogs(NODE, logs)  # type: ignore[arg-type]
    lost.directory_is_missing = first is not None
    lost.begin(first or EMPTY_IMAGE)
    return lost


@pytest.mark.parametrize(("leader", "is_lost"), [(OTHER, False), (NODE, True), (NO_LEADER, True)])
def test_replica_in_a_replaced_directory_waits_for_another_leader(leader: int, *, is_lost: bool) -> None:
    assert lost_logs(Logs()).is_lost(topic(LOST, leader), 0) is is_lost


@pytest.mark.parametrize("leader", [OTHER, NODE, NO_LEADER])
def test_replica_waits_for_a_directory_that_may_return(leader: int) -> None:
    """Otherwise the partition would be in two directories when the disk works again."""
    assert lost_logs(Logs(online=False)).is_lost(topic(LOST, leader), 0)


def test_replica_without_records_in_a_directory_that_exists_is_not_lost() -> None:
    assert not lost_logs(Logs()).is_lost(topic(ALSO_HERE, NODE), 0)
    assert not lost_logs(Logs(online=False)).is_lost(topic(HERE, NODE), 0)


def test_log_that_was_found_in_another_directory_is_not_lost() -> None:
    logs = Logs()
    logs.found.add(TopicPartition("t", 0))
    assert not lost_logs(logs).is_lost(topic(LOST, NODE), 0)


def test_replica_in_an_unknown_directory_is_lost_only_if_it_existed_when_the_directory_was_missing() -> None:
    before = topic(DIRECTORY_UNASSIGNED, NODE)
    first = MetadataImage(topics_by_id={before.topic_id: before}, topics_by_name={"t": before})
    grown = topic(DIRECTORY_UNASSIGNED, NODE, partitions=2)
    lost = lost_logs(Logs(), first=first)
    assert lost.is_lost(grown, 0)
    assert not lost.is_lost(grown, 1), "a partition that was added since has no log to lose"
    assert not lost_logs(Logs()).is_lost(grown, 0)
