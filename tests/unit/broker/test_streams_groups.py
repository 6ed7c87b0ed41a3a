"""Streams groups are refused at once, as by Kafka without the feature."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

from .harness import BrokerHarness


def test_heartbeat_of_a_streams_group_is_refused_with_the_setting_to_change(harness: BrokerHarness) -> None:
    answer = harness.ask(StreamsGroupHeartbeatRequest(group_id="app", member_id="m", member_epoch=0))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "group.protocol=classic" in answer.error_message


def test_each_described_streams_group_is_refused(harness: BrokerHarness) -> None:
    answer = harness.ask(StreamsGroupDescribeRequest(group_ids=["a", "b", "a"]))
    assert [(group.group_id, group.error_code) for group in answer.groups] == [
        (name, ErrorCode.UNSUPPORTED_VERSION) for name in ("a", "b", "a")
    ]
