"""The asyncio client of schema registries."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ottla.registry_client import transport
from ottla.registry_client.operations import Operations, signature_of
from ottla.registry_client.requests import Outcome, Steps, Wait
from ottla.registry_client.settings import read_settings
from ottla.schemas.model import Schema

P = ParamSpec("P")
T = TypeVar("T")


def asynchronous(
    operation: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[AsyncRegistryClient, P], Coroutine[Any, Any, T]]:
    """Return a method of `AsyncRegistryClient` that executes this operation."""

    @functools.wraps(operation)
    async def call(self: AsyncRegistryClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(operation(self._operations, *args, **kwargs))

    call.__module__, call.__qualname__ = __name__, f"AsyncRegistryClient.{operation.__name__}"
    call.__signature__ = signature_of(operation)  # type: ignore[attr-defined]
    return call


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
        return self._operations.cached_schema(schema_id, subject=subject)

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

    get_schema = asynchronous(Operations.get_schema)
    get_schema_by_guid = asynchronous(Operations.get_schema_by_guid)
    get_schema_subjects = asynchronous(Operations.get_schema_subjects)
    get_schema_versions = asynchronous(Operations.get_schema_versions)
    get_schemas = asynchronous(Operations.get_schemas)
    get_types = asynchronous(Operations.get_types)
    register_schema = asynchronous(Operations.register_schema)
    register_schema_full_response = asynchronous(Operations.register_schema_full_response)
    lookup_schema = asynchronous(Operations.lookup_schema)
    get_subjects = asynchronous(Operations.get_subjects)
    get_versions = asynchronous(Operations.get_versions)
    get_version = asynchronous(Operations.get_version)
    get_latest_version = asynchronous(Operations.get_latest_version)
    get_latest_with_metadata = asynchronous(Operations.get_latest_with_metadata)
    get_referenced_by = asynchronous(Operations.get_referenced_by)
    get_referenced_schemas = asynchronous(Operations.get_referenced_schemas)
    delete_subject = asynchronous(Operations.delete_subject)
    delete_version = asynchronous(Operations.delete_version)
    test_compatibility = asynchronous(Operations.test_compatibility)
    get_config = asynchronous(Operations.get_config)
    set_config = asynchronous(Operations.set_config)
    delete_config = asynchronous(Operations.delete_config)
    get_mode = asynchronous(Operations.get_mode)
    set_mode = asynchronous(Operations.set_mode)
    delete_mode = asynchronous(Operations.delete_mode)
    get_contexts = asynchronous(Operations.get_contexts)
    delete_context = asynchronous(Operations.delete_context)
    get_cluster_id = asynchronous(Operations.get_cluster_id)
    get_server_version = asynchronous(Operations.get_server_version)
