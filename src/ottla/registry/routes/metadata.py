"""`/` and `/v1/metadata`: whether the registry runs, and which one it is."""

from __future__ import annotations

from typing import Final

from ottla import __version__
from ottla.registry.records import to_json
from ottla.registry.routes.requests import Request
from ottla.registry.routes.router import Route

COMPATIBLE_VERSION: Final = "8.0.0"
"""The release of Confluent's registry whose API is served. Clients compare it."""


def root(_request: Request) -> bytes:
    """Respond with an empty object: a check that the registry runs."""
    return b"{}"


def cluster_id(request: Request) -> bytes:
    """Return the ids of the Kafka cluster and of the registry."""
    clusters = {
        "kafka-cluster": request.registry.cluster_id,
        "schema-registry-cluster": request.registry.group_id,
    }
    return to_json({"id": "", "scope": {"path": [], "clusters": clusters}})


def version(_request: Request) -> bytes:
    """Return the version of the API, with the version of Ottla in place of a commit."""
    return to_json({"version": COMPATIBLE_VERSION, "commitId": f"ottla-{__version__}"})


def deployment(_request: Request) -> bytes:
    """Return the attributes of the deployment."""
    return b'{"attributes":["opensource"]}'


ROUTES: Final = (
    Route("GET", "/", root),
    Route("POST", "/", root),
    Route("GET", "/v1/metadata/id", cluster_id),
    Route("GET", "/v1/metadata/version", version),
    Route("GET", "/v1/metadata/deployment", deployment),
)
