"""The error codes of Confluent's proxy, and how errors of the clients become answers: `of_client`."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.clients.admin import PartialFailure
from ottla.clients.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnavailable,
    BufferExhausted,
    ClientError,
    DeliveryTimedOut,
    MessageTooLarge,
    NotAuthorized,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)
from ottla.common.errors import ErrorCode
from ottla.web.errors import HttpError

KAFKA_BAD_REQUEST: Final = 40002
KAFKA_AUTHENTICATION: Final = 40101
KAFKA_AUTHORIZATION: Final = 40301
TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
UNKNOWN_TOPIC_OR_PARTITION: Final = 40403
TOO_MANY_REQUESTS: Final = 42901
KAFKA_ERROR: Final = 50002
KAFKA_RETRIABLE_ERROR: Final = 50003
BROKER_NOT_AVAILABLE: Final = 50302

_BAD_REQUESTS: Final = frozenset(
    {
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
_RETRY_LATER: Final = {"Retry-After": "1"}


class _Row(NamedTuple):
    status: int
    error_code: int


def topic_not_found() -> HttpError:
    return HttpError(404, TOPIC_NOT_FOUND, "Topic not found.")


def partition_not_found() -> HttpError:
    return HttpError(404, PARTITION_NOT_FOUND, "Partition not found.")


def unauthorized(message: str) -> HttpError:
    """Return the error of a request whose credentials the broker does not accept."""
    return HttpError(401, KAFKA_AUTHENTICATION, message, {"WWW-Authenticate": 'Basic realm="Ottla"'})


def too_many_requests(message: str) -> HttpError:
    """Return the error of a user who exceeds a limit: the same request may succeed later."""
    return HttpError(429, TOO_MANY_REQUESTS, message, _RETRY_LATER)


def overloaded(message: str) -> HttpError:
    """Return the error of a proxy at one of its limits: the same request may succeed later."""
    return HttpError(503, 503, message, _RETRY_LATER)


def of_client(error: ClientError) -> HttpError:
    """Return the answer for an error of a client, as Confluent's proxy answers Kafka's exceptions."""
    if isinstance(error, PartialFailure):
        error = next(iter(error.errors.values()))
    if isinstance(error, AuthenticationFailed):
        return unauthorized(str(error))
    status, error_code = _row(error)
    return HttpError(status, error_code, str(error), _RETRY_LATER if status in {429, 503} else None)


def _row(error: ClientError) -> _Row:
    code = error.code if isinstance(error, BrokerError) else None
    if isinstance(error, NotAuthorized):
        return _Row(403, KAFKA_AUTHORIZATION)
    if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)):
        return _Row(404, UNKNOWN_TOPIC_OR_PARTITION)
    if isinstance(error, MessageTooLarge):
        return _Row(413, 413)
    if isinstance(error, UnsupportedByBroker) or code in _BAD_REQUESTS:
        return _Row(400, KAFKA_BAD_REQUEST)
    if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return _Row(429, TOO_MANY_REQUESTS)
    if isinstance(error, BrokerUnavailable):
        return _Row(503, BROKER_NOT_AVAILABLE)
    return _Row(500, KAFKA_RETRIABLE_ERROR if error.retriable else KAFKA_ERROR)


def code_of_record(error: Exception) -> int:
    """Return the error code of one record that was not acknowledged, for the list of offsets in an answer of v2."""
    if isinstance(error, AuthenticationFailed):
        return KAFKA_AUTHENTICATION
    if isinstance(error, NotAuthorized):
        return KAFKA_AUTHORIZATION
    # As Kafka's TimeoutException, which is retriable: the record may have been written.
    if isinstance(error, (DeliveryTimedOut, BufferExhausted, UnknownTopicOrPartition)):
        return KAFKA_RETRIABLE_ERROR
    return KAFKA_RETRIABLE_ERROR if isinstance(error, ClientError) and error.retriable else KAFKA_ERROR
