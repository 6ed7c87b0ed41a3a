"""Schemas of the registry by id or by text, and their codecs, cached.

The proxy uses its own settings for the registry (`schema.registry.*`). With `schema.registry.forward.credentials=true`
each user has a client of the registry with the credentials of the request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.registry_client import (
    AsyncRegistryClient,
    RegistryClientError,
    RegistrySettingError,
    Schema,
    SchemaRegistryError,
    SchemaType,
)
from ottla.registry_client.errors import ReferencesTooDeep
from ottla.rest.errors import KAFKA_AUTHORIZATION
from ottla.rest.pool import UserClients
from ottla.rest.schemas.codecs import BrokenCodec, Codec, make_codec
from ottla.rest.settings import RestSettings
from ottla.web.credentials import Basic, Bearer
from ottla.web.errors import HttpError

PART: Final = "schemas"
INVALID_SCHEMA: Final = 42205
SERIALIZATION: Final = 42207
REGISTRY_TIMED_OUT: Final = 40801
PREFIX_SIZE: Final = 5
_MOST_CODECS: Final = 10_000


class KnownSchema(NamedTuple):
    """A schema of the registry with its codec."""

    id: int
    codec: Codec

    def encode(self, value: Any) -> bytes:
        """Return the value in Confluent's wire format. Raises ValueError."""
        return b"\0" + self.id.to_bytes(4, "big") + self.codec.encode(value)


class MissingSchema(Exception):
    """The schema of a record is not cached: `await load(id, kind)`, then repeat."""

    def __init__(self, schema_id: int, kind: SchemaType) -> None:
        super().__init__(schema_id, kind)
        self.schema_id = schema_id
        self.kind = kind


class UserSchemas:
    """The schemas that one client of the registry has seen."""

    def __init__(self, client: AsyncRegistryClient) -> None:
        self.client = client
        self._by_id: OrderedDict[tuple[int, SchemaType], Codec] = OrderedDict()

    async def register(self, subject: str, schema: Schema) -> KnownSchema:
        """Return the schema with this text, registered under the subject. Raises HttpError."""
        try:
            schema_id = await self.client.register_schema(subject, schema)
        except SchemaRegistryError as error:
            if error.http_status_code == 422:
                raise HttpError(422, INVALID_SCHEMA, f"Invalid schema: {error.error_message}") from error
            raise of_registry(error) from error
        except RegistryClientError as error:
            raise of_registry(error) from error
        return await self.by_id(schema_id, schema.type)

    async def by_id(self, schema_id: int, kind: SchemaType) -> KnownSchema:
        """Return the schema with this id. Raises HttpError."""
        codec = await self._codec(schema_id, kind)
        if isinstance(codec, BrokenCodec):
            raise HttpError(422, INVALID_SCHEMA, f"Invalid schema: {codec.problem}")
        return KnownSchema(schema_id, codec)

    async def load(self, schema_id: int, kind: SchemaType) -> None:
        """Cache the schema of a record. Raises HttpError if the registry does not answer."""
        try:
            await self._codec(schema_id, kind)
        except HttpError as error:
            if error.error_code in {REGISTRY_TIMED_OUT, KAFKA_AUTHORIZATION}:
                raise
            # The registry does not have the schema: each record with it is unreadable.
            self._remember((schema_id, kind), BrokenCodec(error.message))

    def decode(self, kind: SchemaType, data: bytes) -> Any:
        """Return a key or value for orjson. Raises ValueError, MissingSchema."""
        if len(data) < PREFIX_SIZE or data[0] != 0:
            raise ValueError("it does not begin with a zero byte and the id of a schema")
        schema_id = int.from_bytes(data[1:PREFIX_SIZE], "big")
        codec = self._by_id.get((schema_id, kind))
        if codec is None:
            raise MissingSchema(schema_id, kind)
        return codec.decode(data[PREFIX_SIZE:])

    async def _codec(self, schema_id: int, kind: SchemaType) -> Codec:
        found = self._by_id.get((schema_id, kind))
        if found is not None:
            return found
        try:
            schema = await self.client.get_schema(schema_id)
            referenced = await self.client.get_referenced_schemas(schema)
        except RegistryClientError as error:
            raise of_registry(error) from error
        except ReferencesTooDeep as error:
            text = "Invalid schema: its references are nested too deeply"
            raise HttpError(422, INVALID_SCHEMA, text) from error
        codec: Codec = BrokenCodec(f"the schema {schema_id} is of type {schema.type}, not {kind}")
        if schema.type is kind:
            codec = make_codec(schema, referenced)
        self._remember((schema_id, kind), codec)
        return codec

    def _remember(self, key: tuple[int, SchemaType], codec: Codec) -> None:
        self._by_id[key] = codec
        if len(self._by_id) > _MOST_CODECS:
            self._by_id.popitem(last=False)


class Schemas:
    """The registry's clients of all users."""

    def __init__(self, settings: RestSettings) -> None:
        self._settings = settings
        self._users: OrderedDict[bytes, UserSchemas] = OrderedDict()
        self._retired: list[UserSchemas] = []

    def of(self, clients: UserClients) -> UserSchemas:
        """Return the schemas for the requests of a user. Raises HttpError without a registry."""
        if self._settings.schema_registry_url is None:
            raise HttpError(415, 415, "This format needs a schema registry, and schema.registry.url is not set.")
        forwards = self._settings.schema_registry_forward_credentials
        key = clients.key if forwards else b""
        found = self._users.get(key)
        if found is None:
            own = _authorization(clients) if forwards else {}
            try:
                client = AsyncRegistryClient({**self._settings.registry, **own})
            except RegistrySettingError as error:
                raise HttpError(500, 500, f"The settings of the schema registry are wrong: {error}") from error
            found = self._users[key] = UserSchemas(client)
        self._users.move_to_end(key)
        while len(self._users) > self._settings.users_max:
            self._retired.append(self._users.popitem(last=False)[1])
        return found

    def sweep(self) -> None:
        """Clients are closed at the end; the number of their users is limited."""

    async def close(self) -> None:
        """Close the clients."""
        for each in [*self._users.values(), *self._retired]:
            await each.client.close()


def of_registry(error: RegistryClientError) -> HttpError:
    """Return the answer to a request when the registry refuses, or does not answer."""
    if error.retriable:
        return HttpError(408, REGISTRY_TIMED_OUT, f"The schema registry does not answer: {error}")
    if isinstance(error, SchemaRegistryError) and error.http_status_code in {401, 403}:
        return HttpError(403, KAFKA_AUTHORIZATION, f"The schema registry refuses: {error}")
    return HttpError(422, SERIALIZATION, f"Error serializing message. {error}")


def _authorization(clients: UserClients) -> Mapping[str, object]:
    credentials = clients.credentials
    if isinstance(credentials, Basic):
        return {
            "basic.auth.credentials.source": "USER_INFO",
            "basic.auth.user.info": f"{credentials.user}:{credentials.password}",
        }
    if isinstance(credentials, Bearer):
        return {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": credentials.token}
    return {}
