"""A controller registers with the active one until the metadata has its registration."""

from __future__ import annotations

from ottla.cluster.control.registrar import ControllerRegistrar
from ottla.cluster.controller_channel import ControllerChannel
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.unit.broker.harness import ManualLoop
from tests.unit.controller.support import Cluster

from .support import Channels, Quorum


def request(incarnation: int = 1) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(controller_id=2, incarnation_id=bytes([incarnation]) * 16)


class World:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.cluster = Cluster(1)
        self.channels = Channels()
        quorum = Quorum()
        quorum.elect(3)
        channel = ControllerChannel(quorum, self.loop, self.loop.call_later, self.channels)
        self.registrar = ControllerRegistrar(request(), channel, self.loop.call_later)

    def publish(self) -> None:
        self.registrar.metadata_published(self.cluster.controller.image)


def test_registration_is_sent_once_and_again_only_after_an_error() -> None:
    world = World()
    world.publish()
    world.publish()
    assert world.channels.nodes == [3]
    world.channels.answer(ControllerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    world.publish()
    assert not world.channels.sent
    world.loop.advance(1_000)
    assert world.channels.nodes == [3]
    world.channels.answer(ControllerRegistrationResponse(error_code=0))
    world.cluster.do(world.cluster.controller.register_controller(request()))
    world.publish()
    world.loop.advance(10_000)
    assert not world.channels.sent
    world.cluster.do(world.cluster.controller.register_controller(request(incarnation=2)))
    world.publish()
    assert world.channels.nodes == [3], "another process registered meanwhile"
    world.registrar.close()
    world.channels.answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"))
    assert not world.loop.pending_timers


def test_feature_level_that_a_registered_controller_does_not_support_is_refused() -> None:
    cluster = Cluster(1)
    registration = request()
    registration.features = [Feature("metadata.version", 7, 29)]
    cluster.do(cluster.controller.register_controller(registration))
    update = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("group.version", 0, False, 3)])
    assert cluster.do(cluster.controller.update_features(update)).error_code == 0
    update = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("group.version", 1, False, 1)])
    response = cluster.do(cluster.controller.update_features(update))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Controller 2 only supports versions 0-0" in (response.error_message or "")
