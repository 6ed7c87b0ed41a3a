"""The request log: one line for each request that took `ottla.request.log.slow.ms` or longer.

A line has the words and fields of Kafka's `kafka.request.logger`, as far as they exist here: a node has no queues of
requests and responses, and sends a response as soon as the socket takes it. The text is ASCII, since clients choose
their ids. At most ten lines are written per second; the next line counts the others.

Requests that wait by design (`WAIT_BY_DESIGN`) are slow only if their local time is: a Fetch waits for records up to
`fetch.max.wait.ms`, and JoinGroup for the other members.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.common.rate_limit import RateLimitedLog
from ottla.network.connection import SOFTWARE_NAME, Frames, MutingResponse
from ottla.protocol import registry

if TYPE_CHECKING:
    from ottla.network.connection import Connection
    from ottla.protocol.frames import RequestHeader

FETCH, JOIN_GROUP, SYNC_GROUP, SHARE_FETCH = 1, 11, 14, 78
WAIT_BY_DESIGN: Final = frozenset({FETCH, JOIN_GROUP, SYNC_GROUP, SHARE_FETCH})
_NS_PER_MS: Final = 1e6

logger = logging.getLogger("kafka.request.logger")


class Measured(NamedTuple):
    """The sizes and times of one request. `response` is None for no response, or if it failed."""

    request_bytes: int
    response: Frames
    local_ns: int
    remote_ns: int = 0


class SlowRequests:
    """Logs requests of at least `slow_ms` milliseconds."""

    def __init__(self, slow_ms: int, log: RateLimitedLog | None = None) -> None:
        self._slow_ns = slow_ms * 1_000_000
        self._log = log or RateLimitedLog(logger)

    def look(self, connection: Connection, header: RequestHeader, measured: Measured) -> None:
        """Log a request if it was slow."""
        counted_ns = measured.local_ns
        if header.api_key not in WAIT_BY_DESIGN:
            counted_ns += measured.remote_ns
        if counted_ns >= self._slow_ns:
            fields = fields_of(connection, header, measured)
            self._log.info("Completed request: %s", json.dumps(fields), extra={"request": fields})


def fields_of(connection: Connection, header: RequestHeader, measured: Measured) -> dict[str, Any]:
    """Return the fields of a line, named as in Kafka's request log; times are in milliseconds."""
    response = measured.response
    pause_s = response.pause_s if isinstance(response, MutingResponse) else 0.0
    client_id = header.client_id
    return {
        "requestApiKeyName": registry.API[header.api_key].name,
        "requestApiKey": header.api_key,
        "requestApiVersion": header.api_version,
        "correlationId": header.correlation_id,
        "clientId": None if client_id is None else _shortened(client_id),
        "principal": _shortened(connection.principal),
        "connection": f"{connection.remote_host}:{connection.remote_port}",
        "listener": connection.listener,
        "clientSoftwareName": _shortened(str(connection.state.get(SOFTWARE_NAME, ""))),
        "requestSizeBytes": measured.request_bytes,
        "responseSizeBytes": sum(map(len, response or ())),
        "totalTimeMs": round((measured.local_ns + measured.remote_ns) / _NS_PER_MS, 3),
        "localTimeMs": round(measured.local_ns / _NS_PER_MS, 3),
        "remoteTimeMs": round(measured.remote_ns / _NS_PER_MS, 3),
        "throttleTimeMs": round(pause_s * 1000, 3),
    }


def _shortened(text: str) -> str:
    """Return the start of a name: a line must be shorter than the limit of log lines, also with escapes."""
    return text[: 100 if text.isascii() else 50]
