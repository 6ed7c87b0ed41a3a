"""The asyncio client of schema registries."""

from __future__ import annotations

import asyncio
import random
import time
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


class AsyncRegistryClient:
    """A client of one registry at one or more addresses (`settings.SETTINGS`), for one event loop.

    `await close()` it, or use `async with`. A call takes at most `default.api.timeout.ms`. Raises SchemaRegistryError
    for an error of the registry, and RegistryUnavailable when no address answered.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **given: object) -> None:
        self.settings = read_settings({**(settings or {}), **given})
        self._operations = Operations(self.settings, time.monotonic, random.random)
        self._client = transport.asynchronous(self.settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def clear_caches(self) -> None:
        self._operations.clear_caches()

    def cached_schema(self, schema_id: int, *, subject: str | None = None) -> Schema | None:
        """Return the schema if it is in the cache, without a request."""
        return self._operations.cached_schema(schema_id, subject)

    async def _run(self, steps: Steps[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = None
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                continue
            try:
                request = transport.request(self._client, step)
                outcome = transport.received(await self._client.send(request))
            except transport.ERRORS as error:
                outcome = transport.failed(error)

    async def get_schema(self, schema_id: int, *, subject: str | None = None, fmt: str | None = None) -> Schema:
        """Return the schema with this id, from the cache after the first call. `subject` names the context."""
        return await self._run(self._operations.get_schema(schema_id, subject, fmt))

    async def get_schema_by_guid(self, guid: str, *, fmt: str | None = None) -> Schema:
        return await self._run(self._operations.get_schema_by_guid(guid, fmt))

    async def get_schema_subjects(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False
    ) -> list[str]:
        """Return the subjects that have the schema with this id."""
        return await self._run(self._operations.get_schema_subjects(schema_id, subject, deleted))

    async def get_schema_versions(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False
    ) -> list[SubjectVersion]:
        """Return the subjects and versions that have the schema with this id."""
        return await self._run(self._operations.get_schema_versions(schema_id, subject, deleted))

    async def get_schemas(self, **parameters: Any) -> list[RegisteredSchema]:
        """Return schemas; `parameters` are Confluent's: subjectPrefix, deleted, latestOnly, offset, limit."""
        return await self._run(self._operations.get_schemas(parameters))

    async def get_types(self) -> list[str]:
        return await self._run(self._operations.get_types())

    async def register_schema(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register the schema and return its id; the id of the registered schema if it is known already."""
        return (await self._run(self._operations.register_schema(subject, schema, normalize))).id

    async def register_schema_full_response(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        return await self._run(self._operations.register_schema(subject, schema, normalize))

    async def lookup_schema(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Return id and version of a registered schema; SchemaRegistryError 40403 if it is not registered."""
        return await self._run(self._operations.lookup_schema(subject, schema, normalize, deleted))

    async def get_subjects(self, **parameters: Any) -> list[str]:
        """Return subjects; `parameters` are Confluent's: subjectPrefix, deleted, deletedOnly, offset, limit."""
        return await self._run(self._operations.get_subjects(parameters))

    async def get_versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        return await self._run(self._operations.get_versions(subject, deleted, deleted_only))

    async def get_version(
        self, subject: str, version: int | str, *, deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        return await self._run(self._operations.get_version(subject, version, deleted, fmt))

    async def get_latest_version(self, subject: str, *, fmt: str | None = None) -> RegisteredSchema:
        """Return the latest version, from the cache for `latest.cache.ttl.sec`."""
        return await self._run(self._operations.get_latest_version(subject, fmt))

    async def get_latest_with_metadata(
        self, subject: str, metadata: Mapping[str, str], *, deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        """Return the latest version whose metadata has these properties."""
        return await self._run(self._operations.get_latest_with_metadata(subject, metadata, deleted, fmt))

    async def get_referenced_by(self, subject: str, version: int | str) -> list[int]:
        """Return the ids of the schemas that refer to this version."""
        return await self._run(self._operations.get_referenced_by(subject, version))

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject and return its versions; `permanent` needs an earlier soft deletion."""
        return await self._run(self._operations.delete_subject(subject, permanent))

    async def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        return await self._run(self._operations.delete_version(subject, version, permanent))

    async def test_compatibility(
        self, subject: str, schema: Schema, version: int | str | None = "latest", *, normalize: bool = False
    ) -> CompatibilityResult:
        """Compare with a version, or (None) with those that the subject's compatibility level names."""
        return await self._run(self._operations.test_compatibility(subject, schema, version, normalize, True))

    async def get_config(self, subject: str | None = None, *, default_to_global: bool = False) -> dict[str, Any]:
        """Return the config of the registry, or of a subject or context (`:.context:`)."""
        return await self._run(self._operations.get_config(subject, default_to_global))

    async def set_config(self, config: Mapping[str, Any], subject: str | None = None) -> dict[str, Any]:
        return await self._run(self._operations.set_config(subject, config))

    async def delete_config(self, subject: str | None = None) -> Any:
        return await self._run(self._operations.delete_config(subject))

    async def get_mode(self, subject: str | None = None, *, default_to_global: bool = False) -> str:
        return await self._run(self._operations.get_mode(subject, default_to_global))

    async def set_mode(self, mode: str, subject: str | None = None, *, force: bool = False) -> str:
        return await self._run(self._operations.set_mode(subject, mode, force))

    async def delete_mode(self, subject: str | None = None, *, recursive: bool = False) -> Any:
        return await self._run(self._operations.delete_mode(subject, recursive))

    async def get_contexts(self) -> list[str]:
        return await self._run(self._operations.get_contexts())

    async def delete_context(self, context: str) -> None:
        await self._run(self._operations.delete_context(context))

    async def get_cluster_id(self) -> dict[str, Any]:
        return await self._run(self._operations.get_cluster_id())

    async def get_server_version(self) -> dict[str, Any] | None:
        """Return the version and commit id of the server; None for a server without this resource."""
        return await self._run(self._operations.get_server_version())
