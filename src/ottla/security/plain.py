"""PLAIN (RFC 4616): user name and password in one unencrypted message, so use it only with TLS."""

from __future__ import annotations

from typing import NamedTuple

from ottla.security.mechanism import SaslError

NAME = "PLAIN"


class PlainClient:
    """Sends the only token; the broker's response to the request decides."""

    name = NAME

    def __init__(self, username: str, password: str) -> None:
        if not username or "\0" in username or "\0" in password:
            raise SaslError("PLAIN needs a user name, and neither name nor password may contain a NUL")
        self._message = f"\0{username}\0{password}".encode()
        self.is_complete = False

    def start(self) -> bytes:
        """Return the only token."""
        return self._message

    def answer(self, challenge: bytes) -> None:
        """Return None for an empty challenge; raises SaslError for any other."""
        if challenge:
            raise SaslError("The broker sent a challenge in a PLAIN exchange, which has no challenges")
        self.is_complete = True


class PlainMessage(NamedTuple):
    """The parts of a client's token."""

    authorization_id: str
    username: str
    password: str


def read_message(token: bytes) -> PlainMessage:
    """Parse a client's token; raises SaslError. The caller must check the authorization id."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise SaslError("The PLAIN token is not UTF-8") from None
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise SaslError("The PLAIN token is not: authorization id, NUL, user name, NUL, password")
    return PlainMessage(*parts)
