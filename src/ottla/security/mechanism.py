"""The interface of one SASL exchange. Each mechanism has a class for the client, and one for the server.

    client.start()              -> the first token to send
    client.answer(challenge)    -> the next token, or None if the client has nothing more to send
    client.is_complete          -> whether the exchange succeeded, with the server's proof if the mechanism has one

    server.answer(token)        -> the token to send, or a Completion of it
    server.identity             -> the authenticated user once the exchange succeeded, else None

A server may send its last token together with its success, so `answer` is called with every token of the server. An
exchange is used once. A violation of the mechanism's rules raises SaslError and ends the exchange.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.common.completion import Completion


class SaslError(Exception):
    """The other side refused, or violated the mechanism's rules. The message is one line without secrets."""


class SaslClient(Protocol):
    """The client's side of one exchange."""

    @property
    def name(self) -> str:
        """The mechanism's name in SaslHandshake."""

    @property
    def is_complete(self) -> bool:
        """Whether the exchange succeeded."""

    def start(self) -> bytes:
        """Return the first token."""

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the response to the server's token, or None without a response. Raises SaslError."""


class AuthenticationError(SaslError):
    """A failed log-in whose message the server sends to the client.

    The message of any other SaslError may show whether a user exists, so that the client receives a general message.
    """


class Identity(NamedTuple):
    """The user that a server has authenticated."""

    name: str
    expires_at_ms: int | None = None
    """When the credential expires, in ms since the epoch; None if it does not expire."""
    by_token: bool = False
    """Whether the user logged in with a delegation token (KIP-48)."""


class SaslServer(Protocol):
    """The broker's side of one exchange."""

    @property
    def name(self) -> str:
        """The mechanism's name in SaslHandshake."""

    @property
    def identity(self) -> Identity | None:
        """The authenticated user; None until the exchange succeeds."""

    def answer(self, token: bytes) -> bytes | Completion[bytes]:
        """Return the answer to the client's token, empty if the mechanism has none.

        Raises SaslError, or fails the completion with it, if the client is not authenticated.
        """
