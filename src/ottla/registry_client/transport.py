"""The part of both clients that uses httpx: connections, requests, and their outcomes."""

from __future__ import annotations

import ssl
from typing import Any, Final

from ottla.registry_client.requests import Failed, Received, Send
from ottla.registry_client.settings import RegistrySettings

try:
    import httpx
except ImportError as error:
    raise ImportError("Clients of schema registries need httpx: pip install 'ottla[registry]'", name="httpx") from error

# With TLS 1.3, a server refuses a client's certificate after the handshake. httpx's `asyncio` client lets that pass.
ERRORS: Final = (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError)


def blocking(settings: RegistrySettings) -> httpx.Client:
    return httpx.Client(**_arguments(settings))


def asynchronous(settings: RegistrySettings) -> httpx.AsyncClient:
    return httpx.AsyncClient(**_arguments(settings))


def _arguments(settings: RegistrySettings) -> dict[str, Any]:
    """Return the arguments of an httpx client. Proxies of the environment are not used, as in Confluent's clients."""
    tls = settings.tls()
    return {
        "verify": True if tls is None else tls,
        "trust_env": False,
        "timeout": httpx.Timeout(None, connect=settings.values["http_connect_timeout_ms"] / 1000),
    }


def request(client: httpx.Client | httpx.AsyncClient, send: Send) -> httpx.Request:
    connect = client.timeout.connect or send.timeout_s
    timeout = httpx.Timeout(send.timeout_s, connect=min(send.timeout_s, connect))
    return client.build_request(send.method, send.url, headers=dict(send.headers), content=send.body, timeout=timeout)


def received(response: httpx.Response) -> Received:
    return Received(response.status_code, response.content)


def failed(error: Exception) -> Failed:
    text = str(error) or type(error).__name__
    return Failed(f"no answer in time ({text})" if isinstance(error, httpx.TimeoutException) else text)
