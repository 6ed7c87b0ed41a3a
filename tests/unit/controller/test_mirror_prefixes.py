"""Mirrors with a prefix: the names of their topics, and clusters that mirror each other without loops."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Final

import pytest

from ottla.common.errors import ErrorCode
from ottla.controller.mirrors import SourceTopic
from ottla.metadata.image import MIRROR, TOPIC
from ottla.metadata.mirrors import (
    FAILBACK,
    MIRROR_SETTING,
    MIRRORING,
    STATE_SETTING,
    STOPPED,
    STOPPING,
    TopicNames,
    is_read_only,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

from .support import Cluster

SET, DELETE = 0, 1
NAMES: Final = ("orders", "payments", "eu.taxes", "ap.orders")


class Region(Cluster):
    """A cluster with topics of its own, and mirrors of others that are named after them."""

    def __init__(self, name: str, *others: str) -> None:
        super().__init__(seed=sum(name.encode()))
        self.name = name
        for other in others:
            assert self.alter(MIRROR, other, topics=".*", topic_prefix=f"{other}.").error_code == 0

    def alter(self, kind: int, name: str, **changes: str | None) -> AlterConfigsResourceResponse:
        rows = [
            AlterableConfig(key.replace("_", "."), SET if value is not None else DELETE, value)
            for key, value in changes.items()
        ]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, rows)])
        [answer] = self.do(self.controller.incremental_alter_configs(request)).responses
        return answer

    def move(self, topic: str, mirror: str, state: str) -> int:
        return self.alter(TOPIC, topic, ottla_mirror=mirror, ottla_mirror_state=state).error_code

    def promote(self, topic: str, mirror: str) -> None:
        assert [self.move(topic, mirror, state) for state in (STOPPING, STOPPED)] == [0, 0]

    def create(self, name: str) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        [result] = self.do(self.controller.create_topics(CreateTopicsRequest(topics=[topic]))).topics
        return result.error_code

    def delete(self, name: str) -> int:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        [answer] = self.do(self.controller.delete_topics(request)).responses
        return answer.error_code

    def settings(self, topic: str) -> dict[str, str]:
        return dict(self.controller.image.config(TOPIC, topic))

    def sources(self) -> list[SourceTopic]:
        """The topics, as a mirror of this cluster reads them."""
        return [
            SourceTopic(
                topic.name,
                topic.topic_id,
                tuple(each.leader_epoch for each in topic.partitions.values()),
                self.settings(topic.name),
                is_read_only(self.settings(topic.name)),
            )
            for topic in self.controller.image.topics_by_name.values()
        ]

    def follow(self, other: Region, mirror: str = "") -> dict[str, str]:
        """One comparison of a mirror of another cluster, by default the one with its name; returns problems."""
        return self.do(self.controller.follow_source(mirror or other.name, 1, other.sources()))

    @property
    def names(self) -> list[str]:
        return sorted(self.controller.image.topics_by_name)


def pair() -> tuple[Region, Region]:
    return Region("eu", "us"), Region("us", "eu")


@pytest.mark.parametrize("prefixes", [("", ""), ("us.", ""), ("a-_.", ""), ("", "us."), ("orders.", "us.")])
@pytest.mark.parametrize("name", ["orders", "us.orders", "us.us.orders", "orders.orders"])
def test_names_map_in_both_directions(prefixes: tuple[str, str], name: str) -> None:
    names = TopicNames(*prefixes)
    local = names.local(name)
    assert (local is None) == (not name.startswith(names.source_prefix))
    assert local is None or names.at_source(local) == name


def test_two_clusters_mirror_each_others_topics_and_no_copies() -> None:
    eu, us = pair()
    assert (eu.create("orders"), us.create("orders")) == (0, 0)
    for _ in range(3):
        assert (eu.follow(us), us.follow(eu)) == ({}, {})
    assert (eu.names, us.names) == (["orders", "us.orders"], ["eu.orders", "orders"])
    assert eu.settings("us.orders") == {MIRROR_SETTING: "us", STATE_SETTING: MIRRORING}
    ids = {name: topic.topic_id for name, topic in eu.controller.image.topics_by_name.items()}
    assert ids["us.orders"] == us.controller.image.topics_by_name["orders"].topic_id


def test_promoted_copy_keeps_its_name_and_is_not_copied_back() -> None:
    eu, us = pair()
    us.create("orders")
    eu.follow(us)
    eu.promote("us.orders", "us")
    assert "Topic orders has the id" in us.follow(eu)["eu.us.orders"]
    assert us.names == ["orders"]


def test_original_copies_its_promoted_copy_and_both_exchange_roles_again() -> None:
    eu, us = pair()
    us.create("orders")
    eu.create("orders")
    eu.follow(us)
    eu.promote("us.orders", "us")
    back = us.alter(MIRROR, "back", topics="", source_topic_prefix="us.")
    assert back.error_code == 0
    assert us.move("orders", "back", FAILBACK) == 0
    assert us.follow(eu, "back") == {}
    assert us.settings("orders") == {MIRROR_SETTING: "back", STATE_SETTING: MIRRORING}
    assert us.names == ["orders"], "topics without the prefix are not copied"
    assert eu.move("orders", "us", FAILBACK) == ErrorCode.INVALID_CONFIG, "the prefix is missing"
    assert eu.move("us.orders", "us", FAILBACK) == 0
    assert "read-only mirror itself" in eu.follow(us)["us.orders"], "not before it is promoted"
    us.promote("orders", "back")
    assert eu.follow(us) == {}
    assert eu.settings("us.orders")[STATE_SETTING] == MIRRORING


def test_names_with_a_prefix_of_this_cluster_are_reported_and_not_copied() -> None:
    """MirrorMaker 2 has made such copies at the source, with ids of their own."""
    eu, us = Region("eu", "us", "ap"), Region("us")
    for name in ("us.orders", "ap.orders", "apples"):
        us.create(name)
    problems = eu.follow(us)
    assert sorted(problems) == ["us.ap.orders", "us.us.orders"]
    assert "ap.orders is taken for a copy" in problems["us.ap.orders"]
    assert eu.names == ["us.apples"]


def test_prefix_cannot_change_while_the_mirror_has_topics() -> None:
    eu, us = pair()
    assert eu.alter(MIRROR, "us", topic_prefix="u.").error_code == 0
    assert eu.alter(MIRROR, "us", topic_prefix="a/b").error_code == ErrorCode.INVALID_CONFIG
    us.create("orders")
    eu.follow(us)
    for prefix in ("us.", None):
        assert eu.alter(MIRROR, "us", topic_prefix=prefix).error_code == ErrorCode.POLICY_VIOLATION
    eu.promote("u.orders", "us")
    assert eu.alter(MIRROR, "us", topic_prefix=None).error_code == ErrorCode.POLICY_VIOLATION
    assert eu.alter(MIRROR, "us", topic_prefix="u.").error_code == 0
    assert eu.alter(MIRROR, "us", topic_prefix=None, topics=None).error_code == 0


def test_copy_is_deleted_by_its_name_at_the_source() -> None:
    eu, us = pair()
    us.create("orders")
    eu.follow(us)
    assert eu.delete("us.orders") == ErrorCode.POLICY_VIOLATION
    assert eu.alter(MIRROR, "us", topics="us.orders").error_code == 0
    assert eu.delete("us.orders") == 0


@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata"])
def test_prefix_makes_no_internal_topic(name: str) -> None:
    cluster = Region("eu")
    assert cluster.alter(MIRROR, "odd", topic_prefix="__").error_code == 0
    source = SourceTopic(name[2:], bytes(range(16)), (0,), {})
    assert "Internal" in cluster.do(cluster.controller.follow_source("odd", 1, [source]))[name]


@pytest.mark.parametrize("seed", range(30))
def test_clusters_that_mirror_each_other_never_copy_in_a_circle(seed: int) -> None:
    """Three clusters mirror each other, while topics are created, deleted, promoted and copied again.

    After the last change, comparisons reach a state in which nothing changes any more. Each topic that clients write to
    has a copy in each other cluster then, or a problem is reported.
    """
    random = Random(seed)
    names = ("eu", "us", "ap")
    regions = [Region(name, *(other for other in names if other != name)) for name in names]
    for _ in range(60):
        region, other = random.sample(regions, 2)
        event = random.random()
        if event < 0.2:
            region.create(random.choice(NAMES))
        elif event < 0.8:
            region.follow(other)
        elif region.names:
            topic = random.choice(region.names)
            mirror, state = region.settings(topic).get(MIRROR_SETTING), region.settings(topic).get(STATE_SETTING)
            if mirror is None:
                region.delete(topic)
            elif state == MIRRORING:
                region.promote(topic, mirror)
            else:
                region.alter(TOPIC, topic, ottla_mirror=None, ottla_mirror_state=None)
        check(regions)
    settle(regions)
    for region, other in permutations(regions, 2):
        problems = region.follow(other)
        for source in other.sources():
            name = f"{other.name}.{source.name}"
            assert source.is_read_only or name in problems or name in region.names


def check(regions: list[Region]) -> None:
    """Each copy has the name that its prefix gives it, and is not a copy of a copy."""
    for region in regions:
        for topic, image in region.controller.image.topics_by_name.items():
            settings = region.settings(topic)
            mirror = settings.get(MIRROR_SETTING)
            if mirror is not None:
                assert topic.startswith(f"{mirror}.")
            if settings.get(STATE_SETTING) == MIRRORING:
                [source] = [each for each in regions if each.name == mirror]
                at_source = source.controller.image.topics_by_name.get(topic.removeprefix(f"{mirror}."))
                if at_source is not None and at_source.topic_id == image.topic_id:
                    assert source.settings(at_source.name).get(STATE_SETTING) != MIRRORING


def settle(regions: list[Region]) -> None:
    """Compare all clusters until nothing changes."""
    for _ in range(10):
        before = [region.offset for region in regions]
        for region, other in permutations(regions, 2):
            region.follow(other)
        if before == [region.offset for region in regions]:
            return
    raise AssertionError("the clusters copy in a circle")


@pytest.mark.parametrize("seed", range(5))
def test_circle_through_mirrormaker_ends(seed: int) -> None:
    """MirrorMaker 2 copies all topics of `eu` to `us`, with its IdentityReplicationPolicy and new ids."""
    random = Random(seed)
    us, eu = Region("us"), Region("eu", "us")
    for region in (us, eu):
        for name in random.sample(NAMES, 2):
            region.create(name)
    counts = []
    for _ in range(6):
        eu.follow(us)
        for name in eu.names:
            us.create(name)
        counts.append((len(us.names), len(eu.names)))
    assert counts[1] == counts[-1]
