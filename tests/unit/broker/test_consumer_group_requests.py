"""Consumer groups (KIP-848) are served with the finalized feature, and refused at once without it, as by Kafka."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .harness import BrokerHarness

JOIN = ConsumerGroupHeartbeatRequest(
    group_id="g", member_id="m", rebalance_timeout_ms=9_000, subscribed_topic_names=["t"], topic_partitions=[]
)


def codes(harness: BrokerHarness) -> set[ErrorCode]:
    """The errors of a heartbeat and of a description."""
    described = harness.ask(ConsumerGroupDescribeRequest(group_ids=["g", "g"]), 1)
    return {ErrorCode(harness.ask(JOIN, 1).error_code), *(ErrorCode(row.error_code) for row in described.groups)}


def test_groups_are_served_in_a_new_cluster_until_the_feature_is_lowered(harness: BrokerHarness) -> None:
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    assert ErrorCode.UNSUPPORTED_VERSION not in codes(harness)
    lower = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("group.version", 0, False, 2)])
    assert harness.ask(lower, 1).error_code == ErrorCode.NONE
    assert codes(harness) == {ErrorCode.UNSUPPORTED_VERSION}


def test_groups_are_refused_if_the_protocol_is_not_enabled(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocols = {"group.coordinator.rebalance.protocols": ("classic",)}
    monkeypatch.setattr(harness.broker.settings.static, "items", protocols.__getitem__)
    assert codes(harness) == {ErrorCode.UNSUPPORTED_VERSION}
