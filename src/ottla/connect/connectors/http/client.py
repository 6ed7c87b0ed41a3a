"""Requests with deadlines, and responses as errors of connectors. Messages show neither headers nor query strings."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ottla.connect.config.definition import HIDDEN, Importance, Setting, SettingType, between, non_empty
from ottla.connect.errors import ConnectError, RetriableError

if TYPE_CHECKING:
    import httpx

HEADER: Final = "header."
"""Settings with this prefix are headers: `header.Authorization`."""
RETRIABLE: Final = ("408", "425", "429", "500", "502", "503", "504")
_NOT_OF_A_RECORD: Final = frozenset({401, 402, 403, 404, 405, 407, 410, 421, 423, 426, 451, 511})
_SECRET_PARAMETER: Final = re.compile(
    r"(^|[_-])(token|secret|password|signature|sig|auth|key|apikey|credential)$", re.IGNORECASE
)
_MOST_WAIT_S: Final = 3600.0
_SHOWN: Final = 300

CLIENT_SETTINGS: Final = (
    Setting("url", SettingType.STRING, "The URL.", importance=Importance.HIGH, validator=non_empty),
    Setting("request.timeout.ms", SettingType.INT, "Deadline of a request.", 30_000, Importance.LOW, between(1)),
    Setting(
        "retriable.statuses",
        SettingType.LIST,
        "Statuses after which the same request is sent again.",
        list(RETRIABLE),
        Importance.LOW,
    ),
)


def make_client(config: Mapping[str, str], timeout_ms: int, **more: Any) -> httpx.Client:
    """Return a client with the configured headers."""
    import httpx  # noqa: PLC0415 - an optional package

    headers = {name.removeprefix(HEADER): value for name, value in config.items() if name.startswith(HEADER)}
    return httpx.Client(headers=headers, timeout=timeout_ms / 1000, **more)


def place(url: str) -> str:
    """Return a URL without user, password and query, for messages."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def without_credentials(url: str) -> str:
    """Return a URL without user, password and secret parameters of its query, for offsets. Others are not changed."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    shown = [(name, HIDDEN if _SECRET_PARAMETER.search(name) else value) for name, value in query]
    if shown == query and "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(shown)))


def send(client: httpx.Client, method: str, url: str, **more: Any) -> httpx.Response:
    """Send a request. Raises RetriableError if there is no response, or none that can be decoded."""
    import httpx  # noqa: PLC0415

    try:
        return client.request(method, url, **more)
    except (httpx.TransportError, httpx.DecodingError) as error:
        raise RetriableError(f"{method} {place(url)} failed: {type(error).__name__}: {error}") from error
    except httpx.InvalidURL as error:
        raise ConnectError(f"{place(url)} is not a valid URL: {error}") from error


def problem(response: httpx.Response) -> str:
    """Return the words for a response that is an error."""
    request = response.request
    return f"{request.method} {place(str(request.url))}: status {response.status_code}: {response.text[:_SHOWN]}"


def refuses_record(status: int) -> bool:
    """Whether a status says that a record is wrong: not the address, the credentials or the server.

    A redirection, a missing right or a full server must not let records be skipped.
    """
    return 400 <= status < 500 and status not in _NOT_OF_A_RECORD


def retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds of `Retry-After`, at most an hour; None without the header (RFC 9110, section 10.2.3)."""
    given = response.headers.get("retry-after", "").strip()
    if not given:
        return None
    if given.isdigit():
        return min(float(given), _MOST_WAIT_S)
    try:
        at = parsedate_to_datetime(given)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return min(max((at - datetime.now(UTC)).total_seconds(), 0.0), _MOST_WAIT_S)


class Pause:
    """The time before which no request is sent, as the server has asked for."""

    def __init__(self) -> None:
        self._until = 0.0

    def start(self, seconds: float) -> None:
        """Pause for some seconds."""
        self._until = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """The seconds left, 0 if there is no pause."""
        return max(0.0, self._until - time.monotonic())
