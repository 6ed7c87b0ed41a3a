"""Bodies of responses, and the negotiation of content types.

The bodies of schemas are joined from parts that are JSON already: the text of a schema is stored as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from functools import lru_cache
from typing import Any, Final

from ottla.registry.changes import Registered
from ottla.registry.errors import RegistryError
from ottla.registry.records import to_json
from ottla.registry.stored import StoredSchema, Version
from ottla.schemas.model import Reference

V1_JSON: Final = b"application/vnd.schemaregistry.v1+json"
_PRODUCED: Final = ((V1_JSON, 1.0), (b"application/vnd.schemaregistry+json", 0.9), (b"application/json", 0.5))
_CONSUMED: Final = frozenset({*(name for name, _ in _PRODUCED), b"application/octet-stream"})

StartMessage = MutableMapping[str, Any]


def start_message(
    status: int, content_type: bytes, body: bytes, extra: Iterable[tuple[bytes, bytes]] = ()
) -> StartMessage:
    """Return the ASGI message that begins a response."""
    length = b"%d" % len(body)
    headers = [(b"content-type", content_type), (b"content-length", length), *extra]
    return {"type": "http.response.start", "status": status, "headers": headers}


def error_body(error: RegistryError) -> bytes:
    """Return the body of an error."""
    try:
        return to_json({"error_code": error.error_code, "message": error.message})
    except UnicodeEncodeError:
        return to_json({"error_code": error.error_code, "message": ascii(error.message)})


@lru_cache(maxsize=1000)
def negotiate(accept: bytes) -> bytes | None:
    """Return the content type of the response; None if the client accepts none that the registry has."""
    wanted = [_media_range(part) for part in accept.lower().split(b",") if part.strip()]
    if not wanted:
        return V1_JSON
    best: tuple[float, float] = (0.0, 0.0)
    found: bytes | None = None
    for name, preference in _PRODUCED:
        quality = max((_match(media, name) * weight for media, weight in wanted), default=0.0)
        if quality > 0 and (quality, preference) > best:
            best, found = (quality, preference), name
    return found


def _media_range(part: bytes) -> tuple[bytes, float]:
    media, *parameters = (piece.strip() for piece in part.split(b";"))
    for parameter in parameters:
        if parameter.startswith(b"q="):
            try:
                return media, min(1.0, max(0.0, float(parameter[2:])))
            except ValueError:
                return media, 0.0
    return media, 1.0


def _match(media: bytes, name: bytes) -> float:
    return 1.0 if media in (name, b"*/*", b"*", b"application/*") else 0.0


@lru_cache(maxsize=1000)
def consumes(content_type: bytes) -> bool:
    """Whether the registry reads bodies of this content type."""
    media = content_type.partition(b";")[0].strip().lower()
    return not media or media in _CONSUMED


def schema_string(stored: StoredSchema, version: Version, *, with_version: bool = False, max_id: int = 0) -> bytes:
    """Return the body of a schema that was found by its id."""
    head = b'{"subject":%b,"version":%d,' % (to_json(version.subject), version.version) if with_version else b"{"
    tail = b',"maxId":%d' % max_id if max_id else b""
    return b"%b%b%b%b}" % (head, _contents(stored), tail, _end(version))


def registered_body(registered: Registered) -> bytes:
    """Return the body of a registration."""
    stored = StoredSchema(registered.id, registered.schema, registered.digest)
    return b'{"id":%d,"version":%d,%b}' % (registered.id, registered.version, _contents(stored))


def schema_version(stored: StoredSchema, version: Version, *, aliases: list[str] | None = None) -> bytes:
    """Return the body of a version of a subject."""
    head = b'{"subject":%b,"version":%d,"id":%d,' % (to_json(version.subject), version.version, stored.id)
    tail = b',"aliases":%b' % to_json(aliases) if aliases else b""
    return b"%b%b%b%b}" % (head, _contents(stored), _end(version), tail)


def _contents(stored: StoredSchema) -> bytes:
    hex_ = stored.digest.hex()
    return b'"guid":"%b-%b-%b-%b-%b","schemaType":"%b"%b,"schema":%b' % (
        hex_[:8].encode(),
        hex_[8:12].encode(),
        hex_[12:16].encode(),
        hex_[16:20].encode(),
        hex_[20:].encode(),
        stored.type.encode(),
        _extras(stored),
        stored.text_json,
    )


def _extras(stored: StoredSchema) -> bytes:
    extras = b""
    if stored.references:
        extras += b',"references":%b' % references_json(stored.references)
    if stored.metadata is not None:
        extras += b',"metadata":%b' % to_json(stored.metadata)
    if stored.rule_set is not None:
        extras += b',"ruleSet":%b' % to_json(stored.rule_set)
    return extras


def references_json(references: Iterable[Reference]) -> bytes:
    """Return references as JSON."""
    return to_json([reference._asdict() for reference in references])


def _end(version: Version) -> bytes:
    deleted = b"true" if version.deleted else b"false"
    return (
        b',"ts":%d,"deleted":%b' % (version.timestamp_ms, deleted)
        if version.timestamp_ms >= 0
        else (b',"deleted":%b' % deleted)
    )
