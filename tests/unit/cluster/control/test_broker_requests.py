"""The requests of brokers on the controller's listener, through the dispatcher, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.dispatch import Dispatcher
from ottla.broker.served import CONTROLLER_HANDLERS, CONTROLLER_ONLY, CONTROLLER_SERVED, SERVED
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from tests.unit.broker.harness import BrokerHarness
from tests.unit.controller.support import registration

STALE = ErrorCode.STALE_BROKER_EPOCH


@pytest.fixture
def controller(harness: BrokerHarness) -> BrokerHarness:
    harness.dispatch = Dispatcher(harness.broker, CONTROLLER_SERVED, CONTROLLER_HANDLERS)
    return harness


def test_clients_cannot_send_requests_of_brokers(harness: BrokerHarness) -> None:
    assert not CONTROLLER_ONLY & SERVED.keys()
    with pytest.raises(KafkaError):
        harness.ask(AllocateProducerIdsRequest(1, 0))


@pytest.mark.parametrize("version", [2, 3, 4])
def test_broker_registers_and_is_unfenced_by_a_heartbeat(controller: BrokerHarness, version: int) -> None:
    registered = controller.ask(registration(2), version)
    assert (registered.error_code, registered.broker_epoch > 0) == (0, True)
    image = controller.broker.metadata.image
    assert image.brokers[2].fenced
    for beat_version in (0, 1, 2):
        request = BrokerHeartbeatRequest(2, registered.broker_epoch, image.offset)
        beat = controller.ask(request, beat_version)
        assert (beat.error_code, beat.is_caught_up, beat.is_fenced) == (0, True, False)
    assert not controller.broker.metadata.image.brokers[2].fenced


def test_registration_of_another_cluster_or_of_a_live_broker_is_refused(controller: BrokerHarness) -> None:
    foreign = registration(2)
    foreign.cluster_id = "another"
    answer = controller.ask(foreign)
    assert (answer.error_code, answer.broker_epoch) == (ErrorCode.INCONSISTENT_CLUSTER_ID, -1)
    assert controller.ask(registration(2)).error_code == 0
    assert controller.ask(registration(2, incarnation=2)).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize("version", [2, 3])
def test_leader_changes_the_isr(controller: BrokerHarness, version: int) -> None:
    topic_id = controller.create("t")
    epoch = controller.broker.metadata.image.brokers[1].epoch
    data = RequestPartitionData(0, 0, [1], [BrokerState(1, epoch)], 0, 0)
    request = AlterPartitionRequest(1, epoch, [RequestTopicData(topic_id, [data])])
    answer = controller.ask(request, version)
    [partition] = answer.topics[0].partitions
    assert (answer.error_code, partition.error_code, partition.isr, partition.leader_id) == (0, 0, [1], 1)


@pytest.mark.parametrize(
    "request_",
    [
        BrokerHeartbeatRequest(1, 999),
        AlterPartitionRequest(1, 999),
        AllocateProducerIdsRequest(1, 999),
        AssignReplicasToDirsRequest(1, 999),
        BrokerHeartbeatRequest(77, 0),
    ],
    ids=lambda request: type(request).__name__,
)
def test_forged_broker_epoch_is_refused(controller: BrokerHarness, request_: Any) -> None:
    before = controller.broker.metadata.image
    assert controller.ask(request_).error_code == STALE
    assert controller.broker.metadata.image is before


def test_producer_ids_and_controllers(controller: BrokerHarness) -> None:
    epoch = controller.broker.metadata.image.brokers[1].epoch
    first, second = (controller.ask(AllocateProducerIdsRequest(1, epoch)) for _ in range(2))
    assert second.producer_id_start == first.producer_id_start + first.producer_id_len
    assert controller.ask(ControllerRegistrationRequest(controller_id=5)).error_code == 0
    assert 5 in controller.broker.metadata.image.controllers


def test_node_that_does_not_lead_answers_not_controller(controller: BrokerHarness) -> None:
    controller.broker.metadata.close()
    for request in (registration(2), BrokerHeartbeatRequest(1, 0), ControllerRegistrationRequest(3)):
        assert controller.ask(request).error_code == ErrorCode.NOT_CONTROLLER
