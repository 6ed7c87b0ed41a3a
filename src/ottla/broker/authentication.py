"""SASL authentication in front of the dispatcher, for the connections of SASL listeners. KIP-43, 152, 368, 511.

`SaslDispatch` handles the frames of a connection until its client is authenticated, and passes later frames on to the
dispatcher. One `SaslSession` for each connection has its state:

    INITIAL -> VERSIONS -> HANDSHAKE -> TOKENS -> AUTHENTICATED
       |          `------------^          ^            | SaslHandshake of an expiring session (KIP-368)
       `--- SaslHandshake ----------------'------------'

As in Kafka:

- Only ApiVersions (once) and SaslHandshake are served before the tokens; any other request closes the connection.
- After SaslHandshake version 0 the tokens are whole frames, after version 1 they are in SaslAuthenticate.
- A failed log-in is answered after `connection.failed.authentication.delay.ms`, then the connection is closed. No
  other request of the connection is read meanwhile.
- The answer to a wrong password or an unknown user does not show which of them was wrong.
- An expired session is closed at the next request that is not SaslHandshake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ottla.broker.context import DELEGATED
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.rate_limit import RateLimitedLog
from ottla.protocol import frames, registry
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.wire import Buffer, DecodeError
from ottla.security.mechanism import AuthenticationError, Identity, SaslError, SaslServer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.network.connection import Connection, Dispatch

logger = logging.getLogger(__name__)

SASL_HANDSHAKE: Final = SaslHandshakeRequest.API_KEY
SASL_AUTHENTICATE: Final = SaslAuthenticateRequest.API_KEY
API_VERSIONS: Final = ApiVersionsRequest.API_KEY
# A client may authenticate again once per second, as in Kafka.
MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
# The key of the session in `Connection.state`.
SESSION: Final = "sasl"
_HANDSHAKE_KEY: Final = SASL_HANDSHAKE.to_bytes(2, "big")

Frames = list[Buffer] | None
Answer = Callable[[memoryview], Frames | Completion[Frames]]


class Mechanism(NamedTuple):
    """An enabled mechanism of a listener."""

    start: Callable[[], SaslServer]
    """Returns a new exchange."""
    max_reauth_ms: int = 0
    """`connections.max.reauth.ms`; 0 for sessions that end only with their credential."""


class SaslListener(NamedTuple):
    """The settings of one SASL listener; `mechanisms` has the enabled ones, by name."""

    mechanisms: Mapping[str, Mechanism]
    max_receive_bytes: int = 524_288
    failed_delay_ms: int = 100


class State(Enum):
    """The states of a connection; see the module."""

    INITIAL = auto()
    VERSIONS = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    WRONG_MECHANISM = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


class Times(NamedTuple):
    """A time in ms, by the monotonic clock and since the epoch."""

    monotonic_ms: int
    epoch_ms: int


class LogInFailed(Exception):
    """The connection must be closed, after the response if there is one. The message is safe to log."""

    def __init__(self, message: str, response: Frames = None) -> None:
        super().__init__(message)
        self.response = response


class _Authenticated(NamedTuple):
    """The result of the last successful log-in."""

    identity: Identity
    mechanism: str


class SaslSession:
    """The state of one connection; does no I/O and has no clock.

    `receive` handles one frame. `now()` is the time of the answer. `answer_versions(frame)` is the response to
    ApiVersions.
    """

    __slots__ = (
        "_authenticated",
        "_exchange",
        "_listener",
        "_reauthenticated_ms",
        "_wrapped",
        "ends_ms",
        "mechanism",
        "state",
    )

    def __init__(self, listener: SaslListener) -> None:
        self._listener = listener
        self._exchange: SaslServer | None = None
        self._wrapped = False
        self._authenticated: _Authenticated | None = None
        self._reauthenticated_ms: int | None = None
        self.state = State.INITIAL
        self.mechanism = ""
        """The mechanism of the last SaslHandshake; empty before it."""
        self.ends_ms: int | None = None
        """When the session ends, by the monotonic clock; None for the life of the connection."""

    @property
    def identity(self) -> Identity | None:
        """The authenticated user; None before the first log-in."""
        return None if self._authenticated is None else self._authenticated.identity

    @property
    def is_repeated(self) -> bool:
        """Whether the client was authenticated on this connection before."""
        return self._authenticated is not None

    def is_expired(self, now_ms: int) -> bool:
        """Whether the session has ended."""
        return self.ends_ms is not None and now_ms > self.ends_ms

    def may_reauthenticate(self, now_ms: int) -> bool:
        """Whether a SaslHandshake starts another log-in: only if the session ends, at most once per second."""
        if self.ends_ms is None:
            return False
        last_ms = self._reauthenticated_ms
        if last_ms is not None and now_ms - last_ms < MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        self._reauthenticated_ms = now_ms
        return True

    def receive(
        self, frame: memoryview, now: Callable[[], Times], answer_versions: Answer
    ) -> Frames | Completion[Frames]:
        """Handle one frame of a client that is not authenticated, or that authenticates again.

        Raises, or fails the completion with, LogInFailed. Raises DecodeError or KafkaError if the connection must be
        closed at once.
        """
        if self.state is State.WRONG_MECHANISM:
            assert self._authenticated is not None
            raise LogInFailed(
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for re-authentication of"
                f" mechanism '{self._authenticated.mechanism}'"
            )
        if self.state is State.TOKENS:
            return self._receive_token(frame, now)
        return self._receive_request(frame, answer_versions)

    # -- requests before the tokens ----------------------------------------------------------------------------

    def _receive_request(self, frame: memoryview, answer_versions: Answer) -> Frames | Completion[Frames]:
        header, position = self._header(frame)
        key, version = header.api_key, header.api_version
        if key not in (API_VERSIONS, SASL_HANDSHAKE):
            raise LogInFailed(f"Unexpected Kafka request of type {_name(key)} during SASL handshake.")
        if self.state is State.INITIAL:
            self.state = State.VERSIONS
        if key == SASL_HANDSHAKE:
            _check_version(key, version)
            return self._handshake(header, SaslHandshakeRequest.decode_request(frame, position, version).mechanism)
        if self.state is not State.VERSIONS:
            raise DecodeError(f"Unexpected ApiVersions request received during SASL authentication state {self._text}")
        response = answer_versions(frame)
        # The client may repeat a request whose version is not supported.
        if isinstance(response, Completion) or not _error_code(response):
            self.state = State.HANDSHAKE
        return response

    def _header(self, frame: memoryview) -> tuple[frames.RequestHeader, int]:
        """The header of a request; a first frame that is not a request would be a token of GSSAPI."""
        try:
            header, position = frames.decode_request_header(frame)
            if header.api_key not in registry.API:
                raise DecodeError(f"Unknown API key {header.api_key}")
        except DecodeError:
            if self.state is not State.INITIAL:
                raise
            text = "Exception handling first SASL packet from client, GSSAPI is not supported by server"
            raise LogInFailed(text) from None
        return header, position

    def _handshake(self, header: frames.RequestHeader, mechanism: str) -> Frames:
        enabled = self._listener.mechanisms
        self._wrapped = header.api_version >= 1
        # A name that is not enabled comes from the client: it must not fill the log.
        self.mechanism = mechanism if mechanism in enabled else ""
        if mechanism not in enabled:
            error = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(enabled))
            text = f"Unsupported SASL mechanism {mechanism[:64]!a}"
            raise LogInFailed(text, frames.encode_response(header, error))
        if self._authenticated is not None and self._authenticated.mechanism != mechanism:
            self.state = State.WRONG_MECHANISM
        else:
            self._exchange = enabled[mechanism].start()
            self.state = State.TOKENS
        return frames.encode_response(header, SaslHandshakeResponse(mechanisms=list(enabled)))

    # -- tokens ------------------------------------------------------------------------------------------------

    def _receive_token(self, frame: memoryview, now: Callable[[], Times]) -> Frames | Completion[Frames]:
        header: frames.RequestHeader | None = None
        token = bytes(frame)
        if self._wrapped:
            header, position = frames.decode_request_header(frame)
            key, version = header.api_key, header.api_version
            if key != SASL_AUTHENTICATE:
                raise self._unexpected(header, frame, position)
            _check_version(key, version)
            token = bytes(SaslAuthenticateRequest.decode_request(frame, position, version).auth_bytes)
        assert self._exchange is not None
        try:
            answer = self._exchange.answer(token)
            if not isinstance(answer, Completion):
                return self._answer(header, answer, now())
        except SaslError as error:
            raise self._refusal(header, error) from None

        def finish(done: Completion[bytes]) -> Frames:
            try:
                return self._answer(header, done.result(), now())
            except SaslError as error:
                raise self._refusal(header, error) from None

        finished: Completion[Frames] = Completion()
        answer.on_done(lambda done: finished.complete_with(finish, done))
        return finished

    def _answer(self, header: frames.RequestHeader | None, token: bytes, times: Times) -> Frames:
        """The response with the server's token; ends the exchange if the client is authenticated."""
        assert self._exchange is not None
        identity = self._exchange.identity
        lifetime_ms = 0
        if identity is not None:
            lifetime_ms = self._finish(identity, times)
        if header is None:
            return [len(token).to_bytes(4, "big") + token]
        answer = SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)
        return frames.encode_response(header, answer)

    def _finish(self, identity: Identity, times: Times) -> int:
        """Begin a session of the user; returns its lifetime in ms, 0 for the life of the connection."""
        before = self._authenticated
        if before is not None and before.identity.name != identity.name:
            raise AuthenticationError(
                f"Cannot change principals during re-authentication from User.{before.identity.name}:"
                f" User.{identity.name}"
            )
        max_reauth_ms = self._listener.mechanisms[self.mechanism].max_reauth_ms
        limits = [max_reauth_ms] if max_reauth_ms > 0 else []
        if identity.expires_at_ms is not None:
            limits.append(identity.expires_at_ms - times.epoch_ms)
        lifetime_ms = max(0, min(limits, default=0))
        self.ends_ms = times.monotonic_ms + lifetime_ms if limits else None
        self._authenticated = _Authenticated(identity, self.mechanism)
        self._exchange = None
        self.state = State.AUTHENTICATED
        return lifetime_ms

    # -- errors ------------------------------------------------------------------------------------------------

    @property
    def _text(self) -> str:
        return "re-authentication" if self.is_repeated else "authentication"

    def _refusal(self, header: frames.RequestHeader | None, error: SaslError) -> LogInFailed:
        text = str(error)
        if not isinstance(error, AuthenticationError):
            # The mechanism's message may show whether the user exists.
            text = (
                f"Authentication failed during {self._text} due to invalid credentials with SASL mechanism"
                f" {self.mechanism}"
            )
        if header is None:
            return LogInFailed(text)
        answer = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
        return LogInFailed(text, frames.encode_response(header, answer))

    def _unexpected(self, header: frames.RequestHeader, frame: memoryview, position: int) -> LogInFailed:
        """Reject a request where a token belongs.

        Kafka answers any request with the error. Here only SaslHandshake and ApiVersions have an answer, so that a
        client that is not authenticated does not reach the decoders of the other requests.
        """
        key, version = header.api_key, header.api_version
        text = f"Unexpected Kafka request of type {_name(key)} during SASL authentication."
        error: Message
        if key == SASL_HANDSHAKE:
            _check_version(key, version)
            SaslHandshakeRequest.decode_request(frame, position, version)
            error = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        elif key == API_VERSIONS:
            _check_version(key, version)
            ApiVersionsRequest.decode_request(frame, position, version)
            error = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        else:
            return LogInFailed(text)
        return LogInFailed(text, frames.encode_response(header, error))


def _name(key: int) -> str:
    """The name of an API in Kafka's log lines: SASL_HANDSHAKE."""
    info = registry.API.get(key)
    if info is None:
        return str(key)
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in info.name).removeprefix("_")


def _error_code(response: Frames) -> int:
    """The error of an ApiVersions response: it is behind the size and the correlation id."""
    return int.from_bytes(b"".join(response or ())[8:10], "big")


def _check_version(key: int, version: int) -> None:
    info = registry.API[key]
    if not info.min_version <= version <= info.max_version:
        text = f"Version {version} is not supported for apiKey {_name(key)}"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)


class SaslDispatch:
    """A `Dispatch` for the connections of one SASL listener: `dispatch` handles requests of authenticated clients."""

    def __init__(self, broker: Broker, dispatch: Dispatch, listener: SaslListener) -> None:
        self._broker = broker
        self._dispatch = dispatch
        self._listener = listener
        self._monotonic_ms = broker.clock.monotonic_ms
        self._log = RateLimitedLog(logger)

    @property
    def first_frame_bytes(self) -> int:
        """The limit on the size of a frame before a client is authenticated."""
        return self._listener.max_receive_bytes

    def __call__(self, connection: Connection, frame: memoryview) -> Frames | Completion[Frames]:
        """Handle one frame; raises KafkaError or DecodeError if the connection must be closed at once."""
        session = cast("SaslSession | None", connection.state.get(SESSION))
        if session is None:
            session = connection.state[SESSION] = SaslSession(self._listener)
        if session.state is State.AUTHENTICATED:
            # A session without an end neither expires nor is renewed.
            if session.ends_ms is None:
                return self._dispatch(connection, frame)
            now_ms = self._monotonic_ms()
            if frame[:2] == _HANDSHAKE_KEY and session.may_reauthenticate(now_ms):
                connection.limit_frames(self._listener.max_receive_bytes)
            elif session.is_expired(now_ms):
                logger.debug("Disconnecting expired channel %s:%d", connection.remote_host, connection.remote_port)
                connection.abort()
                return None
            else:
                return self._dispatch(connection, frame)
        return self._authenticate(connection, session, frame)

    def _authenticate(
        self, connection: Connection, session: SaslSession, frame: memoryview
    ) -> Frames | Completion[Frames]:
        def now() -> Times:
            return Times(self._monotonic_ms(), self._broker.clock.wall_ms())

        try:
            answer = session.receive(frame, now, lambda frame: self._dispatch(connection, frame))
        except LogInFailed as failure:
            return self._fail(connection, session, failure)
        if not isinstance(answer, Completion):
            self._notice(connection, session)
            return answer
        later: Completion[Frames] = Completion()

        def finish(done: Completion[Frames]) -> None:
            try:
                response = done.result()
            except LogInFailed as failure:
                later.follow(self._fail(connection, session, failure))
            except Exception as error:  # noqa: BLE001 - it ends the connection
                later.fail(error)
            else:
                self._notice(connection, session)
                later.complete(response)

        answer.on_done(finish)
        return later

    def _notice(self, connection: Connection, session: SaslSession) -> None:
        """Give the connection its user once the client is authenticated."""
        if session.state is State.AUTHENTICATED and session.identity is not None:
            connection.principal = f"User:{session.identity.name}"
            connection.state.pop(DELEGATED, None)
            if session.identity.by_token:
                connection.state[DELEGATED] = True
            connection.limit_frames(None)
            if session.ends_ms is None:
                # A session without an end neither expires nor is renewed: nothing is left to do for its requests.
                connection.dispatch_to(self._dispatch)

    def _fail(self, connection: Connection, session: SaslSession, failure: LogInFailed) -> Completion[Frames]:
        """Log the failed log-in; send its response after the delay, and close."""
        session.state = State.FAILED
        self._log.info(
            "Failed %s with %s:%d on listener %s with mechanism %s (%s)",
            "re-authentication" if session.is_repeated else "authentication",
            connection.remote_host,
            connection.remote_port,
            connection.listener,
            session.mechanism or "unknown",
            failure,
        )
        later: Completion[Frames] = Completion()

        def close() -> None:
            later.complete(failure.response)
            connection.close()

        self._broker.schedulers.call_later(self._listener.failed_delay_ms / 1000, close)
        return later
