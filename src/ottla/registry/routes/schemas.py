"""`/schemas`: schemas by id, by guid, and across subjects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.registry import errors
from ottla.registry.records import to_json
from ottla.registry.routes.formats import formatted, qualified_references
from ottla.registry.routes.requests import Request
from ottla.registry.routes.responses import schema_string, schema_version
from ottla.registry.routes.router import Route
from ottla.registry.state import State
from ottla.registry.stored import StoredSchema, Version
from ottla.registry.subjects import context_prefix
from ottla.schemas.model import SchemaType

_LARGEST_PAGE: Final = 1000
_TYPES: Final = to_json([SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO])


def _found(request: Request) -> tuple[StoredSchema, Version]:
    number = request.id()
    found = request.state.schema_by_id(number, request.query_subject())
    if found is None:
        raise errors.schema_not_found(number)
    return found


def by_id(request: Request) -> bytes:
    """Return a schema by its id."""
    stored, version = _found(request)
    with_version = bool(request.texts("subject")) or request.path.prefix is not None
    max_id = request.state.highest_id(version.subject) if request.flag("fetchMaxId") else 0
    stored = qualified_references(request, version, formatted(request, version))
    return schema_string(stored, version, with_version=with_version, max_id=max_id)


def text_by_id(request: Request) -> bytes:
    """Return only the text of a schema."""
    _, version = _found(request)
    return formatted(request, version).text.encode()


def subjects_by_id(request: Request) -> bytes:
    """List the subjects that have a schema."""
    deleted = request.flag("deleted")
    names = dict.fromkeys(use.subject for use in _found_uses(request) if deleted or not use.deleted)
    return to_json(request.page(list(names)))


def versions_by_id(request: Request) -> bytes:
    """List the versions that have a schema."""
    deleted = request.flag("deleted")
    found = [use for use in _found_uses(request) if deleted or not use.deleted]
    return to_json([{"subject": use.subject, "version": use.version} for use in request.page(found)])


def _found_uses(request: Request) -> Iterator[Version]:
    found = request.state.schema_by_id(request.id(), request.query_subject())
    if found is None:
        raise errors.schema_not_found()
    return found[0].uses


def types(_request: Request) -> bytes:
    """List the types of schemas."""
    return _TYPES


def by_guid(request: Request) -> bytes:
    """Return a schema by its guid."""
    guid = request.values[0]
    for context, number in sorted(request.state.ids_of_guid(guid), key=lambda item: item[0] != "."):
        found = request.state.schema_by_id(number, context_prefix(context))
        if found is not None:
            return schema_string(formatted(request, found[1]), found[1])
    raise errors.schema_not_found(guid)


def ids_by_guid(request: Request) -> bytes:
    """List the ids that a guid has in the contexts."""
    found = request.state.ids_of_guid(request.values[0])
    return to_json([{"context": context, "id": number} for context, number in found])


def search(request: Request) -> bytes:
    """List the versions of all subjects with a prefix."""
    state, prefix = request.state, request.subject_prefix("")
    names: Iterable[str] = state.subjects(prefix)
    aliases: dict[str, list[str]] = {}
    if request.flag("aliases"):
        aliases = _aliases(state, prefix)
        names = sorted({*names, *(name for name in aliases if state.versions(name))})
    found = (version for name in names for version in _listed(request, state.versions(name)))
    bodies = (
        schema_version(item.schema, item, aliases=aliases.get(item.subject))
        for item in request.page(found, _LARGEST_PAGE)
    )
    return b"[%b]" % b",".join(bodies)


def _listed(request: Request, versions: list[Version]) -> list[Version]:
    listed = versions if request.flag("deleted") else [item for item in versions if not item.deleted]
    listed = listed[-1:] if request.flag("latestOnly") else listed
    rule_type = request.text("ruleType")
    return [item for item in listed if _has_rule(item.schema, rule_type)] if rule_type else listed


def _aliases(state: State, prefix: str) -> dict[str, list[str]]:
    """Return the aliases below a prefix by the subject that they stand for."""
    found: dict[str, list[str]] = {}
    for name, target in state.settings.aliases(prefix):
        found.setdefault(target, []).append(name)
    return found


def _has_rule(stored: StoredSchema, rule_type: str) -> bool:
    rule_set = stored.rule_set or {}
    rules = (rule for rules in rule_set.values() if isinstance(rules, list) for rule in rules)
    return any(rule.get("type") == rule_type for rule in rules)


ROUTES: Final = (
    Route("GET", "/schemas", search),
    Route("GET", "/schemas/types", types),
    Route("GET", "/schemas/ids/{}", by_id),
    Route("GET", "/schemas/ids/{}/schema", text_by_id),
    Route("GET", "/schemas/ids/{}/subjects", subjects_by_id),
    Route("GET", "/schemas/ids/{}/versions", versions_by_id),
    Route("GET", "/schemas/guids/{}", by_guid),
    Route("GET", "/schemas/guids/{}/ids", ids_by_guid),
)
