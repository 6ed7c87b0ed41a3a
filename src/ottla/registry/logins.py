"""Checks the credentials of requests with the broker: a log-in by SASL, PLAIN or SCRAM or OAUTHBEARER.

So the registry has the users of the broker, and stores no passwords. The result is cached for a short time under a
keyed hash of the credentials. A refusal is delayed, and the number of log-ins at a time is limited, so that guessing
passwords is slow and does not occupy the broker.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.clients.errors import AuthenticationFailed, ClientError, ConfigurationError
from ottla.clients.network import Cluster
from ottla.clients.network_settings import read_network_settings
from ottla.clients.options import COMMON_OPTIONS, read_options
from ottla.common.failure import Failure
from ottla.web.credentials import Basic, Bearer, Credentials
from ottla.web.errors import HttpError, Unauthenticated

_LARGEST_CACHE: Final = 10_000
_LOGINS: Final = 16
_LOGIN_S: Final = 10.0
_FAILURE_S: Final = 1.0
_SALT: Final = secrets.token_bytes(32)
BASIC, BEARER = "BASIC", "BEARER"


class LoginSettings(NamedTuple):
    """How users log in at the broker. `clients` are the settings of the connection, without users."""

    clients: Mapping[str, Any]
    methods: frozenset[str]
    mechanism: str = "SCRAM-SHA-512"
    cache_s: float = 30.0
    name_claim: str = "sub"


class BrokerLogins:
    """Maps credentials to principals. Belongs to one event loop."""

    def __init__(self, settings: LoginSettings) -> None:
        """Raises Failure if users cannot log in with these settings."""
        self._settings = settings
        self._cache: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._pending: dict[bytes, asyncio.Task[str]] = {}
        self._limit = asyncio.Semaphore(_LOGINS)
        protocol = str(settings.clients.get("security.protocol", "PLAINTEXT"))
        if settings.methods and not protocol.startswith("SASL"):
            raise Failure(
                f"users log in at the broker with SASL, but the security protocol is {protocol}",
                "Set kafkastore.security.protocol, or ottla.login.security.protocol and"
                " ottla.login.bootstrap.servers, to a listener with SASL.",
                exit_code=2,
            )

    @property
    def challenges(self) -> tuple[str, ...]:
        """The schemes of `WWW-Authenticate`."""
        return tuple(method.capitalize() for method in (BASIC, BEARER) if method in self._settings.methods)

    async def principal(self, credentials: Credentials | None) -> str:
        """Return the principal of valid credentials. Raises Unauthenticated, and HttpError without a broker."""
        method = BASIC if isinstance(credentials, Basic) else BEARER
        if credentials is None or method not in self._settings.methods:
            raise Unauthenticated(challenges=self.challenges)
        now_s = asyncio.get_running_loop().time()
        key = _key(credentials)
        known = self._cache.get(key)
        if known is not None and now_s < known[1]:
            return known[0]
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = asyncio.create_task(self._log_in(key, credentials))
            task.add_done_callback(lambda done: self._logged_in(key, done))
        return await asyncio.shield(task)

    def _logged_in(self, key: bytes, task: asyncio.Task[str]) -> None:
        self._pending.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it if the client has disconnected

    async def _log_in(self, key: bytes, credentials: Credentials) -> str:
        options = self._options(credentials)
        try:
            async with self._limit:
                cluster = Cluster(read_network_settings(read_options(COMMON_OPTIONS, options)))
                try:
                    await cluster.any_connection(timeout_s=_LOGIN_S)
                finally:
                    await cluster.close()
        except (AuthenticationFailed, ConfigurationError) as error:
            await asyncio.sleep(_FAILURE_S)
            raise Unauthenticated(challenges=self.challenges) from error
        except ClientError as error:
            raise HttpError(503, 50301, f"The broker cannot check the credentials: {error}") from error
        principal = self._principal_of(credentials)
        self._cache[key] = principal, asyncio.get_running_loop().time() + self._settings.cache_s
        while len(self._cache) > _LARGEST_CACHE:
            self._cache.popitem(last=False)
        return principal

    def _options(self, credentials: Credentials) -> dict[str, Any]:
        shared = {name: value for name, value in self._settings.clients.items() if not name.startswith("sasl.")}
        if isinstance(credentials, Basic):
            mechanism = {"sasl.mechanism": self._settings.mechanism}
            return shared | mechanism | {"sasl.username": credentials.user, "sasl.password": credentials.password}
        token = credentials.token
        return shared | {"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": lambda: token}

    def _principal_of(self, credentials: Credentials) -> str:
        if isinstance(credentials, Basic):
            return f"User:{credentials.user}"
        return f"User:{_claim(credentials, self._settings.name_claim)}"


def _key(credentials: Credentials) -> bytes:
    text = f"{credentials.user}\0{credentials.password}" if isinstance(credentials, Basic) else credentials.token
    return hmac.digest(_SALT, f"{type(credentials).__name__}\0{text}".encode(), hashlib.sha256)


def _claim(credentials: Bearer, name: str) -> str:
    """Return the name in a token that the broker has accepted. Raises Unauthenticated."""
    try:
        payload = credentials.token.split(".")[1]
        value = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))[name]
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise Unauthenticated(f"The token has no claim {name}", ("Bearer",)) from error
    return str(value)
