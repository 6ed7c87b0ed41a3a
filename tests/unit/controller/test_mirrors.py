"""Topics that are copied from another cluster: what creates, changes and opens them, and what is refused."""

from __future__ import annotations

from random import Random

import pytest

from ottla.cluster.config_rules import BrokerConfigRules
from ottla.common.errors import ErrorCode
from ottla.common.slices import finish
from ottla.config import BrokerConfig
from ottla.controller import ControllerSettings, Outcome, mirrors
from ottla.controller.mirrors import SourceTopic
from ottla.controller.state import State
from ottla.metadata.image import MIRROR, TOPIC, PartitionImage
from ottla.metadata.mirrors import FAILBACK, MIRROR_SETTING, MIRRORING, STATE_SETTING, STOPPED, STOPPING
from ottla.protocol import metadata_records as m
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

from .support import Cluster

GENERATION = 1 << 20
ORDERS = bytes(range(16))
SET, DELETE = 0, 1


class Target(Cluster):
    """A cluster with the mirror `dr`."""

    def __init__(self, brokers: int = 1) -> None:
        super().__init__(brokers)
        self.do(Outcome([m.ConfigRecord(resource_type=MIRROR, resource_name="dr", name="topics", value=".*")], None))

    def follow(
        self,
        *leader_epochs: int,
        topic_id: bytes = ORDERS,
        settings: dict[str, str] | None = None,
        is_read_only: bool = False,
        mirror: str = "dr",
    ) -> str | None:
        source = SourceTopic("orders", topic_id, leader_epochs, settings or {}, is_read_only)
        return self.do(self.controller.follow_source(mirror, 1, [source])).get("orders")

    def alter(self, kind: int, name: str, **changes: str | None) -> AlterConfigsResourceResponse:
        rows = [
            AlterableConfig(key.replace("_", "."), DELETE if value is None else SET, value)
            for key, value in changes.items()
        ]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, rows)])
        [answer] = self.do(self.controller.incremental_alter_configs(request)).responses
        return answer

    def move(self, state: str | None, mirror: str | None = "dr") -> int:
        return self.alter(TOPIC, "orders", ottla_mirror=mirror, ottla_mirror_state=state).error_code

    @property
    def state(self) -> str | None:
        return self.controller.image.config(TOPIC, "orders").get(STATE_SETTING)

    @property
    def partitions(self) -> list[PartitionImage]:
        return list(self.controller.image.topics_by_name["orders"].partitions.values())

    def create(self, name: str, **settings: str) -> int:
        configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in settings.items()]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
        [result] = self.do(self.controller.create_topics(CreateTopicsRequest(topics=[topic]))).topics
        return result.error_code


def test_topic_is_created_read_only_with_the_sources_id_and_a_later_generation_of_epochs() -> None:
    target = Target()
    assert target.follow(7, 0, settings={"retention.ms": "5", "min.insync.replicas": "2"}) is None
    image = target.controller.image
    assert image.topics_by_name["orders"].topic_id == ORDERS
    assert image.config(TOPIC, "orders") == {
        "retention.ms": "5",
        MIRROR_SETTING: "dr",
        STATE_SETTING: MIRRORING,
    }
    assert [partition.leader_epoch for partition in target.partitions] == [GENERATION, GENERATION]


def test_unchanged_source_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target()
    target.follow(7, settings={"retention.ms": "5"})
    before = target.offset
    # Each check of a setting without an effect would log a warning, at every comparison.
    monkeypatch.setattr("ottla.controller.mirrors.configs.validate", None)
    assert target.follow(8, settings={"retention.ms": "5"}) is None
    assert target.offset == before


def test_topic_with_tiered_storage_is_copied_without_it() -> None:
    rules = BrokerConfigRules(
        BrokerConfig({"node.id": "1", "log.dirs": "/unused", "listeners": "PLAINTEXT://127.0.0.1:0"})
    )
    image = Target().controller.image
    state = State(image, 1, "cluster", rules, Random(1), ControllerSettings())
    settings = {"remote.storage.enable": "true", "local.retention.ms": "5", "remote.log.copy.disable": "true"}
    source = SourceTopic("orders", ORDERS, (7,), {**settings, "retention.ms": "9", "unknown.setting": "x"})
    outcome = finish(mirrors.follow(state, "dr", 1, [source]))
    assert outcome.response == {}
    created = {each.name for each in outcome.records if isinstance(each, m.ConfigRecord)}
    own = {MIRROR_SETTING, STATE_SETTING}
    assert created == {"local.retention.ms", "remote.log.copy.disable", "retention.ms"} | own


def test_setting_that_is_not_valid_here_does_not_delay_the_topic() -> None:
    target = Target()
    problem = target.follow(7, settings={"retention.ms": "5", "segment.bytes": "tiny"})
    assert "segment.bytes=tiny; change the source" in str(problem)
    config = target.controller.image.config(TOPIC, "orders")
    assert (config["retention.ms"], "segment.bytes" in config) == ("5", False)
    assert target.follow(7, settings={"segment.bytes": "9"}) is None
    assert "segment.bytes=tiny" in str(target.follow(7, 7, settings={"segment.bytes": "tiny"}))
    config = target.controller.image.config(TOPIC, "orders")
    assert (config["segment.bytes"], len(target.partitions)) == ("9", 2)


def test_source_that_reaches_the_generation_begins_a_later_one() -> None:
    target = Target()
    target.follow(7)
    target.follow(GENERATION)
    assert [partition.leader_epoch for partition in target.partitions] == [2 * GENERATION]


def test_new_partitions_and_changed_settings_follow() -> None:
    target = Target()
    target.follow(7, settings={"retention.ms": "5", "segment.ms": "6"})
    assert target.follow(7, 3, settings={"retention.ms": "8"}) is None
    assert len(target.partitions) == 2
    assert target.partitions[1].leader_epoch == GENERATION
    assert target.controller.image.config(TOPIC, "orders")["retention.ms"] == "8"
    assert "segment.ms" not in target.controller.image.config(TOPIC, "orders")


def test_problem_of_too_few_brokers_names_the_option_that_changes_the_replicas() -> None:
    target = Target()
    sources = [SourceTopic("orders", ORDERS, (3,), {})]
    problem = target.do(target.controller.follow_source("dr", 3, sources))["orders"]
    assert "replication factor of 3 cannot be reached" in problem
    assert problem.endswith("; start brokers, or change the number with `ottla mirror alter --replication-factor`")


def test_recreated_shrunk_and_foreign_topics_are_problems_and_stay() -> None:
    target = Target()
    target.follow(7, 7)
    before = target.offset
    assert "recreated" in str(target.follow(1, 1, topic_id=bytes(15) + b"\x09"))
    assert "1 partitions" in str(target.follow(7))
    assert "belongs to mirror dr" in str(target.follow(7, 7, mirror="other"))
    assert target.offset == before
    target.move(STOPPING)
    target.move(STOPPED)
    assert "`ottla mirror failback other`" in str(target.follow(7, 7, mirror="other"))
    assert target.follow(1, 1, topic_id=bytes(15) + b"\x09") is None, "a promoted topic follows no source"


def test_topic_that_exists_here_is_not_overwritten() -> None:
    target = Target()
    assert target.create("orders") == 0
    assert "exists here and is another one; " in str(target.follow(7))
    assert target.state is None


def test_clients_can_only_request_the_moves_of_a_promotion() -> None:
    target = Target()
    target.follow(7)
    assert target.move(STOPPED) == ErrorCode.POLICY_VIOLATION
    assert target.move(None, None) == ErrorCode.POLICY_VIOLATION
    assert target.move(FAILBACK) == ErrorCode.POLICY_VIOLATION
    assert target.move(STOPPING) == 0
    assert target.move(MIRRORING) == ErrorCode.POLICY_VIOLATION
    assert target.move(STOPPED) == 0
    before = target.offset
    assert target.follow(GENERATION * 5) is None
    assert (target.state, target.offset) == (STOPPED, before)
    assert target.move(None, None) == 0


def test_settings_of_a_copy_are_only_changed_at_its_source() -> None:
    target = Target()
    target.follow(7, settings={"retention.ms": "5000"})
    refused = target.alter(TOPIC, "orders", retention_ms="1")
    assert (refused.error_code, "retention.ms" in str(refused.error_message)) == (ErrorCode.POLICY_VIOLATION, True)
    assert target.alter(TOPIC, "orders", retention_ms=None).error_code == ErrorCode.POLICY_VIOLATION
    assert target.alter(TOPIC, "orders", min_insync_replicas="1").error_code == 0
    assert target.alter(TOPIC, "orders", retention_ms="5000").error_code == 0, "it has this value"
    target.move(STOPPING)
    target.move(STOPPED)
    assert target.alter(TOPIC, "orders", retention_ms="1").error_code == 0


def test_clients_create_no_mirrored_topic_and_add_no_partitions() -> None:
    target = Target()
    assert target.create("payments", ottla_mirror="dr", ottla_mirror_state="STOPPED") == ErrorCode.POLICY_VIOLATION
    target.follow(7)
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=3)])
    [result] = target.do(target.controller.create_partitions(request)).results
    assert result.error_code == ErrorCode.POLICY_VIOLATION


def test_failback_begins_a_new_generation_in_one_step_with_the_state() -> None:
    target = Target()
    assert target.create("orders") == 0
    own = target.controller.image.topics_by_name["orders"].topic_id
    assert target.move(FAILBACK, "unknown") == ErrorCode.INVALID_CONFIG
    assert target.move(FAILBACK) == 0
    assert "read-only mirror itself" in str(target.follow(GENERATION + 3, topic_id=own, is_read_only=True))
    assert (target.state, target.partitions[0].leader_epoch) == (FAILBACK, 0)
    assert target.follow(GENERATION + 3, topic_id=own) is None
    assert (target.state, target.partitions[0].leader_epoch) == (MIRRORING, 2 * GENERATION)


def test_mirror_with_read_only_topics_cannot_be_deleted() -> None:
    target = Target()
    target.follow(7)
    assert target.alter(MIRROR, "dr", topics=None).error_code == ErrorCode.POLICY_VIOLATION
    target.move(STOPPING)
    target.move(STOPPED)
    assert target.alter(MIRROR, "dr", topics=None).error_code == 0


@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata"])
def test_internal_topics_are_not_mirrored(name: str) -> None:
    target = Target()
    source = SourceTopic(name, ORDERS, (0,), {})
    assert "Internal" in target.do(target.controller.follow_source("dr", 1, [source]))[name]


def test_source_that_needs_too_many_records_is_followed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    # A topic with one partition needs 4 records.
    monkeypatch.setattr("ottla.controller.mirrors.MAX_RECORDS_PER_REQUEST", 9)
    target = Target()
    sources = [SourceTopic(f"t{i}", bytes(15) + bytes([i + 1]), (0,), {}) for i in range(5)]
    sources.insert(1, SourceTopic("huge", ORDERS, (0,) * 7, {}))
    for count in (2, 4, 5):
        problems = target.do(target.controller.follow_source("dr", 1, sources))
        assert "10 records" in problems["huge"]
        assert list(target.controller.image.topics_by_name) == [f"t{i}" for i in range(count)]


def test_topic_that_its_mirror_would_create_again_is_not_deleted() -> None:
    target = Target()
    target.follow(7)

    def delete() -> int:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")])
        [answer] = target.do(target.controller.delete_topics(request)).responses
        return answer.error_code

    assert delete() == ErrorCode.POLICY_VIOLATION
    target.move(STOPPING)
    target.move(STOPPED)
    assert delete() == ErrorCode.POLICY_VIOLATION, "the mirror creates a promoted topic again, too"
    changed = m.ConfigRecord(resource_type=MIRROR, resource_name="dr", name="topics", value="order")
    target.do(Outcome([changed], None))
    assert delete() == 0
