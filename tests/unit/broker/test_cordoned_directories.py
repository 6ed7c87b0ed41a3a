"""`cordoned.log.dirs`: directories that take no new replicas, at the broker and at its controller. KIP-1066."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cluster.node.cordoning import cordoned_ids, report_to_itself
from ottla.common.errors import ErrorCode
from ottla.config import Listener
from ottla.controller import Outcome
from ottla.metadata.features import CORDONED_FROM
from ottla.metadata.image import BROKER
from ottla.protocol import metadata_records as m
from ottla.protocol.messages.alter_configs import AlterableConfig as Replacement
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.unit.controller.support import registration

from .harness import BrokerHarness

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NAME = "cordoned.log.dirs"


class World:
    """A broker with the directories a and b."""

    def __init__(self, directory: Path) -> None:
        self.paths = [str(directory / "a"), str(directory / "b")]
        self.harness = BrokerHarness(",".join(self.paths))
        request = registration(1)
        request.log_dirs = [each.directory_id for each in self.harness.broker.logs.log_directories()]
        self.harness.broker.metadata.register(request, clean_shutdown=True)

    def alter(self, value: str | None, operation: int = SET) -> tuple[int, str]:
        config = AlterableConfig(NAME, operation, value)
        request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(BROKER, "1", [config])])
        (row,) = self.harness.ask(request).responses
        report_to_itself(1, self.harness.broker.metadata, self.harness.broker.logs, self.harness.loop)
        return row.error_code, row.error_message or ""

    @property
    def reported(self) -> set[bytes]:
        return set(self.harness.broker.metadata.image.brokers[1].cordoned_directories or ())

    def create(self, name: str) -> Any:
        request = CreateTopicsRequest(topics=[CreatableTopic(name, 4, 1)])
        return self.harness.ask(request).topics[0]

    def contents(self) -> dict[str, tuple[bool, int]]:
        """Whether each directory is cordoned, and its number of partitions."""
        results = self.harness.ask(DescribeLogDirsRequest(topics=None)).results
        return {
            Path(each.log_dir).name: (each.is_cordoned, sum(len(topic.partitions) for topic in each.topics))
            for each in results
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.harness.close()


def test_new_partitions_avoid_a_cordoned_directory(world: World) -> None:
    assert world.alter(world.paths[0]) == (0, "")
    assert world.reported == set(cordoned_ids(world.harness.broker.metadata.image, world.harness.broker.logs) or ())
    assert len(world.reported) == 1
    assert world.create("t").error_code == 0
    assert world.contents() == {"a": (True, 0), "b": (False, 4)}
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(world.paths[0], [AlterReplicaLogDirTopic("t", [0])])])
    assert world.harness.ask(request).results[0].partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.alter(None, DELETE) == (0, "")
    assert world.reported == set()
    assert world.create("u").error_code == 0
    assert world.contents() == {"a": (False, 4), "b": (False, 4)}


def test_broker_without_other_directories_gets_no_replicas(world: World) -> None:
    assert world.alter("*") == (0, "")
    assert len(world.reported) == 2
    refused = world.create("t")
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "have all their log directories cordoned" in refused.error_message
    assert world.alter(world.paths[1]) == (0, "")
    assert world.create("t").error_code == 0
    assert world.contents() == {"a": (False, 4), "b": (True, 0)}


def test_replicas_placed_before_all_directories_were_cordoned_are_created(world: World) -> None:
    for directory in world.harness.broker.logs.log_directories():
        directory.is_cordoned = True
    assert world.create("t").error_code == 0
    assert world.contents()["a"] == (True, 4)


@pytest.mark.parametrize(
    ("value", "operation", "words"),
    [
        ("/nowhere", SET, "must be present in log.dirs or log.dir. Missing entries : /nowhere"),
        ("/nowhere", APPEND, "Missing entries : /nowhere"),
        ("*,/nowhere", SET, "When cordoned.log.dirs is set to *, it must not contain other values"),
    ],
)
def test_unknown_directory_is_rejected_by_its_broker(world: World, value: str, operation: int, words: str) -> None:
    code, message = world.alter(value, operation)
    assert code == ErrorCode.INVALID_REQUEST
    assert words in message
    assert world.alter("/nowhere", SUBTRACT) == (0, "")
    request = AlterConfigsRequest(resources=[ReplacedResource(BROKER, "1", [Replacement(NAME, "/nowhere")])])
    assert world.harness.ask(request).responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_clients_of_the_controller_can_only_remove_directories(world: World) -> None:
    both = ",".join(world.paths)
    assert world.alter(both) == (0, "")
    world.harness.broker.endpoints.controllers = [Listener("CONTROLLER", "host", 9093)]
    world.harness.client.listener = "CONTROLLER"
    assert world.alter(world.paths[1]) == (0, "")
    code, message = world.alter(both)
    assert code == ErrorCode.INVALID_CONFIG
    assert "the new value must be a subset of the current configuration value" in message
    assert world.alter(None, DELETE) == (0, "")


def test_old_cluster_has_no_cordoned_directories(world: World) -> None:
    directory = world.harness.broker.logs.log_directories()[0]
    record = m.FeatureLevelRecord(name="metadata.version", feature_level=CORDONED_FROM - 1)
    world.harness.broker.metadata.submit(lambda _: Outcome([record], None)).result()
    code, message = world.alter(world.paths[0])
    assert code == ErrorCode.INVALID_CONFIG
    assert "it requires metadata.version >= 4.3-IV0" in message
    directory.is_cordoned = True
    assert cordoned_ids(world.harness.broker.metadata.image, world.harness.broker.logs) is None
    assert not any(is_cordoned for is_cordoned, _ in world.contents().values())
