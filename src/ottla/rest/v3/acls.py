"""ACLs: search, create one or several, delete by a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from starlette.datastructures import QueryParams
from starlette.responses import Response

from ottla.clients.admin.access_model import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    AclResourceType,
    PatternType,
)
from ottla.rest.calls import Call, json_response
from ottla.rest.v3.operations import Operation
from ottla.rest.v3.resources import Links, bad_request, checked, cluster_of, object_body, payload_error
from ottla.security.acl import CLUSTER_NAME

_KIND: Final = "KafkaAcl"
_PATH: Final = "/clusters/{cluster}/acls"
_FIELDS: Final = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")

E = TypeVar("E", bound=IntEnum)


async def search(call: Call) -> Response:
    """GET acls: the ACLs that match the query, all without one."""
    _, links = await cluster_of(call)
    query = call.request.query_params
    wanted = _filter(query, "ANY", "{} cannot be UNKNOWN")
    shown = {name: query.get(name) or ("" if name in _TEXTS else "ANY") for name in _FIELDS}
    url = links.url("acls", query=shown)
    return links.collection(_KIND, url, _shown(await call.clients.admin.describe_acls(wanted), links))


async def create(call: Call) -> Response:
    """POST acls: create one ACL."""
    _, links = await cluster_of(call)
    acl = _acl(await object_body(call, *_FIELDS))
    await call.clients.admin.create_acls([acl])
    return Response(status_code=201, headers={"Location": links.url("acls", query=_query(acl))})


async def create_several(call: Call) -> Response:
    """POST acls:batch: create ACLs."""
    await cluster_of(call)
    given = checked(await object_body(call, "data"), "data", list)
    if not given:
        raise payload_error("data may not be empty.")
    acls = []
    for each in given:
        if not isinstance(each, dict):
            raise bad_request("data must be an array of objects.")
        absent = next((name for name in _FIELDS if each.get(name) is None), None)
        if absent is not None:
            raise bad_request(f"Missing required creator property '{absent}'.")
        acls.append(_acl(each))
    await call.clients.admin.create_acls(acls)
    return Response(status_code=201)


async def delete(call: Call) -> Response:
    """DELETE acls: delete the ACLs that match the query, which must name its types; returns them."""
    _, links = await cluster_of(call)
    wanted = _filter(call.request.query_params, "UNKNOWN", "{} cannot be unspecified or UNKNOWN")
    deleted = await call.clients.admin.delete_acls([wanted])
    return json_response({"data": _shown((acl for acls in deleted.values() for acl in acls), links)})


_TEXTS: Final = ("resource_name", "principal", "host")


def _filter(query: QueryParams, default: str, refusal: str) -> AclFilter:
    """Return the filter of a query. Raises HttpError."""

    def word(name: str, kind: type[E]) -> E:
        found = _word(query.get(name) or default, name, kind)
        if found.name == "UNKNOWN":
            raise bad_request(refusal.format(name))
        return found

    return AclFilter(
        word("resource_type", AclResourceType),
        query.get("resource_name") or None,
        word("pattern_type", PatternType),
        query.get("principal") or None,
        query.get("host") or None,
        word("operation", AclOperation),
        word("permission", AclPermission),
    )


def _word(text: str, name: str, kind: type[E]) -> E:
    """Return the member of an enum by its name. Raises HttpError."""
    found = kind.__members__.get(text.upper())
    if found is None:
        raise bad_request(f"{name} must be one of {', '.join(kind.__members__)}, not {text}.")
    return found


def _acl(given: Mapping[str, Any]) -> Acl:
    """Return the ACL to create. Raises HttpError."""
    resource_type = _word(checked(given, "resource_type", str), "resource_type", AclResourceType)
    pattern = _word(checked(given, "pattern_type", str), "pattern_type", PatternType)
    operation = _word(checked(given, "operation", str), "operation", AclOperation)
    permission = _word(checked(given, "permission", str), "permission", AclPermission)
    for name, value in (("resource_type", resource_type), ("operation", operation), ("permission", permission)):
        if value.name in {"ANY", "UNKNOWN"}:
            raise bad_request(f"{name} cannot be {value.name}")
    if pattern not in {PatternType.LITERAL, PatternType.PREFIXED}:
        raise bad_request(f"pattern_type cannot be {pattern.name}")
    name = checked(given, "resource_name", str)
    if resource_type is AclResourceType.CLUSTER and not name:
        name = CLUSTER_NAME
    resource = AclResource(resource_type, name, pattern)
    return Acl(resource, checked(given, "principal", str), operation, permission, checked(given, "host", str))


def _query(acl: Acl) -> dict[str, str]:
    """Return the fields of an ACL, which are also the query that finds it."""
    resource = acl.resource
    return {
        "resource_type": resource.type.name,
        "resource_name": resource.name,
        "pattern_type": resource.pattern.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _shown(acls: Iterable[Acl], links: Links) -> list[dict[str, Any]]:
    fields = sorted(map(_query, acls), key=lambda each: tuple(each.values()))
    return [links.resource(_KIND, links.url("acls", query=each), None, each) for each in fields]


OPERATIONS: Final = (
    Operation("GET", _PATH, search, "Search ACLs", f"{_KIND}List", query=_FIELDS),
    Operation("POST", _PATH, create, "Create an ACL", None, 201, "CreateAcl"),
    Operation("DELETE", _PATH, delete, "Delete the ACLs that match the query", f"{_KIND}List", query=_FIELDS),
    Operation("POST", f"{_PATH}:batch", create_several, "Create ACLs", None, 201, "CreateAcls"),
)
