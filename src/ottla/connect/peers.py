"""Requests to the other workers of the group. The client exists from the first request on: most workers send none."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.connect import late
from ottla.connect.errors import RetriableError

_CONNECT_S: Final = 5.0


class Answer(NamedTuple):
    """The parts of a response that callers use."""

    status: int
    body: bytes
    location: str


class Peers:
    """A client for the other workers. Belongs to one event loop."""

    def __init__(self, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        """`tls` has the trust store and the certificate of this worker; without it, the usual authorities."""
        self._timeout_s = timeout_s
        self._tls = tls
        self._client: late.AsyncClient | None = None

    async def request(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request. Raises RetriableError with the reason if the worker does not answer."""
        if self._client is None:
            timeout = late.Timeout(self._timeout_s, connect=_CONNECT_S)
            # Proxies of the environment are for the internet, not for workers of one group.
            self._client = late.AsyncClient(timeout=timeout, verify=self._tls or True, trust_env=False)
        try:
            response = await self._client.request(method, url, content=body, headers=headers)
        # With TLS 1.3, a worker refuses this one's certificate after the handshake. httpx lets that error pass.
        except (late.HTTPError, late.InvalidURL, ssl.SSLError) as error:
            raise RetriableError(str(error) or type(error).__name__) from error
        return Answer(response.status_code, response.content, response.headers.get("location", ""))

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
