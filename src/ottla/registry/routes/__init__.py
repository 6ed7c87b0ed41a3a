"""The HTTP API: Confluent's resources over a `Registry` (a state, and `change`).

Read `application` (an ASGI application: finds the route, negotiates content types, sends the response), `paths`,
`requests`, `responses`, then the resources: `schemas`, `subjects`, `versions`, `compatibility`, `config`, `modes`,
`contexts`, `metadata`. A handler takes a `Request` and returns the JSON of its response as bytes. It raises
RegistryError for error responses; other exceptions of `change` pass through the application, so that a layer around it
can forward the request to the primary.
"""

from ottla.registry.routes.application import application
from ottla.registry.routes.paths import Path, parse_path
from ottla.registry.routes.requests import Registry

__all__ = ["Path", "Registry", "application", "parse_path"]
