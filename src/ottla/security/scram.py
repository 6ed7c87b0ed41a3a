"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677), as in Kafka (KIP-84): without channel binding.

The password is never sent. The client proves that it knows the password, and the server proves that it has the
credential derived from it. `ScramClient` is the client's side, `ScramServer` the broker's, and `derive` computes the
credential that a broker stores (KIP-554).

Passwords and names are used as their UTF-8 bytes, as in Kafka's ScramFormatter. Normalization by SASLprep would lock
out users whose credentials were created by Kafka's tools.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.security.mechanism import AuthenticationError, Identity, SaslError

MIN_ITERATIONS: Final = 4096
# Kafka's brokers reject larger numbers.
MAX_STORED_ITERATIONS: Final = 16_384
# The limit of a client's computation, a fraction of a second. A malicious server could request more to keep it busy.
MAX_ITERATIONS: Final = 131_072
MAX_MESSAGE_BYTES: Final = 8192
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NAMES: Final = tuple(_HASHES)
# The number of each mechanism in requests and in records.
NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}

_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_RESERVED = r"(?:m=[^,\0]+,)?"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"
_BASE64 = r"[A-Za-z0-9+/=]+"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>{_RESERVED}n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^,=\0]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class Credential(NamedTuple):
    """The credential that a broker stores in place of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def hash_name(mechanism: str) -> str:
    """Return hashlib's name for a SCRAM mechanism's hash; raises SaslError for another mechanism."""
    try:
        return _HASHES[mechanism]
    except KeyError:
        raise SaslError(f"{mechanism!r} is not a SCRAM mechanism: use one of {', '.join(NAMES)}") from None


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return RFC 5802's Hi(), the slow part. The admin client sends it instead of the password."""
    return hashlib.pbkdf2_hmac(hash_name(mechanism), password.encode(), salt, iterations)


def derive(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Derive the credential from the salted password."""
    name = hash_name(mechanism)
    client_key = hmac.digest(salted, b"Client Key", name)
    return Credential(
        salt, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name), iterations
    )


def escaped(username: str) -> str:
    """Escape a name for a message."""
    return username.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """Unescape the name in a message."""
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text(token: bytes) -> str:
    if len(token) > MAX_MESSAGE_BYTES:
        raise SaslError(f"A SCRAM message of {len(token)} bytes is too long")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslError("The SCRAM message is not UTF-8") from None


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("The SCRAM message has something that is not base64") from None


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


class _State(Enum):
    START = auto()
    ASKED = auto()
    PROVED = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramClient:
    """The client's side of one exchange. `nonce` is printable ASCII without commas, random for each exchange."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        nonce: str,
        *,
        token_auth: bool = False,
        max_iterations: int = MAX_ITERATIONS,
    ) -> None:
        self._hash = hash_name(mechanism)
        if not username or "\0" in username:
            raise SaslError(f"{mechanism} needs a user name without NUL")
        if not re.fullmatch(_PRINTABLE, nonce):
            raise ValueError("a nonce is printable ASCII without commas")
        self.name = mechanism
        self._password = password
        self._nonce = nonce
        self._max_iterations = max_iterations
        # Delegation tokens log in as if the token were a user (KIP-48).
        self._bare = f"n={escaped(username)},r={nonce}" + (",tokenauth=true" if token_auth else "")
        self._state = _State.START
        self._signature = b""

    @property
    def is_complete(self) -> bool:
        """Whether the server proved that it knows the credential."""
        return self._state is _State.COMPLETE

    def start(self) -> bytes:
        """Return the first token."""
        self._state = _State.ASKED
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the proof, then None once the server's proof is verified. Raises SaslError."""
        state, self._state = self._state, _State.FAILED
        if state is _State.ASKED:
            token = self._prove(_text(challenge))
            self._state = _State.PROVED
            return token
        if state is _State.PROVED:
            self._verify(_text(challenge))
            self._state = _State.COMPLETE
            return None
        if state is _State.COMPLETE and not challenge:
            self._state = _State.COMPLETE
            return None
        raise SaslError(f"The broker goes on after the end of the {self.name} exchange")

    def _prove(self, message: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(message)
        if match is None:
            error = _SERVER_FINAL.fullmatch(message)
            if error is not None and error["error"]:
                raise SaslError(f"The broker refused: {error['error']}")
            raise SaslError(f"The broker's first {self.name} message makes no sense")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError(
                "The broker's nonce does not continue the client's: the message is not an answer to this one"
            )
        if iterations < MIN_ITERATIONS:
            raise SaslError(
                f"The broker asks for {iterations} iterations, fewer than the {MIN_ITERATIONS} that are safe"
            )
        if iterations > self._max_iterations:
            raise SaslError(
                f"The broker asks for {iterations} iterations, more than the {self._max_iterations} allowed"
            )
        salt = _decode(match["salt"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        unproved = f"c={_encode(b'n,,')},r={nonce}"
        auth_message = f"{self._bare},{message},{unproved}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), auth_message, self._hash)
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), auth_message, self._hash)
        return f"{unproved},p={_encode(_xor(client_key, signature))}".encode()

    def _verify(self, message: str) -> None:
        match = _SERVER_FINAL.fullmatch(message)
        if match is None:
            raise SaslError(f"The broker's last {self.name} message makes no sense")
        if match["error"]:
            raise SaslError(f"The broker refused: {match['error']}")
        if not hmac.compare_digest(_decode(match["signature"]), self._signature):
            raise SaslError("The broker does not prove that it knows the credential: its signature is wrong")


class ClientFirst(NamedTuple):
    """A client's first message: the user name, and the parts that the next steps need."""

    username: str
    authorization_id: str
    nonce: str
    bare: str
    extensions: dict[str, str]


def read_client_first(token: bytes) -> ClientFirst:
    """Parse a client's first message; raises SaslError."""
    match = _CLIENT_FIRST.fullmatch(_text(token))
    if match is None:
        raise SaslError("The client's first SCRAM message makes no sense, or asks for channel binding")
    extensions = dict(part.split("=", 1) for part in match["extensions"].split(",") if part)
    return ClientFirst(
        unescaped(match["name"]), unescaped(match["authzid"] or ""), match["nonce"], match["bare"], extensions
    )


class ScramServer:
    """The broker's side of one exchange, given the client's first message and the user's credential.

    `challenge()` returns the broker's first message, `verify(token)` its last. The client is authenticated once
    `verify` returns. `nonce` is as for the client.
    """

    def __init__(self, mechanism: str, first: ClientFirst, credential: Credential, nonce: str) -> None:
        self._hash = hash_name(mechanism)
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + nonce
        self._message = f"r={self._nonce},s={_encode(credential.salt)},i={credential.iterations}"

    def challenge(self) -> bytes:
        """Return the broker's first message."""
        return self._message.encode()

    def verify(self, token: bytes) -> bytes:
        """Verify the client's proof and return the broker's last message, which has its own. Raises SaslError."""
        match = _CLIENT_FINAL.fullmatch(_text(token))
        if match is None:
            raise SaslError("The client's last SCRAM message makes no sense")
        header = "n," + (f"a={escaped(self._first.authorization_id)}" if self._first.authorization_id else "") + ","
        if match["nonce"] != self._nonce or _decode(match["binding"]) != header.encode():
            raise SaslError("The client's last SCRAM message is not of this exchange")
        auth_message = f"{self._first.bare},{self._message},{match['unproved']}".encode()
        proof = _decode(match["proof"])
        signature = hmac.digest(self._credential.stored_key, auth_message, self._hash)
        if len(proof) != len(signature):
            raise SaslError("The proof has the wrong length")
        stored_key = hashlib.new(self._hash, _xor(proof, signature)).digest()
        if not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise SaslError("Wrong password")
        return f"v={_encode(hmac.digest(self._credential.server_key, auth_message, self._hash))}".encode()


class Account(NamedTuple):
    """The credential that a name logs in with, and the user that it belongs to.

    For a delegation token the name is the token's id, the user is its owner, and the token expires.
    """

    credential: Credential
    owner: str
    expires_at_ms: int | None = None


class ScramExchange:
    """The broker's side of one exchange as a `SaslServer`.

    `find(name, by_token)` returns the account of a user or of a delegation token, or None. As in Kafka, an unknown name
    fails at the first message, and a wrong password at the last, with the same error.
    """

    def __init__(self, mechanism: str, find: Callable[[str, bool], Account | None], nonce: str) -> None:
        self.name = mechanism
        self.identity: Identity | None = None
        self._find = find
        self._nonce = nonce
        self._server: ScramServer | None = None
        self._authenticating: Identity | None = None

    def answer(self, token: bytes) -> bytes:
        """Return the broker's first message, then its last. Raises SaslError."""
        if self._server is None:
            return self._begin(token)
        authenticating, self._authenticating = self._authenticating, None
        if authenticating is None:
            raise SaslError("The client goes on after the end of the exchange")
        last = self._server.verify(token)
        self.identity = authenticating
        return last

    def _begin(self, token: bytes) -> bytes:
        first = read_client_first(token)
        by_token = first.extensions.get("tokenauth", "").lower() == "true"
        account = self._find(first.username, by_token)
        if account is None:
            raise SaslError("Unknown user or delegation token")
        if first.authorization_id not in ("", first.username):
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if account.credential.iterations < MIN_ITERATIONS:
            raise SaslError(f"The credential has fewer than {MIN_ITERATIONS} iterations")
        self._server = ScramServer(self.name, first, account.credential, self._nonce)
        self._authenticating = Identity(account.owner, account.expires_at_ms, by_token)
        return self._server.challenge()
