"""`/subjects`: listings, the lookup of a schema, and the delete of a subject."""

from __future__ import annotations

from typing import Final

from ottla.registry import changes, errors, lookup
from ottla.registry.records import to_json
from ottla.registry.routes.formats import formatted
from ottla.registry.routes.requests import Request, schema_of
from ottla.registry.routes.responses import schema_version
from ottla.registry.routes.router import Route
from ottla.registry.subjects import ALL_CONTEXTS, DEFAULT_CONTEXT, context_of


def listing(request: Request) -> bytes:
    """List the subjects with a prefix, sorted."""
    state, prefix = request.state, request.subject_prefix(ALL_CONTEXTS)
    only_deleted = request.flag("deletedOnly")
    if request.flag("deleted") and not only_deleted:
        return to_json(request.page(state.subjects(prefix)))
    return to_json(request.page(state.subjects_with(prefix, deleted=only_deleted)))


async def find(request: Request) -> bytes:
    """Find the version that has the schema in the body."""
    state, subject = request.state, request.subject()
    deleted = request.flag("deleted")
    schema = schema_of(await request.body())
    normalize = lookup.normalizes(state, subject, request.flag("normalize"))
    version = lookup.lookup(state, subject, schema, normalize=normalize, deleted=deleted)
    if version is None and context_of(subject) == DEFAULT_CONTEXT:
        others = (other for other in request.contexts_to_search(subject) if state.versions(other))
        found = (lookup.lookup(state, other, schema, normalize=normalize, deleted=deleted) for other in others)
        version = next((each for each in found if each is not None), None)
    if version is None:
        raise errors.schema_not_found() if state.has_subject(subject, deleted=deleted) else not_found(subject)
    return schema_version(formatted(request, version), version)


def not_found(subject: str) -> errors.RegistryError:
    """Return the error for a subject without versions."""
    return errors.subject_not_found(subject)


def latest_with_metadata(request: Request) -> bytes:
    """Return the latest version whose metadata has the given properties."""
    state, subject = request.state, request.subject()
    deleted = request.flag("deleted")
    wanted = dict(zip(request.texts("key"), request.texts("value"), strict=False))
    for version in reversed(state.versions(subject)):
        metadata = version.schema.metadata
        if metadata is None or (version.deleted and not deleted):
            continue
        properties = metadata.get("properties", {})
        if wanted.items() <= properties.items():
            return schema_version(formatted(request, version), version)
    raise errors.schema_not_found() if state.has_subject(subject, deleted=deleted) else not_found(subject)


async def delete(request: Request) -> bytes:
    """Delete all versions of a subject."""
    subject, permanent = request.subject(), request.flag("permanent")
    deleted = await request.registry.change(lambda state: changes.delete_subject(state, subject, permanent=permanent))
    return to_json(deleted)


ROUTES: Final = (
    Route("GET", "/subjects", listing),
    Route("POST", "/subjects/{}", find),
    Route("DELETE", "/subjects/{}", delete),
    Route("GET", "/subjects/{}/metadata", latest_with_metadata),
)
