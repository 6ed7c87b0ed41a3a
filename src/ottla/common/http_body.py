"""Bodies of responses that `http.client` and `urllib` read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from http.client import HTTPResponse


def read_body(response: HTTPResponse, most_bytes: int) -> bytes:
    """Return the body, or its first `most_bytes`.

    Raises ConnectionAbortedError if the connection ends before the body: `response.read(n)` returns a part then. Other
    errors are OSError and http.client.HTTPException.
    """
    data = response.read(most_bytes)
    if response.length and len(data) < most_bytes:
        raise ConnectionAbortedError(f"the connection ended {response.length} bytes before the end of the response")
    return data
