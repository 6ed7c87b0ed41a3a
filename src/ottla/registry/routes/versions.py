"""`/subjects/{subject}/versions`: the versions of a subject, and the registration of schemas."""

from __future__ import annotations

from typing import Final

from ottla.registry import changes, errors, lookup
from ottla.registry.records import to_json
from ottla.registry.routes.formats import formatted, qualified_references
from ottla.registry.routes.requests import Request, body_number, schema_of
from ottla.registry.routes.responses import registered_body, schema_version
from ottla.registry.routes.router import Route
from ottla.registry.stored import Version
from ottla.registry.subjects import DEFAULT_CONTEXT, context_of, is_valid, normalize

_TAGS: Final = ("schemaTagsToAdd", "schemaTagsToRemove")


def listing(request: Request) -> bytes:
    """List the numbers of the versions."""
    state, subject = request.state, request.subject()
    deleted, only_deleted = request.flag("deleted"), request.flag("deletedOnly")
    if not state.has_subject(subject, deleted=deleted or only_deleted):
        raise errors.subject_not_found(subject)
    versions = state.versions(subject)
    if request.flag("deletedAsNegative"):
        return to_json(request.page([-item.version if item.deleted else item.version for item in versions]))
    listed = [item.version for item in versions if _is_listed(item, deleted=deleted, only_deleted=only_deleted)]
    return to_json(request.page(listed))


def _is_listed(version: Version, *, deleted: bool, only_deleted: bool) -> bool:
    return version.deleted if only_deleted else deleted or not version.deleted


def _found(request: Request, *, deleted: bool) -> Version:
    """Return the version of the path; a subject of the default context is searched in the other contexts, too."""
    state, subject, number = request.state, request.subject(), request.version()
    version = state.version(subject, number, deleted=deleted)
    if version is None and context_of(subject) == DEFAULT_CONTEXT:
        found = (state.version(other, number, deleted=deleted) for other in request.contexts_to_search(subject))
        version = next((item for item in found if item is not None), None)
    if version is not None:
        return version
    if not state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.version_not_found(number)


def version(request: Request) -> bytes:
    """Return a version."""
    found = _found(request, deleted=request.flag("deleted"))
    return schema_version(qualified_references(request, found, formatted(request, found)), found)


def text(request: Request) -> bytes:
    """Return only the text of a version."""
    return formatted(request, _found(request, deleted=request.flag("deleted"))).text.encode()


def referenced_by(request: Request) -> bytes:
    """List the ids of the schemas that reference a version."""
    found = _found(request, deleted=True)
    referrers = request.state.referrers(found.subject, found.version, deleted=request.flag("deleted"))
    return to_json(request.page([stored.id for _, stored in referrers], 1000))


async def register(request: Request) -> bytes:
    """Register a schema."""
    name = request.subject()
    body = await request.body()
    schema = schema_of(body)
    if not is_valid(name):
        raise errors.invalid_subject(name)
    subject = normalize(name)
    if any(body.get(tags) for tags in _TAGS):
        raise errors.invalid_schema("Tags in the text of schemas are not supported")
    state = request.state
    registration = changes.Registration(
        schema,
        max(-1, body_number(body, "id", -1)),
        max(-1, body_number(body, "version", 0)),
        lookup.normalizes(state, subject, request.flag("normalize")),
        request.flag("force"),
    )
    registered = await state.comparisons.complete(
        lambda: request.registry.change(lambda state: changes.register(state, subject, registration))
    )
    return registered_body(registered)


async def delete(request: Request) -> bytes:
    """Delete a version."""
    subject, number, permanent = request.subject(), request.version(), request.flag("permanent")
    deleted = await request.registry.change(
        lambda state: changes.delete_version(state, subject, number, permanent=permanent)
    )
    return to_json(deleted)


ROUTES: Final = (
    Route("GET", "/subjects/{}/versions", listing),
    Route("POST", "/subjects/{}/versions", register),
    Route("GET", "/subjects/{}/versions/{}", version),
    Route("DELETE", "/subjects/{}/versions/{}", delete),
    Route("GET", "/subjects/{}/versions/{}/schema", text),
    Route("GET", "/subjects/{}/versions/{}/referencedby", referenced_by),
)
