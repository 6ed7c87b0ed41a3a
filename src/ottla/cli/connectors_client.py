"""The Connect worker of a command: its address, and requests to its REST API.

The first of these wins: `-C`, $OTTLA_CONNECT, http://127.0.0.1:8083. A name and a password belong in $OTTLA_CONNECT:
http://NAME:PASSWORD@HOST:8083.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from ottla.cli.commands import Option, Options, section
from ottla.common.failure import Failure
from ottla.common.http_body import read_body

DEFAULT_URL: Final = "http://127.0.0.1:8083"
VARIABLE: Final = "OTTLA_CONNECT"
_TIMEOUT_S: Final = 100.0
_HEALTH_S: Final = 15.0
_MOST_BYTES: Final = 64 * 1024 * 1024


def worker_options() -> tuple[Option, ...]:
    """Return the options that name the worker."""
    return section(
        "Connection",
        Option("-C, --connect URL", f"a Connect worker; default: $OTTLA_CONNECT, or {DEFAULT_URL}"),
        Option("--ca FILE", "certificates that sign the worker's; default: the system's"),
        Option("--cert FILE", "a client key and certificate (PEM), for a worker with ssl.client.auth=required"),
    )


class Api:
    """The REST API of one worker. Raises Failure for each answer that is an error."""

    def __init__(self, url: str, ca: str | None = None, certificate: str | None = None) -> None:
        given = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(given)
            self._host, self._port = parts.hostname or "", parts.port or 8083
        except ValueError as error:
            raise Failure(f"-C {url!r} is not a URL: {error}", exit_code=2) from error
        if parts.scheme not in ("http", "https") or not self._host:
            raise Failure(f"-C {url!r} is not of the form http://HOST:PORT", exit_code=2)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = _tls(ca, certificate)
        self._scheme, self._ca, self._certificate = parts.scheme, ca, certificate
        self._user = f"{parts.netloc.rpartition('@')[0]}@" if parts.username else ""
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self.url = f"{parts.scheme}://{self._host}:{self._port}{self._prefix}"

    @classmethod
    def of(cls, options: Options) -> Api:
        """Return the worker of the options."""
        return cls(options.connect or os.environ.get(VARIABLE) or DEFAULT_URL, options.ca, options.cert)

    def of_worker(self, worker_id: str) -> Api:
        """Return another worker of the group, by its name in statuses, with the same credentials."""
        return Api(f"{self._scheme}://{self._user}{worker_id}", self._ca, self._certificate)

    def fault(self) -> str:
        """Return why the worker is unhealthy (KIP-1017), or an empty text. Raises Failure if it does not answer."""
        status, text = self._send("GET", "/health", None, _HEALTH_S)
        if status != 500:
            return ""
        try:
            message = str(json.loads(text)["message"])
        except (ValueError, KeyError, TypeError):
            message = text[:200]
        return message.rpartition("unable to handle other requests. ")[2]

    def get(self, path: str) -> Any:
        """Read something."""
        return self.request("GET", path)

    def request(self, method: str, path: str, body: object = None, *, timeout_s: float = _TIMEOUT_S) -> Any:
        """Send a request, and return the JSON of the answer."""
        status, text = self._send(method, path, body, timeout_s)
        try:
            found = json.loads(text) if text else None
        except ValueError:
            raise Failure(f"{self.url} is not a Connect worker: it answered {text[:80]!r}") from None
        if status >= 400:
            message = found.get("message") if isinstance(found, Mapping) else None
            raise _refusal(status, str(message or f"the worker answered {status}"))
        return found

    def _send(self, method: str, path: str, body: object, timeout_s: float) -> tuple[int, str]:
        connection = (
            http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)
            if self._tls is not None
            else http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        )
        try:
            headers = dict(self._headers)
            data = None
            if body is not None:
                headers["Content-Type"] = "application/json"
                data = json.dumps(body).encode()
            connection.request(method, self._prefix + path, data, headers)
            response = connection.getresponse()
            return response.status, read_body(response, _MOST_BYTES).decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            advice = (
                f"`ottla connect run FILE` or `ottla connect serve` starts one; -C or ${VARIABLE} names another one."
            )
            raise Failure(f"no Connect worker can be reached at {self.url}: {reason}", advice) from error
        finally:
            connection.close()


def _tls(ca: str | None, certificate: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise Failure(f"--ca {ca}: {error}", exit_code=2) from error
    if certificate is not None:
        try:
            context.load_cert_chain(certificate)
        except OSError as error:
            raise Failure(f"--cert {certificate}: {error}", exit_code=2) from error
    return context


def _refusal(status: int, message: str) -> Failure:
    first, *more = [line for line in message.splitlines() if "/config/validate" not in line]
    if status == 401:
        return Failure("the worker needs a name and a password", f"${VARIABLE}=http://NAME:PASSWORD@HOST:8083")
    return Failure(first.rstrip(":"), *more)


def path_of(name: str, *more: str) -> str:
    """Return the path of a connector, or of something of it."""
    return "/".join(["/connectors", quote(name, safe=""), *more])
