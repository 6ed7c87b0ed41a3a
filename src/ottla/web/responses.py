"""Responses with JSON bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

JSON: Final = "application/json"

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_bytes(value: Any) -> bytes:
    """Return a value as compact JSON in UTF-8. A lone surrogate becomes an escape, since UTF-8 has no form for it."""
    text = _ENCODER.encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def json_response(
    value: Any, status: int = 200, content_type: str = JSON, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with this value as its body."""
    return Response(json_bytes(value), status, headers, content_type)
