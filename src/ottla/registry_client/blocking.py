"""The blocking client of schema registries. Safe for threads."""

from __future__ import annotations

import functools
import random
import time
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from ottla.registry_client import transport
from ottla.registry_client.operations import Operations, signature_of
from ottla.registry_client.requests import Outcome, Steps, Wait
from ottla.registry_client.settings import read_settings
from ottla.schemas.model import Schema

P = ParamSpec("P")
T = TypeVar("T")


def blocking(operation: Callable[Concatenate[Operations, P], Steps[T]]) -> Callable[Concatenate[RegistryClient, P], T]:
    """Return a method of `RegistryClient` that executes this operation."""

    @functools.wraps(operation)
    def call(self: RegistryClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(operation(self._operations, *args, **kwargs))

    call.__module__, call.__qualname__ = __name__, f"RegistryClient.{operation.__name__}"
    call.__signature__ = signature_of(operation)  # type: ignore[attr-defined]
    return call


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
        return self._operations.cached_schema(schema_id, subject=subject)

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

    get_schema = blocking(Operations.get_schema)
    get_schema_by_guid = blocking(Operations.get_schema_by_guid)
    get_schema_subjects = blocking(Operations.get_schema_subjects)
    get_schema_versions = blocking(Operations.get_schema_versions)
    get_schemas = blocking(Operations.get_schemas)
    get_types = blocking(Operations.get_types)
    register_schema = blocking(Operations.register_schema)
    register_schema_full_response = blocking(Operations.register_schema_full_response)
    lookup_schema = blocking(Operations.lookup_schema)
    get_subjects = blocking(Operations.get_subjects)
    get_versions = blocking(Operations.get_versions)
    get_version = blocking(Operations.get_version)
    get_latest_version = blocking(Operations.get_latest_version)
    get_latest_with_metadata = blocking(Operations.get_latest_with_metadata)
    get_referenced_by = blocking(Operations.get_referenced_by)
    get_referenced_schemas = blocking(Operations.get_referenced_schemas)
    delete_subject = blocking(Operations.delete_subject)
    delete_version = blocking(Operations.delete_version)
    test_compatibility = blocking(Operations.test_compatibility)
    get_config = blocking(Operations.get_config)
    set_config = blocking(Operations.set_config)
    delete_config = blocking(Operations.delete_config)
    get_mode = blocking(Operations.get_mode)
    set_mode = blocking(Operations.set_mode)
    delete_mode = blocking(Operations.delete_mode)
    get_contexts = blocking(Operations.get_contexts)
    delete_context = blocking(Operations.delete_context)
    get_cluster_id = blocking(Operations.get_cluster_id)
    get_server_version = blocking(Operations.get_server_version)
