"""The requests of other brokers to the share coordinator: limits, and the forms that Kafka accepts. KIP-932.

`tests/clients/test_share_state_requests.py` compares the responses with stock Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.share.shard import MOST_BATCHES_IN_WRITE
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.protocol.messages.write_share_group_state import StateBatch

from .harness import BrokerHarness, open_harness

ACKNOWLEDGED = 2
TOPIC = "t"


class Coordinator:
    """A broker whose share coordinator stores the state of partition 0 of a topic."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.topic_id = harness.create(TOPIC, partitions=2)
        harness.broker.shares.coordinator.shards.topic.ensure()
        harness.loop.run()

    def initialize(self, *rows: tuple[int, int, int]) -> list[tuple[int, int]]:
        module = initialize_share_group_state
        topic = module.InitializeStateData(self.topic_id, [module.PartitionData(*row) for row in rows])
        return self._errors(module.InitializeShareGroupStateRequest("g", [topic]))

    def write(self, *batches: tuple[int, int, int, int]) -> list[tuple[int, int]]:
        module = write_share_group_state
        rows = [StateBatch(*batch) for batch in batches]
        partition = module.PartitionData(0, 1, 0, -1, 0, rows)
        return self._errors(
            module.WriteShareGroupStateRequest("g", [module.WriteStateData(self.topic_id, [partition])])
        )

    def read(self) -> Any:
        module = read_share_group_state
        topic = module.ReadStateData(self.topic_id, [module.PartitionData(0, 0)])
        return self.harness.ask(module.ReadShareGroupStateRequest("g", [topic])).results[0].partitions[0]

    def summary(self, version: int, partition: int = 0) -> Any:
        module = read_share_group_state_summary
        topic = module.ReadStateSummaryData(self.topic_id, [module.PartitionData(partition, 0)])
        request = module.ReadShareGroupStateSummaryRequest("g", [topic])
        return self.harness.ask(request, version).results[0].partitions[0]

    def delete(self) -> list[tuple[int, int]]:
        module = delete_share_group_state
        topic = module.DeleteStateData(self.topic_id, [module.PartitionData(0)])
        return self._errors(module.DeleteShareGroupStateRequest("g", [topic]))

    def _errors(self, request: Any) -> list[tuple[int, int]]:
        response = self.harness.ask(request)
        return [(row.partition, row.error_code) for topic in response.results for row in topic.partitions]


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with open_harness(tmp_path) as harness:
        yield Coordinator(harness)


def test_state_is_written_read_and_deleted(coordinator: Coordinator) -> None:
    assert coordinator.initialize((0, 1, 5)) == [(0, 0)]
    assert coordinator.write((5, 9, ACKNOWLEDGED, 1), (12, 12, 0, 2)) == [(0, 0)]
    row = coordinator.read()
    assert (row.state_epoch, row.start_offset) == (1, 5)
    assert row.state_batches == [
        read_share_group_state.StateBatch(5, 9, ACKNOWLEDGED, 1),
        read_share_group_state.StateBatch(12, 12, 0, 2),
    ]
    assert coordinator.summary(1).delivery_complete_count == 0
    assert coordinator.delete() == [(0, 0)]
    assert coordinator.summary(0).start_offset == -1
    assert coordinator.read().error_code == ErrorCode.INVALID_REQUEST


def test_without_the_state_topic_no_broker_is_the_coordinator(harness: BrokerHarness) -> None:
    module = read_share_group_state_summary
    topic = module.ReadStateSummaryData(harness.create(TOPIC), [module.PartitionData(0, 0)])
    row = harness.ask(module.ReadShareGroupStateSummaryRequest("g", [topic])).results[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_COORDINATOR
    assert row.error_message.startswith("Unable to read share group state summary: ")


def test_repeated_partition_has_the_last_result(coordinator: Coordinator) -> None:
    assert coordinator.initialize((0, 3, 5), (1, 1, 0), (0, 2, 7)) == [(0, ErrorCode.FENCED_STATE_EPOCH), (1, 0)]
    assert coordinator.summary(1).start_offset == 5


@pytest.mark.parametrize(
    "batch", [(9, 5, ACKNOWLEDGED, 1), (-1, 5, ACKNOWLEDGED, 1), (0, 5, 3, 1), (0, 5, ACKNOWLEDGED, -1)]
)
def test_state_that_the_leader_could_not_load_is_refused(
    coordinator: Coordinator, batch: tuple[int, int, int, int]
) -> None:
    coordinator.initialize((0, 1, 0))
    assert coordinator.write((0, 1, ACKNOWLEDGED, 1), batch) == [(0, ErrorCode.INVALID_REQUEST)]
    assert coordinator.read().state_batches == []


def test_number_of_state_batches_in_a_write_is_limited(coordinator: Coordinator) -> None:
    coordinator.initialize((0, 1, 0))
    batches = [(2 * offset, 2 * offset, ACKNOWLEDGED, 1) for offset in range(MOST_BATCHES_IN_WRITE + 1)]
    assert coordinator.write(*batches) == [(0, ErrorCode.INVALID_REQUEST)]
    assert coordinator.write(*batches[1:]) == [(0, 0)]
