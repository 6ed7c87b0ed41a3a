"""One SASL exchange, seen from the client; each mechanism is a class with these three members.

    mechanism.start()              -> the first token to send
    mechanism.answer(challenge)    -> the next token, or None when there is nothing more to say
    mechanism.is_complete          -> whether the server proved, as far as the mechanism asks for it, who it is

A server's last word may come with its success: `answer` is called with every token that it sends. An exchange is used
once; what breaks the mechanism's rules is a SaslError, and the exchange is over.
"""

from __future__ import annotations

from typing import Protocol


class SaslError(Exception):
    """The exchange went wrong: the other side refused, or does not keep to the mechanism. One line, no secrets."""


class SaslClient(Protocol):
    """The client's side of one exchange."""

    @property
    def name(self) -> str:
        """The mechanism as SaslHandshake has it."""

    @property
    def is_complete(self) -> bool:
        """Whether the exchange came to its good end."""

    def start(self) -> bytes:
        """The first token."""

    def answer(self, challenge: bytes) -> bytes | None:
        """The token that answers the server's, None if none does. Raises SaslError."""
