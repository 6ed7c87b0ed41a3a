"""The clients of each user: one admin client and one producer, with the credentials of the user's requests.

A user of Basic credentials authenticates with SASL PLAIN or SCRAM (`client.sasl.mechanism`), a bearer token with SASL
OAUTHBEARER. The brokers decide who the user is and what the user may do. Requests without credentials connect without
SASL. If the brokers require SASL or would identify the proxy by its certificate, such requests need the setting
`anonymous.as.proxy`.

- The first request of a user opens a connection, so that wrong credentials are refused before the request runs. They
  are refused from memory for `login.failure.ms`, and the answer is delayed.
- After `users.login.ms` the next request logs in again: a changed password or a deleted user takes effect then.
- Clients that no request uses are closed after `users.idle.ms`, or when `users.max` is reached.
- Passwords and tokens are not compared with anything here: users are found by a keyed digest of their credentials.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from ottla.clients import AsyncAdmin, AsyncConsumer, AsyncProducer
from ottla.clients.errors import AuthenticationFailed, ClientError
from ottla.rest.errors import of_client, overloaded, unauthorized
from ottla.rest.settings import RestSettings
from ottla.web.credentials import Basic, Bearer, Credentials
from ottla.web.errors import HttpError

logger = logging.getLogger(__name__)

MOST_LOGINS: Final = 32
"""How many users may log in at the same time."""
_MOST_FAILURES: Final = 10_000
_MOST_DELAYED: Final = 100
_CLOSE_S: Final = 5.0
_LOGIN_S: Final = 10.0


class UserClients:
    """The clients of one user. `key` identifies the credentials in this process, `owner` the user.

    The owner is the same for another password or token of the user.
    """

    def __init__(
        self, key: bytes, credentials: Credentials | None, settings: RestSettings, security: dict[str, object]
    ) -> None:
        self.key = key
        self.credentials = credentials
        self.owner = owner_of(key, credentials)
        self.uses = 0
        self.logged_in_at = self.used_at = 0.0
        self._settings = settings
        self._security = security
        self._producer: AsyncProducer[bytes, bytes] | None = None
        self._stopped: list[AsyncProducer[bytes, bytes]] = []
        self.admin = AsyncAdmin(**self._of("admin"))

    def _of(self, kind: str) -> Any:
        settings = {**self._settings.connection, **self._security, **self._settings.clients[kind]}
        return {name.replace(".", "_"): value for name, value in settings.items()}

    @property
    def producer(self) -> AsyncProducer[bytes, bytes]:
        """The producer of all requests of this user.

        A producer stops for good if its user may write to no topic. The user's next request gets another one, because
        rights can be granted at any time.
        """
        if self._producer is not None and self._producer.failure is not None:
            self._stopped.append(self._producer)
            self._producer = None
        if self._producer is None:
            self._producer = AsyncProducer(**self._of("producer"))
        return self._producer

    def consumer(self, settings: dict[str, object]) -> AsyncConsumer[bytes, bytes]:
        """Return a new consumer, which the caller closes."""
        given = {name.replace(".", "_"): value for name, value in settings.items()}
        return AsyncConsumer(**{**self._of("consumer"), **given})

    async def close_stopped(self) -> None:
        """Close producers that were replaced."""
        while self._stopped:
            await self._stopped.pop().close(_CLOSE_S)

    async def close(self) -> None:
        """Close the connections. Records that are not acknowledged fail."""
        await self.close_stopped()
        if self._producer is not None:
            await self._producer.close(_CLOSE_S)
        await self.admin.close()


class ClientPool:
    """The clients of all users. Call `enter` and `leave` around each use, `sweep` every second, `close` at the end."""

    def __init__(self, settings: RestSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._users: OrderedDict[bytes, UserClients] = OrderedDict()  # the least recently used first
        self._logins: dict[bytes, asyncio.Task[UserClients]] = {}
        self._failures: OrderedDict[bytes, tuple[float, HttpError]] = OrderedDict()
        self._retired: set[UserClients] = set()  # replaced, but still in use
        self._closing: set[asyncio.Task[None]] = set()
        self._delayed = 0

    def __len__(self) -> int:
        return len(self._users) + len(self._logins) + len(self._retired)

    def key(self, credentials: Credentials | None) -> bytes:
        """Return what identifies the user in this process."""
        parts: tuple[str, ...] = ()
        if isinstance(credentials, Basic):
            parts = ("Basic", credentials.user, credentials.password)
        elif isinstance(credentials, Bearer):
            parts = ("Bearer", credentials.token)
        text = repr(parts).encode()
        return hashlib.blake2b(text, key=self._secret, digest_size=16).digest()

    async def enter(self, key: bytes, credentials: Credentials | None) -> UserClients:
        """Return the clients of the user, after a login if necessary. Raises HttpError."""
        clients = self._users.get(key)
        now = self._clock()
        if clients is not None and now - clients.logged_in_at >= self._settings.seconds("users_login_ms"):
            self._retire(clients)
            clients = None
        if clients is None:
            await self._refuse_known_failure(key)
            clients = await self._log_in(key, credentials)
        clients.uses += 1
        clients.used_at = now
        await clients.close_stopped()
        if key in self._users:
            self._users.move_to_end(key)
        return clients

    def leave(self, clients: UserClients) -> None:
        """End a use that `enter` began."""
        clients.uses -= 1
        clients.used_at = self._clock()
        if clients.uses == 0 and clients in self._retired:
            self._retired.discard(clients)
            self._close_later(clients)

    def discard(self, clients: UserClients) -> None:
        """Log in again at the user's next request: the brokers refused the credentials."""
        if self._users.get(clients.key) is clients:
            self._retire(clients)

    def sweep(self) -> None:
        """Close the clients of idle users, and forget old failures."""
        now = self._clock()
        idle_s = self._settings.seconds("users_idle_ms")
        for clients in list(self._users.values()):
            if clients.uses == 0 and now - clients.used_at >= idle_s:
                self._retire(clients)
        while self._failures and next(iter(self._failures.values()))[0] <= now:
            self._failures.popitem(last=False)

    async def close(self) -> None:
        """Close all clients."""
        for login in self._logins.values():
            login.cancel()
        for clients in [*self._users.values(), *self._retired]:
            self._close_later(clients)
        self._users.clear()
        self._retired.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    # -- logins ------------------------------------------------------------------------------------------------

    async def _log_in(self, key: bytes, credentials: Credentials | None) -> UserClients:
        login = self._logins.get(key)
        if login is None:
            self._make_space()
            if len(self._logins) >= MOST_LOGINS:
                raise overloaded("Too many users are logging in: try again later.")
            login = asyncio.create_task(self._connect(key, credentials))
            self._logins[key] = login
            login.add_done_callback(lambda _: self._logins.pop(key, None))
        try:
            return await asyncio.shield(login)
        except AuthenticationFailed as error:
            await self._delay()
            raise unauthorized(str(error)) from error
        except ClientError as error:
            raise of_client(error) from error

    async def _connect(self, key: bytes, credentials: Credentials | None) -> UserClients:
        clients = UserClients(key, credentials, self._settings, self._security(credentials))
        try:
            await clients.admin.start(_LOGIN_S)
        except BaseException as error:
            await clients.close()
            if isinstance(error, AuthenticationFailed):
                self._note_failure(key, unauthorized(str(error)))
            raise
        clients.logged_in_at = clients.used_at = self._clock()
        self._users[key] = clients
        return clients

    def _security(self, credentials: Credentials | None) -> dict[str, object]:
        """Return the settings that identify the user. Raises HttpError."""
        settings = self._settings
        if not settings.uses_sasl:
            if settings.has_own_certificate and not settings.anonymous_as_proxy:
                raise unauthorized(
                    "The brokers identify the proxy by its certificate, and anonymous.as.proxy is not set."
                )
            return {}
        if isinstance(credentials, Bearer):
            token = credentials.token
            return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": lambda: token}
        if isinstance(credentials, Basic):
            return {
                "sasl.mechanism": settings.basic_mechanism,
                "sasl.username": credentials.user,
                "sasl.password": credentials.password,
            }
        if settings.anonymous_as_proxy:
            return {}
        raise unauthorized("The request has no credentials: send Basic credentials or a bearer token.")

    # -- wrong credentials ---------------------------------------------------------------------------------------

    def _note_failure(self, key: bytes, error: HttpError) -> None:
        self._failures[key] = self._clock() + self._settings.seconds("login_failure_ms"), error
        self._failures.move_to_end(key)
        while len(self._failures) > _MOST_FAILURES:
            self._failures.popitem(last=False)

    async def _refuse_known_failure(self, key: bytes) -> None:
        until, error = self._failures.get(key, (0.0, None))
        if error is not None and self._clock() < until:
            await self._delay()
            raise error

    async def _delay(self) -> None:
        """Delay an answer to wrong credentials, unless too many answers are delayed already."""
        if self._delayed >= _MOST_DELAYED:
            return
        self._delayed += 1
        try:
            await asyncio.sleep(self._settings.seconds("login_failure_delay_ms"))
        finally:
            self._delayed -= 1

    # -- the number of users -------------------------------------------------------------------------------------

    def _make_space(self) -> None:
        """Close the clients of the least recently used user without requests. Raises HttpError if there is none."""
        if len(self) < self._settings.users_max:
            return
        idle = next((clients for clients in self._users.values() if clients.uses == 0), None)
        if idle is None:
            raise overloaded(f"The proxy serves {len(self)} users, its limit: try again later.")
        self._retire(idle)

    def _retire(self, clients: UserClients) -> None:
        """Use these clients for no further request, and close them when they are unused."""
        self._users.pop(clients.key, None)
        if clients.uses:
            self._retired.add(clients)
        else:
            self._close_later(clients)

    def _close_later(self, clients: UserClients) -> None:
        task = asyncio.create_task(self._close_one(clients))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_one(self, clients: UserClients) -> None:
        try:
            await clients.close()
        except ClientError as error:
            logger.warning("Closing the clients of %s failed: %s", clients.owner, error)


def owner_of(key: bytes, credentials: Credentials | None) -> str:
    """Return the name of a user. The brokers have checked the credentials.

    The issuer and subject of a JSON Web Token identify its user; another token is a user of its own.
    """
    if credentials is None:
        return "anonymous"
    if isinstance(credentials, Basic):
        return f"user {credentials.user}"
    try:
        payload = credentials.token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        claims = None
    if isinstance(claims, dict) and claims.get("sub"):
        return f"subject {claims['sub']!r} of {claims.get('iss')!r}"
    return f"token {key.hex()}"
