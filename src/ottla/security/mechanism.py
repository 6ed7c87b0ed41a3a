"""The client's side of one SASL exchange; each mechanism is a class with these three members.

    mechanism.start()              -> the first token to send
    mechanism.answer(challenge)    -> the next token, or None if the client has nothing more to send
    mechanism.is_complete          -> whether the exchange succeeded, with the server's proof if the mechanism has one

A server may send its last token together with its success, so `answer` is called with every token of the server. An
exchange is used once. A violation of the mechanism's rules raises SaslError and ends the exchange.
"""

from __future__ import annotations

from typing import Protocol


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
