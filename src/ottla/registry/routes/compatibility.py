"""`/compatibility`: whether a schema could be registered."""

from __future__ import annotations

from typing import Any, Final

from ottla.registry import errors, lookup
from ottla.registry.records import to_json
from ottla.registry.routes.requests import Request, schema_of
from ottla.registry.routes.router import Route
from ottla.registry.stored import Version
from ottla.schemas.model import Schema


async def with_version(request: Request) -> bytes:
    """Compare a schema with one version. A subject without versions is compatible with any schema."""
    subject, number = request.subject(), request.version()
    version = request.state.version(subject, number)
    if version is None and number != -1:
        raise errors.version_not_found(number)
    return await _check(request, subject, [] if version is None else [version])


async def with_subject(request: Request) -> bytes:
    """Compare a schema with the versions that a registration would compare it with."""
    subject = request.subject()
    versions = [version for version in request.state.versions(subject) if not version.deleted]
    return await _check(request, subject, versions)


async def _check(request: Request, subject: str, versions: list[Version]) -> bytes:
    schema = schema_of(await request.body())

    async def compared() -> bytes:
        return _compared(request, subject, schema, versions)

    return await request.state.comparisons.complete(compared)


def _compared(request: Request, subject: str, schema: Schema, versions: list[Version]) -> bytes:
    state, verbose = request.state, request.flag("verbose")
    normalize = lookup.normalizes(state, subject, request.flag("normalize"))
    try:
        is_new = lookup.validates_new(state, subject)
        canonical = lookup.canonicalize(state, subject, schema, normalize=normalize, is_new=is_new)
    except errors.RegistryError as error:
        if not verbose:
            raise
        reasons = [error.message]
    else:
        reasons = lookup.incompatibilities(state, subject, canonical, versions)
    result: dict[str, Any] = {"is_compatible": not reasons}
    return to_json({**result, "messages": reasons} if verbose else result)


ROUTES: Final = (
    Route("POST", "/compatibility/subjects/{}/versions", with_subject),
    Route("POST", "/compatibility/subjects/{}/versions/{}", with_version),
)
