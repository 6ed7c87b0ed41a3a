"""Resources of v3 as JSON: `kind`, `metadata` with the link to itself and the name, `related` links, collections."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from starlette.responses import Response

from ottla.clients.admin import PartialFailure
from ottla.clients.admin.model import ClusterDescription
from ottla.clients.errors import GroupNotFound, UnknownTopicOrPartition
from ottla.rest.calls import Call, json_response
from ottla.web.errors import HttpError

K = TypeVar("K")
V = TypeVar("V")
NOT_FOUND: Final = 404
_PAYLOAD: Final = 42206


def not_found(message: str) -> HttpError:
    """Return the error of a resource that does not exist."""
    return HttpError(NOT_FOUND, NOT_FOUND, message)


def bad_request(message: str) -> HttpError:
    """Return the error of a request with a wrong value."""
    return HttpError(400, 400, message)


def payload_error(message: str) -> HttpError:
    """Return the error of a body without necessary fields."""
    return HttpError(422, _PAYLOAD, f"Payload error. {message}")


class Links:
    """The links of one answer, below the URL by which the client reached the proxy."""

    __slots__ = ("_base", "cluster_id")

    def __init__(self, call: Call, cluster_id: str) -> None:
        advertised = call.proxy.settings.advertised_listeners
        prefix = "/kafka/v3" if call.request.url.path.startswith("/kafka/") else "/v3"
        base = advertised[0].rstrip("/") if advertised else str(call.request.base_url).rstrip("/")
        self._base = f"{base}{prefix}/clusters"
        self.cluster_id = cluster_id

    def url(self, *segments: object, query: Mapping[str, str] | None = None) -> str:
        """Return the URL of a resource of the cluster, or of the cluster itself without segments."""
        path = "/".join(quote(str(segment), safe="-") for segment in (self.cluster_id, *segments))
        return f"{self._base}/{path}" + (f"?{urlencode(query)}" if query else "")

    @property
    def clusters(self) -> str:
        """The URL of the list of clusters."""
        return self._base

    def related(self, *segments: object) -> dict[str, str]:
        """Return a link to a related resource."""
        return {"related": self.url(*segments)}

    def name(self, *parts: object) -> str:
        """Return the resource name from pairs of type and name; a last part without a name is a type."""
        pairs = list(parts)
        named = [f"{pairs[at]}={pairs[at + 1]}" for at in range(0, len(pairs) - 1, 2)]
        rest = [str(pairs[-1])] if len(pairs) % 2 else []
        return "crn:///" + "/".join([f"kafka={self.cluster_id}", *named, *rest])

    def resource(self, kind: str, url: str, name: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return a resource."""
        metadata: dict[str, Any] = {"self": url} if name is None else {"self": url, "resource_name": name}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **fields}

    def collection(self, kind: str, url: str, data: Iterable[dict[str, Any]]) -> Response:
        """Return the answer with a list of resources; all are in one page."""
        return json_response({"kind": f"{kind}List", "metadata": {"self": url, "next": None}, "data": list(data)})


async def existing(found: Awaitable[Mapping[K, V]]) -> Mapping[K, V]:
    """Return descriptions, without things that were deleted between the list and the descriptions."""
    try:
        return await found
    except PartialFailure as failure:
        if all(isinstance(error, (UnknownTopicOrPartition, GroupNotFound)) for error in failure.errors.values()):
            return failure.results
        raise


async def cluster_of(call: Call) -> tuple[ClusterDescription, Links]:
    """Return the cluster in the path, and its links. Raises HttpError for another cluster's id."""
    cluster = await call.clients.admin.describe_cluster()
    wanted = call.path("cluster") if "cluster" in call.request.path_params else None
    if wanted is not None and wanted != cluster.cluster_id:
        raise not_found(f"Cluster {wanted} cannot be found.")
    return cluster, Links(call, cluster.cluster_id)


def integer(text: str, what: str) -> int:
    """Return a number in a path. Raises HttpError: such a resource does not exist."""
    if not (text.isascii() and text.removeprefix("-").isdecimal()) or len(text) > 10:
        raise not_found(f"{what} {text} cannot be found.")
    return int(text)


async def object_body(call: Call, *required: str) -> dict[str, Any]:
    """Return the body, a JSON object with these fields. Raises HttpError."""
    body = await call.json()
    if body is None:
        raise payload_error("Request body is empty. Data is required.")
    if not isinstance(body, dict):
        raise bad_request("The body must be a JSON object.")
    for name in required:
        if body.get(name) is None:
            raise bad_request(f"Missing required creator property '{name}'.")
    return body


def checked(body: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """Return a field of a body, which has this type. Raises HttpError."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise bad_request(f"{name} must be {_NAMES[kind]}.")
    return value


_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    list: "an array",
    dict: "an object",
}
