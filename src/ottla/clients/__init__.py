"""Python clients for Ottla and any Kafka: Producer, Consumer, Admin, each blocking or (`Async...`) for asyncio.

Every name here is imported on first use. Read `errors` for what they raise, `options` for their settings, then
`network` and `cluster` for what they share, then `producer`, `consumer`, `admin`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clients.admin import Admin as Admin
    from ottla.clients.admin import AsyncAdmin as AsyncAdmin
    from ottla.clients.consumer import AsyncConsumer as AsyncConsumer
    from ottla.clients.consumer import Consumer as Consumer
    from ottla.clients.consumer import OffsetAndMetadata as OffsetAndMetadata
    from ottla.clients.consumer import Record as Record
    from ottla.clients.errors import AuthenticationFailed as AuthenticationFailed
    from ottla.clients.errors import BrokerError as BrokerError
    from ottla.clients.errors import BrokerUnavailable as BrokerUnavailable
    from ottla.clients.errors import BufferExhausted as BufferExhausted
    from ottla.clients.errors import ClientError as ClientError
    from ottla.clients.errors import Closed as Closed
    from ottla.clients.errors import ClusterAuthorizationFailed as ClusterAuthorizationFailed
    from ottla.clients.errors import ConcurrentUse as ConcurrentUse
    from ottla.clients.errors import ConfigurationError as ConfigurationError
    from ottla.clients.errors import ConnectionLost as ConnectionLost
    from ottla.clients.errors import CorruptRecords as CorruptRecords
    from ottla.clients.errors import DeliveryTimedOut as DeliveryTimedOut
    from ottla.clients.errors import DeserializationFailed as DeserializationFailed
    from ottla.clients.errors import DuplicateResource as DuplicateResource
    from ottla.clients.errors import FencedInstance as FencedInstance
    from ottla.clients.errors import GroupAuthorizationFailed as GroupAuthorizationFailed
    from ottla.clients.errors import GroupNotFound as GroupNotFound
    from ottla.clients.errors import GroupSubscribedToTopic as GroupSubscribedToTopic
    from ottla.clients.errors import IllegalGeneration as IllegalGeneration
    from ottla.clients.errors import InconsistentGroupProtocol as InconsistentGroupProtocol
    from ottla.clients.errors import InvalidConfig as InvalidConfig
    from ottla.clients.errors import InvalidPartitions as InvalidPartitions
    from ottla.clients.errors import InvalidRecord as InvalidRecord
    from ottla.clients.errors import InvalidReplicationFactor as InvalidReplicationFactor
    from ottla.clients.errors import InvalidTimestamp as InvalidTimestamp
    from ottla.clients.errors import InvalidTopic as InvalidTopic
    from ottla.clients.errors import LogTruncated as LogTruncated
    from ottla.clients.errors import MessageTooLarge as MessageTooLarge
    from ottla.clients.errors import NonEmptyGroup as NonEmptyGroup
    from ottla.clients.errors import NotAssigned as NotAssigned
    from ottla.clients.errors import NotAuthorized as NotAuthorized
    from ottla.clients.errors import NotEnoughReplicas as NotEnoughReplicas
    from ottla.clients.errors import OffsetOutOfRange as OffsetOutOfRange
    from ottla.clients.errors import OutOfOrderSequence as OutOfOrderSequence
    from ottla.clients.errors import PolicyViolation as PolicyViolation
    from ottla.clients.errors import ProducerFenced as ProducerFenced
    from ottla.clients.errors import RebalanceInProgress as RebalanceInProgress
    from ottla.clients.errors import RequestTimedOut as RequestTimedOut
    from ottla.clients.errors import ResourceNotFound as ResourceNotFound
    from ottla.clients.errors import SerializationFailed as SerializationFailed
    from ottla.clients.errors import TlsFailed as TlsFailed
    from ottla.clients.errors import TopicAlreadyExists as TopicAlreadyExists
    from ottla.clients.errors import TopicAuthorizationFailed as TopicAuthorizationFailed
    from ottla.clients.errors import UnknownMember as UnknownMember
    from ottla.clients.errors import UnknownProducerId as UnknownProducerId
    from ottla.clients.errors import UnknownTopicId as UnknownTopicId
    from ottla.clients.errors import UnknownTopicOrPartition as UnknownTopicOrPartition
    from ottla.clients.errors import UnsupportedByBroker as UnsupportedByBroker
    from ottla.clients.errors import UnsupportedMechanism as UnsupportedMechanism
    from ottla.clients.errors import Wakeup as Wakeup
    from ottla.clients.producer import AsyncProducer as AsyncProducer
    from ottla.clients.producer import Delivery as Delivery
    from ottla.clients.producer import Producer as Producer
    from ottla.clients.producer import RecordMetadata as RecordMetadata
    from ottla.common.ids import TopicPartition as TopicPartition

_HOME = {
    "Admin": "ottla.clients.admin",
    "AsyncAdmin": "ottla.clients.admin",
    "Producer": "ottla.clients.producer",
    "AsyncProducer": "ottla.clients.producer",
    "Delivery": "ottla.clients.producer",
    "RecordMetadata": "ottla.clients.producer",
    "Consumer": "ottla.clients.consumer",
    "AsyncConsumer": "ottla.clients.consumer",
    "OffsetAndMetadata": "ottla.clients.consumer",
    "Record": "ottla.clients.consumer",
    "TopicPartition": "ottla.common.ids",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        if not name[:1].isupper():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "ottla.clients.errors"
    try:
        value: object = getattr(importlib.import_module(home), name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = value
    return value
