"""Sessions: which user a browser is, and the user's clients. In memory only, so a restart signs every user out.

A cookie has a random token; the console stores only its hash. Without SASL all browsers share the clients of the
console, and the cookie only protects forms (`csrf`).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.errors import ClientError
from ottla.console.settings import ConsoleSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

R = TypeVar("R")
_LOGIN_S: Final = 15.0
_MOST_SESSIONS: Final = 500
_MOST_LOGINS: Final = 10
_API_MS: Final = {"request.timeout.ms": 10_000, "default.api.timeout.ms": 20_000}
_READER: Final = {"enable.auto.commit": False, "allow.auto.create.topics": False, "auto.offset.reset": "earliest"}
_WRITER: Final = {"linger.ms": 0, "max.block.ms": 5_000, "request.timeout.ms": 10_000, "delivery.timeout.ms": 20_000}


class TooManyLogins(Exception):
    """Other users are signing in."""


class Cached:
    """A value that is slow to read. A value of a certain age is returned while another thread reads a newer one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: dict[str, tuple[float, Any]] = {}
        self._reading: set[str] = set()
        self._changes = 0
        self._lock = threading.Lock()

    def get(self, name: str, read: Callable[[], R], fresh_s: float) -> R:
        """Return the value; reads in the foreground if there is none, or it is ten times older than `fresh_s`."""
        now = self._clock()
        with self._lock:
            at, value = self._values.get(name, (float("-inf"), None))
            age_s = now - at
            if age_s < fresh_s or (age_s < 10 * fresh_s and name in self._reading):
                return value  # type: ignore[no-any-return]
            self._reading.add(name)
        if age_s < 10 * fresh_s:
            threading.Thread(target=self._renew, args=(name, read), name=f"console {name}", daemon=True).start()
            return value  # type: ignore[no-any-return]
        return self._read(name, read)

    def forget(self) -> None:
        """Forget all values, after a change."""
        with self._lock:
            self._values.clear()
            self._changes += 1

    def _renew(self, name: str, read: Callable[[], Any]) -> None:
        try:
            self._read(name, read)
        except ClientError as error:
            logger.info("Reading the %s failed: %s", name, error)

    def _read(self, name: str, read: Callable[[], R]) -> R:
        before = self._changes
        try:
            value = read()
            with self._lock:
                # A value that was read before a change may not show it.
                if self._changes == before:
                    self._values[name] = self._clock(), value
            return value
        finally:
            with self._lock:
                self._reading.discard(name)


class Session:
    """A user's clients. `user` is "" without SASL."""

    def __init__(self, settings: ConsoleSettings, user: str, password: str, clock: Callable[[], float]) -> None:
        self._settings = settings
        self.user = user
        self._password = password
        self.began_at = self.used_at = clock()
        self.admin = Admin(self.admin_settings())
        self.cached = Cached(clock)

    @contextmanager
    def consumer(self, **options: object) -> Iterator[Consumer[bytes, bytes]]:
        """Return a consumer without a group, which is closed at the end."""
        with Consumer({**self._settings.client("consumer", self.user, self._password), **_READER, **options}) as found:
            yield found

    def admin_settings(self) -> dict[str, object]:
        """Return the settings of an admin client."""
        return {**_API_MS, **self._settings.client("admin", self.user, self._password)}

    def consumer_settings(self) -> dict[str, object]:
        """Return the settings of such a consumer."""
        return {**self._settings.client("consumer", self.user, self._password), **_READER}

    @contextmanager
    def producer(self, **options: object) -> Iterator[Producer[bytes, bytes]]:
        """Return a producer, which is closed at the end."""
        with Producer({**self._settings.client("producer", self.user, self._password), **_WRITER, **options}) as found:
            yield found

    def basic_auth(self) -> tuple[str, str] | None:
        """The credentials for the registry and Connect; None if their settings have their own."""
        return (self.user, self._password) if self._settings.needs_login else None

    def close(self) -> None:
        try:
            self.admin.close()
        except ClientError as error:
            logger.warning("Closing the clients of a session failed: %s", error)


class Sessions:
    """All sessions. Threads may share it."""

    def __init__(self, settings: ConsoleSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._by_hash: OrderedDict[bytes, Session] = OrderedDict()  # the least recently used first
        self._lock = threading.Lock()
        self._logins = threading.BoundedSemaphore(_MOST_LOGINS)
        self._shared: Session | None = None

    @property
    def needs_login(self) -> bool:
        return self._settings.needs_login

    @staticmethod
    def new_token() -> str:
        """Return the content of a new cookie."""
        return secrets.token_urlsafe(32)

    def csrf(self, token: str) -> str:
        """Return the text that each form of this browser has: no other site can compute or read it."""
        return hmac.new(self._secret, token.encode(), hashlib.sha256).hexdigest()

    def is_csrf(self, token: str, given: str) -> bool:
        """Whether a form has the right text."""
        return bool(token) and hmac.compare_digest(self.csrf(token).encode(), given.encode())

    def find(self, token: str) -> Session | None:
        """Return the session of a cookie; without SASL always the shared one."""
        if not self.needs_login:
            return self._of_console()
        self.sweep()
        with self._lock:
            session = self._by_hash.get(_hash(token)) if token else None
            if session is not None:
                session.used_at = self._clock()
                self._by_hash.move_to_end(_hash(token))
            return session

    def sign_in(self, user: str, password: str) -> str:
        """Log in at the cluster, and return the token of the session. Raises exceptions of clients, TooManyLogins."""
        if not self._logins.acquire(blocking=False):
            raise TooManyLogins("Too many users are signing in: try again in some seconds.")
        try:
            session = Session(self._settings, user, password, self._clock)
            try:
                session.admin.start(_LOGIN_S)
            except BaseException:
                session.close()
                raise
        finally:
            self._logins.release()
        token = self.new_token()
        with self._lock:
            self._by_hash[_hash(token)] = session
            oldest = self._by_hash.popitem(last=False)[1] if len(self._by_hash) > _MOST_SESSIONS else None
        if oldest is not None:
            oldest.close()
        return token

    def sign_out(self, token: str) -> None:
        """End a session."""
        with self._lock:
            session = self._by_hash.pop(_hash(token), None)
        if session is not None:
            session.close()

    def sweep(self) -> None:
        """Close the sessions that expired."""
        now = self._clock()
        settings = self._settings
        with self._lock:
            expired = [
                token
                for token, session in self._by_hash.items()
                if now - session.used_at > settings.session_idle_s or now - session.began_at > settings.session_most_s
            ]
            closed = [self._by_hash.pop(token) for token in expired]
        for session in closed:
            session.close()

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            sessions = [*self._by_hash.values(), *([self._shared] if self._shared else [])]
            self._by_hash.clear()
            self._shared = None
        for session in sessions:
            session.close()

    def _of_console(self) -> Session:
        with self._lock:
            if self._shared is None:
                self._shared = Session(self._settings, "", "", self._clock)
            return self._shared


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
