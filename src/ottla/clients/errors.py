"""The tree of exceptions that clients raise. `retriable` says whether the same call may succeed when repeated.

    ClientError                       .retriable
    ├── ConfigurationError            (also a ValueError) a setting is unknown, or its value is wrong
    ├── Closed                        the client was closed
    ├── BrokerUnavailable             no broker of the cluster could be reached
    │   └── TlsFailed                 something listens, but no TLS connection to it is possible as configured
    ├── ConnectionLost                retriable: the connection ended before the response
    ├── RequestTimedOut               retriable: no response in time
    ├── UnsupportedByBroker           the broker is too old for the request
    ├── BufferExhausted               retriable: buffer.memory is full and stayed so for max.block.ms
    ├── DeliveryTimedOut              not acknowledged within delivery.timeout.ms; it may have been written
    ├── Purged                        the caller purged the record; if it was sent, it may have been written
    ├── ConcurrentUse                 a poll of this consumer is running, in another thread or around a listener
    ├── Wakeup                        the poll was ended by wakeup()
    ├── NotAssigned                   the partition does not belong to this consumer
    ├── NotSubscribed                 the consumer has neither a subscription nor an assignment
    ├── InvalidTransactionState       the call does not fit the state of the transaction; nothing changed
    ├── TransactionFailed             abort: the transaction cannot be committed; abort it, then repeat it
    ├── TransactionAborted            the record was not sent, because its transaction was aborted
    ├── ProducerUnusable              close: this transactional producer cannot continue; create another one
    │   └── ProducerFenced            (also a BrokerError) another producer took over the transactional id
    ├── SerializationFailed           a serializer rejected a key or value
    ├── DeserializationFailed         a deserializer rejected a key or value; .topic .partition .offset
    ├── CorruptRecords                a batch with a wrong checksum or content; .topic .partition .offset
    └── BrokerError                   .code: the broker's error code
        ├── UnknownTopicOrPartition, UnknownTopicId, TopicAlreadyExists, InvalidTopic, InvalidPartitions,
        │   InvalidReplicationFactor, InvalidConfig, PolicyViolation
        ├── MessageTooLarge, InvalidRecord, InvalidTimestamp, NotEnoughReplicas, OutOfOrderSequence, UnknownProducerId
        ├── InvalidProducerEpoch, TransactionalIdNotFound
        ├── OffsetOutOfRange          LogTruncated: records that were read are lost; .offset .diverged_at
        ├── GroupNotFound, NonEmptyGroup, GroupSubscribedToTopic, RebalanceInProgress, IllegalGeneration,
        │   UnknownMember, FencedInstance, InconsistentGroupProtocol
        ├── AuthenticationFailed          the broker rejects the credentials
        │   └── UnsupportedMechanism      the broker does not support this SASL mechanism
        ├── ResourceNotFound, DuplicateResource
        └── NotAuthorized             TopicAuthorizationFailed, GroupAuthorizationFailed, ClusterAuthorizationFailed,
                                      TransactionalIdAuthorizationFailed

An error code in a response becomes a BrokerError: a subclass if programs catch the code, else BrokerError itself.
"""

from __future__ import annotations

from typing import ClassVar

from ottla.common.errors import ErrorCode


class ClientError(Exception):
    """The root of the tree. `retriable`: whether the same call may succeed when repeated."""

    retriable: bool = False


class ConfigurationError(ClientError, ValueError):
    """A setting is unknown, or its value is wrong; the message has the name and the allowed values."""


class Closed(ClientError):
    """The client was closed before or during the call."""


class BrokerUnavailable(ClientError):
    """No broker of the cluster could be reached; the message names each address and its problem.

    Retriable if an address refused or did not answer; not if no name resolves or no server there speaks Kafka.
    """

    def __init__(self, message: str, *, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable


class TlsFailed(BrokerUnavailable):
    """No TLS connection: the certificate is not trusted, not for this host or expired, or the server does not use TLS.

    The message names the problem and the setting. Not retriable.
    """

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message, retriable=retriable)


class ConnectionLost(ClientError):
    """The connection ended before the response: the request may have been executed or not. Retriable."""

    retriable = True


class RequestTimedOut(ClientError):
    """No response in time: the request may have been executed or not. Retriable."""

    retriable = True


class UnsupportedByBroker(ClientError):
    """The broker does not support the API, or not in a version with the requested feature."""


class BufferExhausted(ClientError):
    """buffer.memory stayed full for max.block.ms: the brokers accept less than is sent. Retriable."""

    retriable = True


class DeliveryTimedOut(ClientError):
    """Not acknowledged within delivery.timeout.ms. The record may be in the log: sending it again may duplicate it."""


class Purged(ClientError):
    """The caller purged the record. The message says whether it was sent; then it may have been written."""


class ConcurrentUse(ClientError):
    """Another poll of the consumer is running, in another thread or task or around this listener."""


class Wakeup(ClientError):
    """`wakeup` ended the poll; no record is lost, and the next poll continues."""


class NotAssigned(ClientError):
    """The partition is not assigned to this consumer (any more)."""


class NotSubscribed(ClientError):
    """A poll without `subscribe` or `assign` would never return a record."""


class InvalidTransactionState(ClientError):
    """The call does not fit the state of the transaction, for example `send` outside one. Nothing changed."""


class TransactionFailed(ClientError):
    """The transaction cannot be committed (the cause says why): call `abort_transaction`, then repeat the transaction.

    A consumer whose records were processed in it must read them again (`seek_to_committed`).
    """


class TransactionAborted(ClientError):
    """The record was not sent, or no longer repeated, because its transaction was aborted."""


class ProducerUnusable(ClientError):
    """This transactional producer cannot continue (the cause says why): close it, and create another one.

    Its records in an open transaction are aborted, at the latest by the new producer's `init_transactions`.
    """


class SerializationFailed(ClientError):
    """A serializer raised (the cause) on a key or value; nothing was sent.

    Serializers of a schema registry set `topic`, `subject` and `field`. Retriable if the registry was not reached.
    """

    topic: str = ""
    subject: str = ""
    field: str = ""


class _AtOffset(ClientError):
    def __init__(self, message: str, *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class DeserializationFailed(_AtOffset):
    """A deserializer raised (the cause) on the key or value (`what`) of the record at topic, partition, offset.

    `record` is that record with its bytes, for example for a dead letter topic. Deserializers of a schema registry set
    `subject` and `field`. It is retriable if the registry was not reached: then the next poll returns the same record.
    """

    what: str = ""
    subject: str = ""
    field: str = ""
    record: object = None


class CorruptRecords(_AtOffset):
    """The batch at topic, partition, offset fails its checksum or cannot be read."""

    next_offset: int = -1
    """The offset after the batch according to its header; -1 if the header is corrupt."""


class BrokerError(ClientError):
    """The broker returned an error. `code` is Kafka's, and `retriable` follows from it as in Kafka."""

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
    """The broker does not know the topic or partition (yet)."""


class UnknownTopicId(BrokerError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """The topic was deleted, or recreated under its name."""


class TopicAlreadyExists(BrokerError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic with this name exists."""


class InvalidTopic(BrokerError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The name is not allowed for topics, or belongs to an internal topic."""


class InvalidPartitions(BrokerError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions is not allowed; a topic cannot lose partitions."""


class InvalidReplicationFactor(BrokerError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The cluster does not have enough brokers."""


class InvalidConfig(BrokerError, code=ErrorCode.INVALID_CONFIG):
    """A setting of a topic, broker or group is unknown or its value wrong."""


class PolicyViolation(BrokerError, code=ErrorCode.POLICY_VIOLATION):
    """A policy of the cluster forbids the request."""


class MessageTooLarge(BrokerError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """The batch is larger than the topic's max.message.bytes."""


class InvalidRecord(BrokerError, code=ErrorCode.INVALID_RECORD):
    """The broker rejects the record, for example one without a key in a compacted topic."""


class InvalidTimestamp(BrokerError, code=ErrorCode.INVALID_TIMESTAMP):
    """The record's timestamp is too far from the broker's clock."""


class NotEnoughReplicas(BrokerError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer replicas are in sync than min.insync.replicas."""


class OutOfOrderSequence(BrokerError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A batch before this one is missing in the log."""


class UnknownProducerId(BrokerError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The broker does not have the state of this producer any more."""


class ProducerFenced(ProducerUnusable, BrokerError, code=ErrorCode.PRODUCER_FENCED):
    """Another producer took over the transactional id, or the transaction exceeded transaction.timeout.ms. Close it."""


class InvalidProducerEpoch(BrokerError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """The broker knows a newer epoch of this producer."""


class TransactionalIdNotFound(BrokerError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    """No producer with this transactional id is known (any more)."""


class OffsetOutOfRange(BrokerError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The log does not contain the offset: it was deleted, or is not written yet."""


class LogTruncated(OffsetOutOfRange):
    """The log of a new leader ends before the position or diverged: records that were read are lost (KIP-320).

    `diverged_at` is the first offset that differs, None if it is unknown; `offset` is the position.
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
    """The group does not exist."""


class NonEmptyGroup(BrokerError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group has members."""


class GroupSubscribedToTopic(BrokerError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """The group has members that subscribe to the topic."""


class RebalanceInProgress(BrokerError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing: poll, then repeat the call."""


class IllegalGeneration(BrokerError, code=ErrorCode.ILLEGAL_GENERATION):
    """The group has a newer generation: other members may own the partitions."""


class UnknownMember(BrokerError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group does not have this member (any more)."""


class FencedInstance(BrokerError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another consumer joined with the same group.instance.id."""


class InconsistentGroupProtocol(BrokerError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The members have no common assignor, or the group has another protocol type."""


class AuthenticationFailed(BrokerError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """The broker rejects the credentials: a wrong user name, password or token. Not retriable."""


class UnsupportedMechanism(AuthenticationFailed, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """The broker does not support this SASL mechanism; the message names the supported ones."""


class ResourceNotFound(BrokerError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """The named resource does not exist, for example a user's SCRAM credential."""


class DuplicateResource(BrokerError, code=ErrorCode.DUPLICATE_RESOURCE):
    """A request names the same thing twice."""


class NotAuthorized(BrokerError):
    """The principal is not authorized for the operation."""


class TopicAuthorizationFailed(NotAuthorized, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The principal is not authorized for the topic."""


class GroupAuthorizationFailed(NotAuthorized, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """The principal is not authorized for the group."""


class ClusterAuthorizationFailed(NotAuthorized, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """The principal is not authorized for the cluster."""


class TransactionalIdAuthorizationFailed(NotAuthorized, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
    """The principal is not authorized for the transactional id."""


def error_for(code: int, message: str | None = None) -> BrokerError:
    """Return the exception for an error code, with the broker's `message` or else the code's description."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return BrokerError(f"Error code {code}, which this client does not know: {message or 'no message'}")
    kind = BrokerError.by_code.get(known, BrokerError)
    return kind(message, code=known)
