"""The blocking client of schema registries. Safe for threads."""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.registry_client import transport
from ottla.registry_client.model import CompatibilityResult, RegisteredSchema, SubjectVersion
from ottla.registry_client.operations import Operations
from ottla.registry_client.requests import Outcome, Steps, Wait
from ottla.registry_client.settings import read_settings
from ottla.schemas.model import Schema

T = TypeVar("T")


class RegistryClient:
    """A client of one registry at one or more addresses (`settings.SETTINGS`); `close` it, or use `with`.

    A client that is dropped closes its connections.

    Each call blocks until the response, at most `default.api.timeout.ms`. Raises SchemaRegistryError for an error of
    the registry, and RegistryUnavailable when no address answered.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **given: object) -> None:
        self.settings = read_settings({**(settings or {}), **given})
        self._operations = Operations(self.settings, time.monotonic, random.random)
        self._client = transport.blocking(self.settings)
        self._dropped = weakref.finalize(self, self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._dropped()

    def clear_caches(self) -> None:
        self._operations.clear_caches()

    def cached_schema(self, schema_id: int, *, subject: str | None = None) -> Schema | None:
        """Return the schema if it is in the cache, without a request."""
        return self._operations.cached_schema(schema_id, subject)

    def _run(self, steps: Steps[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = None
            if isinstance(step, Wait):
                time.sleep(step.seconds)
                continue
            try:
                request = transport.request(self._client, step)
                outcome = transport.received(self._client.send(request))
            except transport.ERRORS as error:
                outcome = transport.failed(error)

    def get_schema(self, schema_id: int, *, subject: str | None = None, fmt: str | None = None) -> Schema:
        """Return the schema with this id, from the cache after the first call. `subject` names the context."""
        return self._run(self._operations.get_schema(schema_id, subject, fmt))

    def get_schema_by_guid(self, guid: str, *, fmt: str | None = None) -> Schema:
        return self._run(self._operations.get_schema_by_guid(guid, fmt))

    def get_schema_subjects(self, schema_id: int, *, subject: str | None = None, deleted: bool = False) -> list[str]:
        """Return the subjects that have the schema with this id."""
        return self._run(self._operations.get_schema_subjects(schema_id, subject, deleted))

    def get_schema_versions(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False
    ) -> list[SubjectVersion]:
        """Return the subjects and versions that have the schema with this id."""
        return self._run(self._operations.get_schema_versions(schema_id, subject, deleted))

    def get_schemas(self, **parameters: Any) -> list[RegisteredSchema]:
        """Return schemas; `parameters` are Confluent's: subjectPrefix, deleted, latestOnly, offset, limit."""
        return self._run(self._operations.get_schemas(parameters))

    def get_types(self) -> list[str]:
        return self._run(self._operations.get_types())

    def register_schema(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register the schema and return its id; the id of the registered schema if it is known already."""
        return (self._run(self._operations.register_schema(subject, schema, normalize))).id

    def register_schema_full_response(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        return self._run(self._operations.register_schema(subject, schema, normalize))

    def lookup_schema(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Return id and version of a registered schema; SchemaRegistryError 40403 if it is not registered."""
        return self._run(self._operations.lookup_schema(subject, schema, normalize, deleted))

    def get_subjects(self, **parameters: Any) -> list[str]:
        """Return subjects; `parameters` are Confluent's: subjectPrefix, deleted, deletedOnly, offset, limit."""
        return self._run(self._operations.get_subjects(parameters))

    def get_versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        return self._run(self._operations.get_versions(subject, deleted, deleted_only))

    def get_version(
        self, subject: str, version: int | str, *, deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        return self._run(self._operations.get_version(subject, version, deleted, fmt))

    def get_latest_version(self, subject: str, *, fmt: str | None = None) -> RegisteredSchema:
        """Return the latest version, from the cache for `latest.cache.ttl.sec`."""
        return self._run(self._operations.get_latest_version(subject, fmt))

    def get_latest_with_metadata(
        self, subject: str, metadata: Mapping[str, str], *, deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        """Return the latest version whose metadata has these properties."""
        return self._run(self._operations.get_latest_with_metadata(subject, metadata, deleted, fmt))

    def get_referenced_by(self, subject: str, version: int | str) -> list[int]:
        """Return the ids of the schemas that refer to this version."""
        return self._run(self._operations.get_referenced_by(subject, version))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject and return its versions; `permanent` needs an earlier soft deletion."""
        return self._run(self._operations.delete_subject(subject, permanent))

    def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        return self._run(self._operations.delete_version(subject, version, permanent))

    def test_compatibility(
        self, subject: str, schema: Schema, version: int | str | None = "latest", *, normalize: bool = False
    ) -> CompatibilityResult:
        """Compare with a version, or (None) with those that the subject's compatibility level names."""
        return self._run(self._operations.test_compatibility(subject, schema, version, normalize, True))

    def get_config(self, subject: str | None = None, *, default_to_global: bool = False) -> dict[str, Any]:
        """Return the config of the registry, or of a subject or context (`:.context:`)."""
        return self._run(self._operations.get_config(subject, default_to_global))

    def set_config(self, config: Mapping[str, Any], subject: str | None = None) -> dict[str, Any]:
        return self._run(self._operations.set_config(subject, config))

    def delete_config(self, subject: str | None = None) -> Any:
        return self._run(self._operations.delete_config(subject))

    def get_mode(self, subject: str | None = None, *, default_to_global: bool = False) -> str:
        return self._run(self._operations.get_mode(subject, default_to_global))

    def set_mode(self, mode: str, subject: str | None = None, *, force: bool = False) -> str:
        return self._run(self._operations.set_mode(subject, mode, force))

    def delete_mode(self, subject: str | None = None, *, recursive: bool = False) -> Any:
        return self._run(self._operations.delete_mode(subject, recursive))

    def get_contexts(self) -> list[str]:
        return self._run(self._operations.get_contexts())

    def delete_context(self, context: str) -> None:
        self._run(self._operations.delete_context(context))

    def get_cluster_id(self) -> dict[str, Any]:
        return self._run(self._operations.get_cluster_id())

    def get_server_version(self) -> dict[str, Any] | None:
        """Return the version and commit id of the server; None for a server without this resource."""
        return self._run(self._operations.get_server_version())
