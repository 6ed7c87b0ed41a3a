"""PLAIN (RFC 4616): user name and password in one unencrypted message, so use it only with TLS."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.common.completion import Completion
from ottla.security.mechanism import AuthenticationError, Identity, SaslError

NAME = "PLAIN"
WRONG_PASSWORD = "Authentication failed: Invalid username or password"  # noqa: S105 - a message
# Whether a password is the user's; a Completion if the answer takes time. It may fail with AuthenticationError.
Verify: TypeAlias = Callable[[str, str], bool | Completion[bool]]


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

    def __repr__(self) -> str:
        return f"PlainMessage(username={self.username!r})"


def read_message(token: bytes) -> PlainMessage:
    """Parse a client's token; raises AuthenticationError. The caller must check the authorization id."""
    try:
        parts = token.decode().split("\0", 3)
    except UnicodeDecodeError:
        raise AuthenticationError(WRONG_PASSWORD) from None
    if len(parts) != 3:
        raise AuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    message = PlainMessage(*parts)
    if not message.username:
        raise AuthenticationError("Authentication failed: username not specified")
    if not message.password:
        raise AuthenticationError("Authentication failed: password not specified")
    return message


class Users:
    """Users with their passwords: a `Verify` for `PlainServer`."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {name: password.encode() for name, password in passwords.items()}

    def __call__(self, username: str, password: str) -> bool:
        """Whether the password is the user's. An unknown user takes as long as a wrong password."""
        given = password.encode(errors="replace")
        expected = self._passwords.get(username)
        # The comparison of an unknown user is with a value of the same length as a wrong password, and never succeeds.
        is_equal = hmac.compare_digest(given if expected is None else expected, given)
        return is_equal and expected is not None


class PlainServer:
    """The broker's side: `verify(username, password)` decides, at once or later."""

    name = NAME

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self.identity: Identity | None = None

    def answer(self, token: bytes) -> bytes | Completion[bytes]:
        """Return the empty answer of a successful log-in; raises or fails with AuthenticationError."""
        message = read_message(token)
        verified = self._verify(message.username, message.password)
        if isinstance(verified, Completion):
            return verified.then(lambda is_correct: self._finish(message, is_correct=is_correct))
        return self._finish(message, is_correct=verified)

    def _finish(self, message: PlainMessage, *, is_correct: bool) -> bytes:
        if not is_correct:
            raise AuthenticationError(WRONG_PASSWORD)
        if message.authorization_id not in ("", message.username):
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.identity = Identity(message.username)
        return b""
