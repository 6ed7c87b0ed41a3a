"""The key set (JWKS) of an authorization server, retrieved in a thread and refreshed. KIP-768.

`KeySource` retrieves the keys at the start and every `refresh_ms`. While the server is unreachable the last keys stay
in use, and without keys no client can log in. A token with an unknown key starts a refresh at once, since the server
may have new keys, but not more often than every `MIN_EXPEDITED_MS`: tokens of strangers must not keep the server busy.
The log-in waits for that refresh, because Java clients do not repeat a log-in that fails.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.common.completion import Completion
from ottla.common.rate_limit import RateLimitedLog
from ottla.security.jwt import MAX_KEY_SET_BYTES, KeySet

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.common.timers import CallLater, TimerHandle

logger = logging.getLogger(__name__)

MIN_EXPEDITED_MS: Final = 10_000
_CHUNK_BYTES: Final = 64 * 1024
_SCHEMES: Final = ("http", "https", "file")


class Endpoint(NamedTuple):
    """Where the keys are, and how long one attempt may take."""

    url: str
    timeout_s: float = 10.0
    ca_file: str | None = None
    """Certificates, in PEM format, that verify an https server; None for the system's."""

    def check(self) -> str | None:
        """Return the problem with the URL, or None."""
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in _SCHEMES or not (parts.path if parts.scheme == "file" else parts.hostname):
            return f"{self.url!r} is not the URL of a key set: it must begin with https://, http:// or file://"
        return None


class RefreshTimes(NamedTuple):
    """When the keys are retrieved again, in ms."""

    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    max_retry_ms: int = 10_000

    def check(self) -> str | None:
        """Return the problem with the times, or None."""
        if self.refresh_ms <= 0:
            return "sasl.oauthbearer.jwks.endpoint.refresh.ms must be positive"
        if self.retry_ms <= 0 or self.max_retry_ms < self.retry_ms:
            return "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms must be positive, and at most .retry.backoff.max.ms"
        return None


def retrieve(endpoint: Endpoint) -> KeySet:
    """Return the keys at the endpoint. Blocks; raises OSError, or ValueError for an answer that is not a key set."""
    parts = urllib.parse.urlsplit(endpoint.url)
    if parts.scheme == "file":
        path = Path(urllib.parse.unquote(parts.path))
        if path.stat().st_size > MAX_KEY_SET_BYTES:
            raise ValueError(f"it has more than {MAX_KEY_SET_BYTES} bytes")
        return KeySet(path.read_bytes())
    return KeySet(_download(endpoint, is_https=parts.scheme == "https"))


def _download(endpoint: Endpoint, *, is_https: bool) -> bytes:
    import http.client  # noqa: PLC0415 - these take 20 ms, and few brokers need them
    import urllib.request  # noqa: PLC0415

    context = ssl.create_default_context(cafile=endpoint.ca_file) if is_https else None
    end = time.monotonic() + endpoint.timeout_s
    request = urllib.request.Request(endpoint.url, headers={"Accept": "application/json"})  # noqa: S310 - checked
    data = bytearray()
    try:
        with urllib.request.urlopen(request, timeout=endpoint.timeout_s, context=context) as response:  # noqa: S310
            while chunk := response.read1(_CHUNK_BYTES):
                data += chunk
                if len(data) > MAX_KEY_SET_BYTES:
                    raise ValueError(f"it has more than {MAX_KEY_SET_BYTES} bytes")
                if time.monotonic() > end:
                    raise TimeoutError(f"it did not arrive within {endpoint.timeout_s:g} s")
    except http.client.HTTPException as error:
        raise ConnectionAbortedError(f"no complete HTTP response: {type(error).__name__}: {error}") from error
    return bytes(data)


Retrieve = Callable[[], "Completion[KeySet]"]


def in_thread(endpoint: Endpoint) -> Completion[KeySet]:
    """Retrieve the keys in a thread; completes on the running event loop."""
    loop = asyncio.get_running_loop()
    later: Completion[KeySet] = Completion()

    def run() -> None:
        try:
            keys = retrieve(endpoint)
        except (OSError, ValueError) as error:
            outcome: Callable[[], object] = lambda error=error: later.fail(error)  # type: ignore[misc]  # noqa: E731
        else:
            outcome = lambda: later.complete(keys)  # noqa: E731
        try:
            loop.call_soon_threadsafe(outcome)
        except RuntimeError:  # the node stopped meanwhile, and its event loop is closed
            logger.debug("The keys of %s arrived after the node stopped", endpoint.url)

    threading.Thread(target=run, name="jwks", daemon=True).start()
    return later


class KeySource:
    """The latest keys. Use it on the event loop: `begin`, then `current` and `newer`, then `close`."""

    def __init__(
        self, url: str, retrieve_keys: Retrieve, times: RefreshTimes, call_later: CallLater, clock: Clock
    ) -> None:
        self._url = url
        self._retrieve = retrieve_keys
        self._times = times
        self._call_later = call_later
        self._clock = clock
        self._keys: KeySet | None = None
        self._retrieving: Completion[KeySet | None] | None = None
        self._timer: TimerHandle | None = None
        self._retry_ms = times.retry_ms
        self._next_expedited_ms = 0
        self._closed = False
        self._log = RateLimitedLog(logger, lines=1, period_s=60.0)

    def begin(self) -> None:
        """Retrieve the keys now, and again at intervals."""
        if self._keys is None and self._retrieving is None and self._timer is None:
            self._start()

    def close(self) -> None:
        """Retrieve no keys any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def current(self) -> Completion[KeySet | None]:
        """The keys, at once if there are any; None if the attempt in progress fails, or the last one failed."""
        self.begin()
        if self._keys is None and self._retrieving is not None:
            return self._retrieving
        return Completion.of(self._keys)

    def newer(self) -> Completion[KeySet | None]:
        """The keys after a refresh; at once, unchanged, if the last such refresh was a moment ago."""
        if self._retrieving is not None:
            return self._retrieving
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_expedited_ms or self._closed:
            return Completion.of(self._keys)
        self._next_expedited_ms = now_ms + MIN_EXPEDITED_MS
        return self._start()

    def _refresh(self) -> None:
        self._start()

    def _start(self) -> Completion[KeySet | None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        retrieving = self._retrieving = Completion()
        self._retrieve().on_done(lambda done: self._finish(retrieving, done))
        return retrieving

    def _finish(self, retrieving: Completion[KeySet | None], done: Completion[KeySet]) -> None:
        self._retrieving = None
        if done.error is None:
            if self._keys is None:
                logger.info("Retrieved %d keys from %s", done.result().size, self._url)
            self._keys = done.result()
            self._retry_ms = self._times.retry_ms
            delay_ms = self._times.refresh_ms
        else:
            self._log.warning(
                "Failed to retrieve the key set (JWKS) at %s: %s. %s. Check sasl.oauthbearer.jwks.endpoint.url, and"
                " whether this host reaches it; retrying",
                self._url,
                done.error,
                "No client can log in with OAUTHBEARER until then"
                if self._keys is None
                else "The last keys stay in use",
            )
            delay_ms = self._retry_ms
            self._retry_ms = min(2 * self._retry_ms, self._times.max_retry_ms)
        if not self._closed:
            self._timer = self._call_later(delay_ms / 1000, self._refresh)
        retrieving.complete(self._keys)
