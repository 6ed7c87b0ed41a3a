"""Sends a request to the worker that can do it: the leader of the group, or the worker that runs a task.

The first worker sends it with `forward=true`, the second one may send it once more with `forward=false`, as in Kafka
Connect: two hops find the owner of a task by way of the leader.
"""

from __future__ import annotations

import logging
import ssl
from typing import Final
from urllib.parse import urlencode

from ottla.connect.errors import NotLeaderError, RetriableError
from ottla.connect.peers import Peers
from ottla.connect.rest.requests import Request
from ottla.web.errors import HttpError

logger = logging.getLogger(__name__)

_HEADERS: Final = ("authorization", "content-type", "accept")
_NO_LEADER: Final = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
)
_TOO_FAR: Final = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"


class Forwarding:
    """A client for the other workers of the group."""

    def __init__(self, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._peers = Peers(timeout_s, tls)

    async def close(self) -> None:
        """Close the connections."""
        await self._peers.close()

    async def send(self, request: Request, raw_path: str, error: NotLeaderError) -> tuple[int, bytes, str]:
        """Send a request on; return the status, the body and the Location of the response. Raises HttpError."""
        forward = request.forward
        if forward is False:
            logger.warning("%s %s was sent on twice, and this worker cannot do it: %s", request.method, raw_path, error)
            raise HttpError(409, 409, _TOO_FAR)
        if error.leader_url is None:
            raise HttpError(409, 409, _NO_LEADER)
        pairs = [*request.pairs(), ("forward", "true" if forward is None else "false")]
        url = f"{error.leader_url.rstrip('/')}{raw_path}?{urlencode(pairs)}"
        headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        try:
            answer = await self._peers.request(request.method, url, request.body, headers)
        except RetriableError as failure:
            raise HttpError(500, 500, f"IO Error trying to forward REST request: {failure}") from failure
        return answer.status, answer.body, answer.location
