"""Content negotiation of v2: the embedded format of a request's body, and the media type of its answer.

`application/vnd.kafka.FORMAT.v2+json` names a format of keys and values. The answers of other resources are
`application/vnd.kafka.v2+json`. As in older releases of Confluent's proxy, `application/json` and
`application/vnd.kafka+json` are accepted for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

from starlette.requests import Request

from ottla.schemas.model import SchemaType
from ottla.web.errors import HttpError
from ottla.web.responses import JSON

V2_JSON: Final = "application/vnd.kafka.v2+json"
_PLAIN: Final = (V2_JSON, "application/vnd.kafka+json", JSON)


class Format(Enum):
    """The formats of keys and values that are embedded in JSON."""

    BINARY = "binary"
    JSON = "json"
    AVRO = "avro"
    JSONSCHEMA = "jsonschema"
    PROTOBUF = "protobuf"

    @property
    def schema_type(self) -> SchemaType | None:
        """The type of the schemas of keys and values; None without schemas."""
        return _SCHEMA_TYPES.get(self)

    @property
    def media_type(self) -> str:
        """The media type of bodies with this format."""
        return f"application/vnd.kafka.{self.value}.v2+json"


_SCHEMA_TYPES: Final = {
    Format.AVRO: SchemaType.AVRO,
    Format.JSONSCHEMA: SchemaType.JSON,
    Format.PROTOBUF: SchemaType.PROTOBUF,
}
FORMATS: Final = {each.media_type: each for each in Format}
_CONSUMER_TYPES: Final = (*_PLAIN, *FORMATS)


def format_of_body(request: Request) -> Format:
    """Return the embedded format of a produce request. Raises HttpError (415)."""
    given = request.headers.get("content-type")
    found = FORMATS.get(_bare(given or ""))
    if found is None:
        raise _unsupported(given)
    return found


def check_body(request: Request) -> None:
    """Check the media type of a body without embedded data. Raises HttpError (415)."""
    given = request.headers.get("content-type")
    if given is not None and _bare(given) not in _CONSUMER_TYPES:
        raise _unsupported(given)


def answer_type(request: Request) -> str:
    """Return the media type of an answer without embedded data. Raises HttpError (406)."""
    return _best(request.headers.get("accept", "*/*"), _CONSUMER_TYPES)


def format_of_answer(request: Request) -> Format:
    """Return the embedded format that a read of records asks for. Raises HttpError (406)."""
    best = _best(request.headers.get("accept", "*/*"), (Format.BINARY.media_type, *_CONSUMER_TYPES))
    return FORMATS.get(best, Format.BINARY)


@lru_cache(maxsize=256)
def _bare(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=256)
def _best(accept: str, offered: Sequence[str]) -> str:
    """Return the offered type that the client prefers; of several, the first offered. Raises HttpError (406)."""
    ranges = [_range(part) for part in accept.split(",") if part.strip()] or [("*/*", 1.0)]
    qualities = {each: _quality(each, ranges) for each in offered}
    best = max(offered, key=qualities.__getitem__)
    if qualities[best] <= 0:
        raise HttpError(406, 406, "HTTP 406 Not Acceptable")
    return best


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that matches."""
    kind = media_type.partition("/")[0] + "/*"
    for pattern in (media_type, kind, "*/*"):
        matching = [quality for name, quality in ranges if name == pattern]
        if matching:
            return max(matching)
    return 0.0


def _range(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                quality = float(parameter[2:])
            except ValueError:
                quality = 0.0
    return name, quality


def _unsupported(given: str | None) -> HttpError:
    return HttpError(415, 415, f"HTTP 415 Unsupported Media Type: {given or 'no Content-Type'}")
