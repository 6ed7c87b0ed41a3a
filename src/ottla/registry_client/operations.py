"""The operations of Confluent's API as steps (`requests`), with the caches. The core of both clients, without I/O.

Cached for good: schemas by id (ids are of a context, which is a part of the subject's name), by GUID and by version;
and registered or found schemas by subject and schema. Cached for `latest.cache.ttl.sec`: the latest version of a
subject, also with metadata. A deletion clears the caches of this client.

Errors: SchemaRegistryError with the registry's error code, and RegistryUnavailable.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from ottla.registry_client.cache import Cache
from ottla.registry_client.errors import ReferencesTooDeep, SchemaRegistryError
from ottla.registry_client.model import (
    CompatibilityResult,
    RegisteredSchema,
    SubjectVersion,
    registered_from_json,
    schema_from_json,
    schema_to_json,
)
from ottla.registry_client.requests import Request, Requests, Steps, path
from ottla.registry_client.settings import RegistrySettings
from ottla.schemas.model import Schema

_DEEPEST_REFERENCES: Final = 100


def context_of(subject: str | None) -> str:
    """Return the context in a qualified subject (`:.context:name`), else the default one."""
    if subject is not None and subject.startswith(":."):
        return subject[1:].partition(":")[0]
    return "."


def signature_of(operation: Callable[..., Steps[Any]]) -> inspect.Signature:
    """Return the signature of the method that executes an operation, for `help`: it returns the result of the steps."""
    signature = inspect.signature(operation)
    result = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    return signature.replace(return_annotation=result)


class Operations:
    """Steps of every operation. `clock` is monotonic, in seconds; `random` returns numbers from 0 to 1.

    The methods of both clients are made from these, with their signatures and docstrings.
    """

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float], random: Callable[[], float]) -> None:
        capacity = settings.values["cache_capacity"]
        self._requests = Requests(settings, clock, random)
        self._clock = clock
        self._latest_ttl = settings.values["latest_cache_ttl_sec"]
        self._schemas: Cache[Schema] = Cache(capacity)
        self._registered: Cache[RegisteredSchema] = Cache(capacity)
        self._latest: Cache[RegisteredSchema] = Cache(capacity)

    def clear_caches(self) -> None:
        for cache in (self._schemas, self._registered, self._latest):
            cache.clear()

    def _get(self, where: str, **parameters: Any) -> Steps[Any]:
        return self._requests.steps(Request("GET", where, parameters))

    def _change(self, method: str, where: str, body: Mapping[str, Any] | None = None, **parameters: Any) -> Steps[Any]:
        return self._requests.steps(Request(method, where, parameters, body))

    # Schemas by id

    def get_schema(self, schema_id: int, *, subject: str | None = None, fmt: str | None = None) -> Steps[Schema]:
        """Return the schema with this id, from the cache after the first call. `subject` names the context."""
        key = ("id", context_of(subject), schema_id, fmt)
        known = self._schemas.get(key)
        if known is not None:
            return known
        body = yield from self._get(path("schemas", "ids", schema_id), subject=subject, format=fmt)
        return self._keep(key, body)

    def get_schema_by_guid(self, guid: str, *, fmt: str | None = None) -> Steps[Schema]:
        key = ("guid", guid, fmt)
        known = self._schemas.get(key)
        if known is not None:
            return known
        body = yield from self._get(path("schemas", "guids", guid), format=fmt)
        return self._keep(key, body)

    def cached_schema(self, schema_id: int, *, subject: str | None = None) -> Schema | None:
        """Return the schema if it is in the cache, without a request."""
        return self._schemas.get(("id", context_of(subject), schema_id, None))

    def _keep(self, key: Hashable, body: Mapping[str, Any]) -> Schema:
        schema = schema_from_json(body)
        self._schemas.put(key, schema)
        return schema

    def get_schema_subjects(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False
    ) -> Steps[list[str]]:
        """Return the subjects that have the schema with this id."""
        return self._get(path("schemas", "ids", schema_id, "subjects"), subject=subject, deleted=deleted)

    def get_schema_versions(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False
    ) -> Steps[list[SubjectVersion]]:
        """Return the subjects and versions that have the schema with this id."""
        body = yield from self._get(path("schemas", "ids", schema_id, "versions"), subject=subject, deleted=deleted)
        return [SubjectVersion(each["subject"], each["version"]) for each in body]

    def get_schemas(self, /, **parameters: Any) -> Steps[list[RegisteredSchema]]:
        """Return schemas; `parameters` are Confluent's: subjectPrefix, deleted, latestOnly, offset, limit."""
        body = yield from self._get("/schemas", **parameters)
        return [registered_from_json(each, subject=each["subject"]) for each in body]

    def get_types(self) -> Steps[list[str]]:
        return self._get("/schemas/types")

    # Registration and lookup

    def register_schema(self, subject: str, schema: Schema, *, normalize: bool = False) -> Steps[int]:
        """Register the schema and return its id; the id of the registered schema if it is known already."""
        registered = yield from self.register_schema_full_response(subject, schema, normalize=normalize)
        return registered.id

    def register_schema_full_response(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> Steps[RegisteredSchema]:
        where = path("subjects", subject, "versions")
        return self._registered_under("register", subject, schema, Request("POST", where, {"normalize": normalize}))

    def lookup_schema(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> Steps[RegisteredSchema]:
        """Return id and version of a registered schema; SchemaRegistryError 40403 if it is not registered."""
        request = Request("POST", path("subjects", subject), {"normalize": normalize, "deleted": deleted})
        return self._registered_under("lookup", subject, schema, request)

    def _registered_under(self, what: str, subject: str, schema: Schema, request: Request) -> Steps[RegisteredSchema]:
        sent = schema_to_json(schema)
        key = (what, subject, json.dumps(sent, sort_keys=True), *request.parameters.values())
        known = self._registered.get(key)
        if known is not None:
            return known
        body = yield from self._requests.steps(request._replace(body=sent))
        registered = registered_from_json(body, subject=subject, schema=schema)
        self._registered.put(key, registered)
        return registered

    # Subjects and versions

    def get_subjects(self, /, **parameters: Any) -> Steps[list[str]]:
        """Return subjects; `parameters` are Confluent's: subjectPrefix, deleted, deletedOnly, offset, limit."""
        return self._get("/subjects", **parameters)

    def get_versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> Steps[list[int]]:
        return self._get(path("subjects", subject, "versions"), deleted=deleted, deletedOnly=deleted_only)

    def get_version(
        self, subject: str, version: int | str, *, deleted: bool = False, fmt: str | None = None
    ) -> Steps[RegisteredSchema]:
        key = ("version", subject, version, deleted, fmt)
        known = self._registered.get(key)
        if known is not None:
            return known
        where = path("subjects", subject, "versions", version)
        body = yield from self._get(where, deleted=deleted, format=fmt)
        registered = registered_from_json(body, subject=subject)
        if isinstance(version, int) and version > 0:  # latest and -1 change
            self._registered.put(key, registered)
        return registered

    def get_latest_version(self, subject: str, *, fmt: str | None = None) -> Steps[RegisteredSchema]:
        """Return the latest version, from the cache for `latest.cache.ttl.sec`."""
        key = ("latest", subject, fmt)
        return self._latest_of(key, subject, self._get(path("subjects", subject, "versions", "latest"), format=fmt))

    def get_latest_with_metadata(
        self, subject: str, metadata: Mapping[str, str], *, deleted: bool = False, fmt: str | None = None
    ) -> Steps[RegisteredSchema]:
        """Return the latest version whose metadata has these properties."""
        key = ("metadata", subject, tuple(sorted(metadata.items())), deleted, fmt)
        where = path("subjects", subject, "metadata")
        steps = self._get(where, key=list(metadata), value=list(metadata.values()), deleted=deleted, format=fmt)
        return self._latest_of(key, subject, steps)

    def _latest_of(self, key: Hashable, subject: str, steps: Steps[Any]) -> Steps[RegisteredSchema]:
        now = self._clock()
        known = self._latest.get(key, now)
        if known is not None:
            return known
        registered = registered_from_json((yield from steps), subject=subject)
        self._latest.put(key, registered, now + self._latest_ttl)
        return registered

    def get_referenced_by(self, subject: str, version: int | str) -> Steps[list[int]]:
        """Return the ids of the schemas that refer to this version."""
        return self._get(path("subjects", subject, "versions", version, "referencedby"))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> Steps[list[int]]:
        """Delete a subject and return its versions; `permanent` needs an earlier soft deletion."""
        versions: list[int] = yield from self._change("DELETE", path("subjects", subject), permanent=permanent)
        self.clear_caches()
        return versions

    def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> Steps[int]:
        where = path("subjects", subject, "versions", version)
        deleted: int = yield from self._change("DELETE", where, permanent=permanent)
        self.clear_caches()
        return deleted

    def get_referenced_schemas(self, schema: Schema) -> Steps[dict[str, Schema]]:
        """Return the schemas that a schema refers to, directly or not, each before those that refer to it, by name.

        Raises ReferencesTooDeep if they are nested more than 100 deep.
        """
        found: dict[str, Schema] = {}
        yield from self._collect(schema, found, 0)
        return found

    def _collect(self, schema: Schema, found: dict[str, Schema], depth: int) -> Steps[None]:
        if depth > _DEEPEST_REFERENCES:
            raise ReferencesTooDeep(f"The references of the schema are nested more than {_DEEPEST_REFERENCES} deep")
        for reference in schema.references:
            if reference.name not in found:
                used = yield from self.get_version(reference.subject, reference.version, deleted=True)
                yield from self._collect(used.schema, found, depth + 1)
                found[reference.name] = used.schema

    # Compatibility, config and mode

    def test_compatibility(
        self, subject: str, schema: Schema, version: int | str | None = "latest", *, normalize: bool = False
    ) -> Steps[CompatibilityResult]:
        """Compare with a version, or (None) with those that the subject's compatibility level names."""
        where = path("compatibility", "subjects", subject, "versions", *([] if version is None else [version]))
        body = yield from self._change("POST", where, schema_to_json(schema), normalize=normalize, verbose=True)
        return CompatibilityResult(bool(body["is_compatible"]), tuple(body.get("messages") or ()))

    def get_config(self, subject: str | None = None, *, default_to_global: bool = False) -> Steps[dict[str, Any]]:
        """Return the config of the registry, or of a subject or context (`:.context:`)."""
        return self._get(_setting("config", subject), defaultToGlobal=default_to_global)

    def set_config(self, config: Mapping[str, Any], subject: str | None = None) -> Steps[dict[str, Any]]:
        return self._change("PUT", _setting("config", subject), config)

    def delete_config(self, subject: str | None = None) -> Steps[Any]:
        return self._change("DELETE", _setting("config", subject))

    def get_mode(self, subject: str | None = None, *, default_to_global: bool = False) -> Steps[str]:
        body = yield from self._get(_setting("mode", subject), defaultToGlobal=default_to_global)
        return str(body["mode"])

    def set_mode(self, mode: str, subject: str | None = None, *, force: bool = False) -> Steps[str]:
        body = yield from self._change("PUT", _setting("mode", subject), {"mode": mode}, force=force)
        return str(body["mode"])

    def delete_mode(self, subject: str | None = None, *, recursive: bool = False) -> Steps[Any]:
        return self._change("DELETE", _setting("mode", subject), recursive=recursive)

    # The registry

    def get_contexts(self) -> Steps[list[str]]:
        return self._get("/contexts")

    def delete_context(self, context: str) -> Steps[None]:
        yield from self._change("DELETE", path("contexts", context))
        self.clear_caches()

    def get_cluster_id(self) -> Steps[dict[str, Any]]:
        return self._get("/v1/metadata/id")

    def get_server_version(self) -> Steps[dict[str, Any] | None]:
        """Return the version and commit id of the server; None for a server without this resource."""
        try:
            body: dict[str, Any] = yield from self._get("/v1/metadata/version")
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                return None
            raise
        return body


def _setting(what: str, subject: str | None) -> str:
    return path(what) if subject is None else path(what, subject)
