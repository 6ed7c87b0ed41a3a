"""The exceptions of clients for the errors of the network."""

from __future__ import annotations

from ottla.clients.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    TlsFailed,
    UnsupportedByBroker,
    UnsupportedMechanism,
)
from ottla.network.errors import (
    AuthenticationRefused,
    ConnectFailed,
    ConnectionClosed,
    MechanismRefused,
    NetworkError,
    NoAnswer,
    NotKafka,
    TlsRefused,
    UnknownHost,
    UnsupportedRequest,
)
from ottla.protocol.wire import EncodeError


def client_error(error: BaseException) -> ClientError:
    """Translate a network error into the client's exception; a ClientError is returned unchanged."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, NoAnswer):
        return RequestTimedOut(str(error))
    if isinstance(error, UnsupportedRequest):
        return UnsupportedByBroker(str(error))
    if isinstance(error, AuthenticationRefused):
        return (UnsupportedMechanism if isinstance(error, MechanismRefused) else AuthenticationFailed)(str(error))
    if isinstance(error, TlsRefused):
        return TlsFailed(str(error))
    if isinstance(error, (NotKafka, UnknownHost)):
        return BrokerUnavailable(str(error), retriable=False)
    if isinstance(error, ConnectFailed):
        return BrokerUnavailable(str(error))
    if isinstance(error, (ConnectionClosed, NetworkError, OSError)):
        return ConnectionLost(str(error))
    if isinstance(error, TimeoutError):
        return RequestTimedOut(str(error) or "No answer in time")
    if isinstance(error, EncodeError):  # a string with half of a surrogate pair, or one that is too long
        return ClientError(f"The request cannot be encoded: {error}")
    raise TypeError(f"{error!r} is not a network error") from error
