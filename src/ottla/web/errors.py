"""Errors of HTTP APIs in Confluent's form: a status, and the body `{"error_code": ..., "message": ...}`.

A route raises `HttpError`; `EXCEPTION_HANDLERS` of a starlette application turns it, unknown paths and unhandled
exceptions into responses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ottla.web.responses import JSON, json_response

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger(__name__)

_UNHANDLED: Final = 50001


class HttpError(Exception):
    """The response to a request that failed. `error_code` begins with the status in most of Confluent's codes."""

    def __init__(self, status: int, error_code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        return {"error_code": self.error_code, "message": self.message}


class Unauthenticated(HttpError):
    """No credentials, or wrong ones. `challenges` are the schemes that the server accepts."""

    def __init__(self, message: str = "Unauthorized", challenges: tuple[str, ...] = ("Basic",)) -> None:
        text = ", ".join(f'{scheme} realm="Ottla"' for scheme in challenges)
        super().__init__(401, 401, message, {"WWW-Authenticate": text} if text else {})


class BodyTooLarge(HttpError):
    """The body of a request exceeds the limit."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(413, 413, f"The body of the request exceeds {limit_bytes} bytes")


class BodyTimeout(HttpError):
    """The rest of the body did not arrive in time."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(408, 408, f"No part of the body arrived for {limit_s:g} s", {"Connection": "close"})


def error_response(error: HttpError, content_type: str = JSON) -> Response:
    """Return the response for an error."""
    return json_response(error.body(), error.status, content_type, error.headers)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return error_response(error)


async def _starlette_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = {"error_code": error.status_code, "message": f"HTTP {error.status_code} {error.detail}"}
    return json_response(body, error.status_code, headers=error.headers)


async def unhandled(request: Request, _error: Exception) -> Response:
    """Return the response to a request whose handling raised an unexpected exception."""
    # Starlette raises the exception again after the response, and uvicorn logs it with the traceback.
    logger.error("Unhandled error in %s %s", request.method, request.url.path)
    return json_response({"error_code": _UNHANDLED, "message": "Internal server error"}, 500)


EXCEPTION_HANDLERS: Final[Mapping[Any, Any]] = {
    HttpError: _http_error,
    HTTPException: _starlette_error,
    Exception: unhandled,
}
"""For `Starlette(exception_handlers=...)`."""
