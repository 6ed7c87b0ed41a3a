"""The requests of this broker and of its clients to the active controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.auto_topic_creation import AutoTopicCreation
from ottla.broker.forwarding import Forwarding
from ottla.broker.streams_topics import StreamsTopics
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordination.internal_topic_settings import INTERNAL_TOPIC_SETTINGS, InternalTopicSettings
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.cluster.controller_channel import ControllerChannel
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.node.settings import NodeSettings
    from ottla.protocol.messages.create_topics import CreateTopicsResponse

# How long this broker's own requests wait for the active controller.
TIMEOUT_S = 30.0


class ControllerClient:
    """Sends this broker's requests on `channel`, and its clients' requests, which take longer, on `forwarding`."""

    def __init__(
        self,
        settings: NodeSettings,
        metadata: MetadataShell,
        channel: ControllerChannel,
        forwarding_channel: ControllerChannel,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self.channel = channel
        self._forwarding_channel = forwarding_channel
        self.forwarding = Forwarding(forwarding_channel)
        self.auto_topic_creation = AutoTopicCreation(self.create_topics)
        self.streams_topics = StreamsTopics(lambda request: channel.send(request, timeout_s=TIMEOUT_S))

    def create_topics(self, names: Iterable[str]) -> Completion[dict[str, KafkaError]]:
        """Create topics with the broker's defaults; completes with the errors by topic, except TOPIC_ALREADY_EXISTS."""
        request = CreateTopicsRequest(topics=[self._topic_to_create(name) for name in names])
        return self.channel.send(request, timeout_s=TIMEOUT_S).then(_failures)

    def create_internal_topic(self, name: str) -> Completion[None]:
        """Create a coordinator's topic; the completion fails with the KafkaError of the topic."""

        def created(failures: dict[str, KafkaError]) -> None:
            if failures:
                raise failures[name]

        return self.create_topics([name]).then(created)

    def allocate_producer_ids(self) -> Completion[AllocateProducerIdsResponse]:
        """Allocate a block of producer ids; fails with an error that clients retry if the controller is not reached."""
        node_id = self._settings.static.node_id
        registered = self._metadata.image.brokers.get(node_id)
        request = AllocateProducerIdsRequest(node_id, -1 if registered is None else registered.epoch)

        def check(response: AllocateProducerIdsResponse) -> AllocateProducerIdsResponse:
            if response.error_code:
                raise KafkaError(_retriable(response.error_code), "The controller allocated no producer ids")
            return response

        def failed(error: KafkaError) -> AllocateProducerIdsResponse:
            raise KafkaError(_retriable(error.code), error.message) from error

        return self.channel.send(request, timeout_s=TIMEOUT_S).then(check).otherwise(failed)

    def close(self) -> None:
        """Close the connections to the active controller; requests that wait for it fail."""
        self.channel.close()
        self._forwarding_channel.close()

    def _topic_to_create(self, name: str) -> CreatableTopic:
        if name not in INTERNAL_TOPIC_SETTINGS:
            return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        wanted = InternalTopicSettings.of(name, self._settings.current.__getitem__)
        return CreatableTopic(
            name=name,
            num_partitions=wanted.partitions,
            replication_factor=wanted.replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in wanted.configs.items()],
        )


def _retriable(code: int) -> ErrorCode:
    """The error of InitProducerId, which clients retry where the controller is only not reached yet, as in Kafka."""
    temporary = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH)
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in temporary else ErrorCode(code)


def _failures(response: CreateTopicsResponse) -> dict[str, KafkaError]:
    fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    return {
        topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message)
        for topic in response.topics
        if topic.error_code not in fine
    }
