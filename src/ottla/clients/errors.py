"""Every exception that a client raises, in one tree; each knows whether the same call may succeed when repeated.

    ClientError                       .retriable
    ├── ConfigurationError            (also a ValueError) a setting is unknown, or its value is wrong
    ├── Closed                        the client was closed
    ├── BrokerUnavailable             no broker of the cluster could be reached
    │   └── TlsFailed                 something listens, but a TLS connection to it is not to be had as configured
    ├── ConnectionLost                retriable: the connection ended before the answer
    ├── RequestTimedOut               retriable: no answer in time
    ├── UnsupportedByBroker           the broker is too old for what was asked
    ├── BufferExhausted               retriable: buffer.memory is full and stayed so for max.block.ms
    ├── DeliveryTimedOut              not delivered within delivery.timeout.ms; it may have been written all the same
    ├── Purged                        the caller purged the record; if it was sent, it may have been written
    ├── ConcurrentUse                 a poll of this consumer is under way, in another thread or around a listener
    ├── Wakeup                        the poll was ended by wakeup()
    ├── NotAssigned                   the partition does not belong to this consumer
    ├── NotSubscribed                 the consumer has neither a subscription nor an assignment
    ├── SerializationFailed           a serializer refused a key or value
    ├── DeserializationFailed         a deserializer refused a key or value; .topic .partition .offset
    ├── CorruptRecords                records that are not what was written; .topic .partition .offset
    └── BrokerError                   .code: the broker's answer
        ├── UnknownTopicOrPartition, UnknownTopicId, TopicAlreadyExists, InvalidTopic, InvalidPartitions,
        │   InvalidReplicationFactor, InvalidConfig, PolicyViolation
        ├── MessageTooLarge, InvalidRecord, InvalidTimestamp, NotEnoughReplicas, OutOfOrderSequence, UnknownProducerId
        ├── ProducerFenced
        ├── OffsetOutOfRange          LogTruncated: what was read is not in the log any more; .offset .diverged_at
        ├── GroupNotFound, NonEmptyGroup, GroupSubscribedToTopic, RebalanceInProgress, IllegalGeneration,
        │   UnknownMember, FencedInstance, InconsistentGroupProtocol
        ├── AuthenticationFailed          the broker does not believe who this client is
        │   └── UnsupportedMechanism      it does not log anybody in by this SASL mechanism
        ├── ResourceNotFound, DuplicateResource
        └── NotAuthorized             TopicAuthorizationFailed, GroupAuthorizationFailed, ClusterAuthorizationFailed

Where the broker's answer came with an error code, the exception is a BrokerError: of its own class if people catch it,
else of BrokerError itself with `.code`.
"""

from __future__ import annotations

from typing import ClassVar

from ottla.common.errors import ErrorCode


class ClientError(Exception):
    """The root. `retriable`: whether the same call may succeed when it is made again."""

    retriable: bool = False


class ConfigurationError(ClientError, ValueError):
    """A setting is unknown, or its value is wrong; the message says which and what it may be."""


class Closed(ClientError):
    """The client was closed before or during the call."""


class BrokerUnavailable(ClientError):
    """No broker of the cluster could be reached; the message names each address and its problem.

    Retriable if an address refused or did not answer, not if no name resolves or nothing there speaks Kafka.
    """

    def __init__(self, message: str, *, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable


class TlsFailed(BrokerUnavailable):
    """No TLS connection: a certificate that is not trusted, not for this host, or out of date, or no TLS at all.

    The message says what is wrong and which setting is about it. Not retriable.
    """

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message, retriable=retriable)


class ConnectionLost(ClientError):
    """The connection ended before the answer: what was asked may have been done, or not. Retriable."""

    retriable = True


class RequestTimedOut(ClientError):
    """No answer in time: what was asked may have been done, or not. Retriable."""

    retriable = True


class UnsupportedByBroker(ClientError):
    """The broker does not serve the API, or no version that has what was asked for."""


class BufferExhausted(ClientError):
    """No room in buffer.memory within max.block.ms: the brokers take less than is sent. Retriable."""

    retriable = True


class DeliveryTimedOut(ClientError):
    """Not acknowledged within delivery.timeout.ms. It may be in the log all the same: sending again may double it."""


class Purged(ClientError):
    """The caller gave the record up by `purge`. The message says whether it was sent: then it may have been written."""


class ConcurrentUse(ClientError):
    """Only one poll of a consumer at a time: one is under way in another thread or task, or calls this listener."""


class Wakeup(ClientError):
    """The poll ended because somebody called `wakeup`; nothing is lost, the next poll goes on."""


class NotAssigned(ClientError):
    """The partition is not assigned to this consumer (any more)."""


class NotSubscribed(ClientError):
    """A poll without `subscribe` or `assign` would never return a record."""


class SerializationFailed(ClientError):
    """A serializer raised (the cause) on a key or value; nothing was sent."""


class _AtOffset(ClientError):
    def __init__(self, message: str, *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class DeserializationFailed(_AtOffset):
    """A deserializer raised (the cause) on the key or value (`what`) of the record at topic, partition, offset.

    `record` is that record with its bytes, for a topic of such records.
    """

    what: str = ""
    record: object = None


class CorruptRecords(_AtOffset):
    """The batch at topic, partition, offset fails its checksum or cannot be read."""

    next_offset: int = -1
    """The offset after the batch, as far as its header can be trusted; -1 if there is no telling."""


class BrokerError(ClientError):
    """The broker answered with an error. `code` is Kafka's; `retriable` as Kafka has it for the code."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    by_code: ClassVar[dict[ErrorCode, type[BrokerError]]] = {}

    def __init_subclass__(cls, *, code: ErrorCode | None = None) -> None:
        if code is not None:
            cls.code = code
            BrokerError.by_code[code] = cls

    def __init__(self, message: str | None = None, *, code: ErrorCode | None = None) -> None:
        if code is not None:
            self.code = code
        super().__init__(message or self.code.text)
        self.retriable = self.code.retriable


class UnknownTopicOrPartition(BrokerError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """There is no such topic or partition, as far as the broker knows yet."""


class UnknownTopicId(BrokerError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """The topic was deleted, or made anew under its name."""


class TopicAlreadyExists(BrokerError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic of that name exists."""


class InvalidTopic(BrokerError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """No topic may have that name, or it is the cluster's own."""


class InvalidPartitions(BrokerError, code=ErrorCode.INVALID_PARTITIONS):
    """No topic may have that number of partitions, or this one not fewer than it has."""


class InvalidReplicationFactor(BrokerError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The cluster has not that many brokers."""


class InvalidConfig(BrokerError, code=ErrorCode.INVALID_CONFIG):
    """A setting of a topic, broker or group is unknown or its value wrong."""


class PolicyViolation(BrokerError, code=ErrorCode.POLICY_VIOLATION):
    """The cluster's own rules forbid it."""


class MessageTooLarge(BrokerError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """Larger than the topic's max.message.bytes."""


class InvalidRecord(BrokerError, code=ErrorCode.INVALID_RECORD):
    """The broker refuses the record: no key in a compacted topic, for one."""


class InvalidTimestamp(BrokerError, code=ErrorCode.INVALID_TIMESTAMP):
    """The record's timestamp is too far from the broker's clock."""


class NotEnoughReplicas(BrokerError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer replicas in sync than min.insync.replicas."""


class OutOfOrderSequence(BrokerError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A batch before this one is missing in the log."""


class UnknownProducerId(BrokerError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The broker has nothing of this producer any more."""


class ProducerFenced(BrokerError, code=ErrorCode.PRODUCER_FENCED):
    """A newer producer took over the transactional id."""


class OffsetOutOfRange(BrokerError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The log has no such offset: it was deleted, or is not written yet."""


class LogTruncated(OffsetOutOfRange):
    """A new leader's log ends before the position, or went another way: records that were read are lost (KIP-320).

    `diverged_at` is the first offset that is not what was read, None if nobody knows; `offset` is the position.
    """

    def __init__(
        self, message: str | None = None, *, topic: str = "", partition: int = -1, offset: int = -1,
        diverged_at: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.diverged_at = diverged_at


class GroupNotFound(BrokerError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """There is no such group."""


class NonEmptyGroup(BrokerError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group has members."""


class GroupSubscribedToTopic(BrokerError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """The group has members that read the topic."""


class RebalanceInProgress(BrokerError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is assigning its partitions again: poll, then repeat the call."""


class IllegalGeneration(BrokerError, code=ErrorCode.ILLEGAL_GENERATION):
    """The group went on without this member: its partitions may be another's."""


class UnknownMember(BrokerError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group does not know this member (any more)."""


class FencedInstance(BrokerError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another consumer joined with the same group.instance.id."""


class InconsistentGroupProtocol(BrokerError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The members have no assignor in common, or the group is of another kind."""


class AuthenticationFailed(BrokerError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """The broker does not believe who this client is: a wrong user name, password or token. Not retriable."""


class UnsupportedMechanism(AuthenticationFailed, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """The broker does not log anybody in by this SASL mechanism; the message names those that it offers."""


class ResourceNotFound(BrokerError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """There is nothing of that name: for SCRAM, no credential of that user and mechanism."""


class DuplicateResource(BrokerError, code=ErrorCode.DUPLICATE_RESOURCE):
    """The same thing is named twice in one request."""


class NotAuthorized(BrokerError):
    """The principal may not do that."""


class TopicAuthorizationFailed(NotAuthorized, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """Not allowed on the topic."""


class GroupAuthorizationFailed(NotAuthorized, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """Not allowed on the group."""


class ClusterAuthorizationFailed(NotAuthorized, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """Not allowed on the cluster."""


def error_for(code: int, message: str | None = None) -> BrokerError:
    """The exception for an error code of the protocol; `message` as the broker gave it, else the code in words."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return BrokerError(f"Error code {code}, which this client does not know: {message or 'no message'}")
    kind = BrokerError.by_code.get(known, BrokerError)
    return kind(message, code=known)
