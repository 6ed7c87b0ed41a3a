"""Asks the schema registry for a schema id, on the event loop and with a deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.config.registry_rows import PREFIX
from ottla.config.registry_rows import ROWS as REGISTRY_ROWS
from ottla.registry_client import AsyncRegistryClient, RegistryClientError, SchemaRegistryError

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.schemas.model import Schema

_NOT_FOUND = 404


class Registered(NamedTuple):
    """A schema id in the registry. `schema` and the schemas that it uses are None and empty unless asked for."""

    subjects: frozenset[str]
    schema: Schema | None = None
    referenced: tuple[tuple[str, Schema], ...] = ()
    """The name of each reference and its schema; a schema comes after those that it uses."""


class Source(Protocol):
    """The schema registry."""

    def fetch(self, schema_id: int, *, with_schema: bool) -> Completion[Registered | None]:
        """Ask for an id; None if it does not exist. Fails with REQUEST_TIMED_OUT, which producers retry."""
        ...

    def close(self) -> None:
        """Cancel the requests."""
        ...


class RegistrySource:
    """`Source` over HTTP."""

    def __init__(self, client: AsyncRegistryClient, timeout_ms: int) -> None:
        self._client = client
        self._timeout_s = timeout_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def from_config(cls, config: BrokerConfig, timeout_ms: int) -> RegistrySource:
        """Read the settings of the registry. Raises RegistrySettingError, and ImportError without its libraries."""
        given: dict[str, Any] = {
            row.name.removeprefix(PREFIX): config[row.name]
            for row in REGISTRY_ROWS
            if row.name.startswith(PREFIX) and config[row.name] is not None
        }
        given["schema.registry.url"] = ",".join(given["schema.registry.url"])
        # One retry: a producer retries, too, and its other requests wait meanwhile.
        limits = {"max.retries": 1, "default.api.timeout.ms": timeout_ms}
        return cls(AsyncRegistryClient({**given, **limits}), timeout_ms)

    def fetch(self, schema_id: int, *, with_schema: bool) -> Completion[Registered | None]:
        """See `Source`."""
        answer: Completion[Registered | None] = Completion()
        task = asyncio.get_running_loop().create_task(self._answer(answer, schema_id, with_schema=with_schema))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return answer

    def close(self) -> None:
        """Cancel the requests and close the connections."""
        for task in self._tasks:
            task.cancel()
        task = asyncio.get_running_loop().create_task(self._client.close())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, answer: Completion[Registered | None], schema_id: int, *, with_schema: bool) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._ask(schema_id, with_schema=with_schema)
        except (RegistryClientError, TimeoutError, LookupError, TypeError, ValueError) as error:
            # A response of another form than Confluent's raises one of the last three.
            reason = str(error) or f"it did not answer within {self._timeout_s:g} s"
            answer.fail(_unavailable(schema_id, reason))
        except asyncio.CancelledError:
            answer.fail(_unavailable(schema_id, "the broker stops"))
            raise
        else:
            answer.complete(found)

    async def _ask(self, schema_id: int, *, with_schema: bool) -> Registered | None:
        try:
            versions = await self._client.get_schema_versions(schema_id)
            subjects = frozenset(each.subject for each in versions)
            if not with_schema:
                return Registered(subjects)
            schema = await self._client.get_schema(schema_id)
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            raise
        referenced: dict[str, Schema] = {}
        await self._collect(schema, referenced, set())
        return Registered(subjects, schema, tuple(referenced.items()))

    async def _collect(self, schema: Schema, found: dict[str, Schema], visited: set[tuple[str, int]]) -> None:
        for reference in schema.references:
            place = reference.subject, reference.version
            if place in visited:
                continue
            visited.add(place)
            used = (await self._client.get_version(*place, deleted=True)).schema
            await self._collect(used, found, visited)
            found[reference.name] = used


def _unavailable(schema_id: int, reason: str) -> KafkaError:
    text = f"The schema registry cannot be asked for schema id {schema_id}: {reason}"
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
