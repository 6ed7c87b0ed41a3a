"""The common part of the serializers and deserializers of all formats: resolving schemas, caches, errors.

A format implements `_encoder` or `_decoder`. They are called once for each schema, may block (references are in the
registry), and return a function of one value.
"""

from __future__ import annotations

import copy
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

from ottla.clients.deferred import Deferred
from ottla.clients.errors import ConfigurationError, DeserializationFailed, SerializationFailed
from ottla.clients.reader_reports import TOPIC, described
from ottla.clients.serializers import wire
from ottla.clients.serializers.settings import DESERIALIZER_OPTIONS, SERIALIZER_OPTIONS, Settings
from ottla.registry_client.errors import RegistryClientError
from ottla.registry_client.model import RegisteredSchema
from ottla.schemas.model import Schema, SchemaType

if TYPE_CHECKING:
    from ottla.registry_client import RegistryClient

Convert = Callable[[Any, wire.SerializationContext], Any]
R = TypeVar("R")
DEFERRED_S: Final = 30.0
RETRIABLE_S: Final = 0.5
"""How long an asyncio client waits before it retries a request to a registry that could not be reached."""


class InvalidValue(ValueError):
    """A value does not fit its schema; `field` names the place, empty for the whole value."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class References(NamedTuple):
    """A schema, and the schemas that it refers to, directly or not, each before the schemas that refer to it."""

    schema: Schema
    referenced: Mapping[str, Schema]


def with_references(registry: RegistryClient, schema: Schema) -> References:
    """Return a schema with the schemas that it refers to. Blocks. Raises RegistryClientError, ValueError."""
    return References(schema, registry.get_referenced_schemas(schema))


class Resolving(ABC, Generic[R]):
    """Resolves a key once, in this thread or (`is_deferring`) by Deferred.

    A client that handles Deferred repeats the calls for all records of a poll. So what was resolved for it, or failed,
    stays valid for DEFERRED_S at least: otherwise a poll with several unknown ids would never end.
    """

    type: ClassVar[SchemaType]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._registry = settings.registry
        self._resolved: dict[Hashable, tuple[R, float]]
        self._failures: dict[Hashable, tuple[Exception, float]]
        self._other_part: Self | None
        self.bind("value", deferring=False)
        self._ttl = float("inf")
        if settings.values["use_latest_version"] or settings.values["use_latest_with_metadata"] is not None:
            self._ttl = self._registry.settings.values["latest_cache_ttl_sec"]

    def for_client(self, part: str, *, deferring: bool) -> Self:
        """Return this object for the keys or values (`part`) of a client. See `ottla.clients.deferred`."""
        made = copy.copy(self)
        made.bind(part, deferring=deferring)
        return made

    def bind(self, part: str, *, deferring: bool) -> None:
        """Make this object one for a part of records, with nothing resolved."""
        self.part, self.is_deferring = part, deferring
        self._strategy = self.settings.strategy(part)
        self._resolved, self._failures, self._other_part = {}, {}, None

    def _of_part(self, part: str) -> Self:
        """Return this object for the part of a context."""
        if part == self.part:
            return self
        if self._other_part is None:
            self._other_part = self.for_client(part, deferring=self.is_deferring)
        return self._other_part

    @abstractmethod
    def _record_name(self, schema: Schema) -> str | None:
        """Return the full name of the schema's record, for the subject; None if it has none."""

    @abstractmethod
    def _resolve(self, key: Any) -> R:
        """Ask the registry. Blocks."""

    def _get(self, key: Hashable) -> R:
        found = self._resolved.get(key)
        if found is not None and (found[1] == float("inf") or time.monotonic() < found[1]):
            return found[0]
        failure = self._failures.get(key)
        if failure is not None and time.monotonic() < failure[1]:
            raise failure[0].with_traceback(None)
        if not self.is_deferring:
            try:
                resolved = self._resolve(key)
            except InvalidValue as error:
                # A schema that is refused must not be read again for each record.
                self._failures[key] = error, time.monotonic() + DEFERRED_S
                raise
            self._resolved[key] = resolved, time.monotonic() + self._ttl
            return resolved
        raise Deferred(lambda: self._resolve_later(key))

    def _resolve_later(self, key: Hashable) -> None:
        try:
            resolved = self._resolve(key)
        except (RegistryClientError, ValueError, ConfigurationError) as error:
            wait_s = RETRIABLE_S if getattr(error, "retriable", False) else DEFERRED_S
            self._failures[key] = error, time.monotonic() + wait_s
        else:
            self._resolved[key] = resolved, time.monotonic() + max(self._ttl, DEFERRED_S)

    def _with_references(self, schema: Schema) -> References:
        return with_references(self._registry, schema)

    def _latest(self, subject: str) -> RegisteredSchema | None:
        metadata = self.settings.values["use_latest_with_metadata"]
        if metadata is not None:
            return self._registry.get_latest_with_metadata(subject, metadata)
        if self.settings.values["use_latest_version"]:
            return self._registry.get_latest_version(subject)
        return None


class _Writing(NamedTuple):
    """How to write the values of a topic."""

    prefix: bytes
    header: bytes | None
    encode: Callable[[Any], bytes]
    subject: str


class RegistrySerializer(Resolving[_Writing]):
    """The base of serializers: `schema` is a text, a Schema, or None with `use.latest.version` or `use.schema.id`.

    `to_dict` converts a value of the program first; it may take a SerializationContext as second parameter. The other
    keywords and `config` are settings: `settings.SERIALIZER_OPTIONS`, and the settings of the registry client unless
    `registry` is given. Raises ConfigurationError. A call raises SerializationFailed with `topic`, `subject`, `field`.
    """

    def __init__(
        self,
        schema: str | Schema | None = None,
        registry: RegistryClient | None = None,
        *,
        to_dict: Callable[..., Any] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        super().__init__(Settings(SERIALIZER_OPTIONS, registry, {**(config or {}), **settings}))
        values = self.settings.values
        self._schema = Schema(self.type, schema) if isinstance(schema, str) else schema
        if self._schema is None and self._ttl == float("inf") and values["use_schema_id"] is None:
            raise ConfigurationError(
                "The serializer has no schema: give it one, or set use.latest.version or use.schema.id"
            )
        self._to_dict = with_context(to_dict)
        self.writes_headers = self.settings.in_header()

    @abstractmethod
    def _encoder(self, references: References) -> Callable[[Any], bytes]:
        """Return a function that encodes a value. It raises InvalidValue."""

    def __call__(self, value: Any, ctx: Any = None, *, topic: str = "", headers: Any = ()) -> bytes | None:
        if value is None:
            return None
        if ctx is not None:
            return self._of_part(ctx.field)(value, topic=ctx.topic, headers=ctx.headers)
        subject = ""
        try:
            writing = self._get(topic)
            subject = writing.subject
            if self._to_dict is not None:
                value = self._to_dict(value, wire.SerializationContext(topic, self.part, headers))
            body = writing.encode(value)
        except (RegistryClientError, ValueError) as error:
            raise self._failed(error, topic, subject) from error
        if writing.header is not None:
            size = self._path_size(body)
            _add_header(headers, wire.header_name(self.part), writing.header + body[:size])
            return body[size:]
        return writing.prefix + body

    def own_encoder(self) -> tuple[str, Callable[[Any], bytes]]:
        """Return the text of the schema, which has no references, and a function that encodes bodies with it.

        The registry is not asked. The function raises InvalidValue.
        """
        assert self._schema is not None
        return self._schema.text, self._encoder(References(self._schema, {}))

    def _path_size(self, body: bytes) -> int:  # noqa: ARG002 - Protobuf overrides this method
        """Return how many bytes of a body are the path of its message, which is part of the schema id."""
        return 0

    def _failed(self, error: Exception, topic: str, subject: str) -> SerializationFailed:
        field = getattr(error, "field", "")
        where = f" (subject {subject})" if subject else ""
        failed = SerializationFailed(f"The {self.part} for topic {topic}{where} cannot be serialized: {error}")
        failed.topic, failed.subject, failed.field = topic, subject, field
        failed.retriable = getattr(error, "retriable", False)
        return failed

    def _resolve(self, key: Any) -> _Writing:
        registered = self._registered(key)
        encode = self._encoder(self._with_references(registered.schema))
        header = None
        if self.writes_headers:
            if registered.guid is None:
                raise ValueError("the registry returns no GUID for its schema, which HeaderSchemaIdSerializer needs")
            header = wire.header_value(registered.guid)
        prefix = b"" if self.writes_headers else wire.prefix(registered.id)
        return _Writing(prefix, header, encode, registered.subject)

    def _registered(self, topic: str) -> RegisteredSchema:
        values, normalize = self.settings.values, self.settings.values["normalize_schemas"]
        schema_id = values["use_schema_id"]
        if schema_id is not None:
            schema = self._registry.get_schema(schema_id, subject=self._subject(topic, self._schema))
            return RegisteredSchema(schema_id, self._subject(topic, schema), None, schema)
        subject = self._subject(topic, self._schema)
        latest = self._latest(subject)
        if latest is not None:
            if latest.schema.type is not self.type:
                raise ValueError(f"the latest schema of subject {subject} is of type {latest.schema.type}")
            return latest
        assert self._schema is not None
        if values["auto_register_schemas"]:
            made = self._registry.register_schema_full_response(subject, self._schema, normalize=normalize)
            if made.guid is None and self.writes_headers:
                made = self._registry.lookup_schema(subject, self._schema, normalize=normalize)
        else:
            made = self._registry.lookup_schema(subject, self._schema, normalize=normalize)
        return RegisteredSchema(made.id, subject, made.version, self._schema, made.guid)

    def _subject(self, topic: str, schema: Schema | None) -> str:
        return self._strategy(topic, self.part, None if schema is None else self._record_name(schema))


class _Reading(NamedTuple):
    """How to read the values of a schema in a topic."""

    decode: Callable[[bytes, int], Any]
    subject: str


class RegistryDeserializer(Resolving[_Reading]):
    """The base of deserializers: `schema` is the reader's schema (a text or a Schema), by default the writer's.

    With `use.latest.version` the reader's schema is the latest one of the subject. `from_dict` converts a value to an
    object of the program; it may take a SerializationContext as second parameter. Settings and errors as for the
    serializers: a call raises DeserializationFailed with `topic`, `subject`, `field`; it is retriable if the registry
    could not be reached.
    """

    def __init__(
        self,
        schema: str | Schema | None = None,
        registry: RegistryClient | None = None,
        *,
        from_dict: Callable[..., Any] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        super().__init__(Settings(DESERIALIZER_OPTIONS, registry, {**(config or {}), **settings}))
        self.reader_schema = Schema(self.type, schema) if isinstance(schema, str) else schema
        self._from_dict = with_context(from_dict)

    @abstractmethod
    def _decoder(self, writer: References, reader: References | None) -> Callable[[bytes, int], Any]:
        """Return a function of bytes and position of the body. It raises InvalidValue."""

    def __call__(self, data: bytes | None, ctx: Any = None, *, topic: str = "", headers: Any = ()) -> Any:
        if data is None:
            return None
        if ctx is not None:
            return self._of_part(ctx.field)(data, topic=ctx.topic, headers=ctx.headers)
        subject = ""
        try:
            schema_id, guid, position, path = wire.identify(data, self.part, headers)
            reading = self._get((schema_id if guid is None else guid, topic))
            subject = reading.subject
            value = reading.decode(path + data if path else data, position)
            if self._from_dict is not None:
                value = self._from_dict(value, wire.SerializationContext(topic, self.part, headers))
        except (RegistryClientError, ValueError) as error:
            raise self._failed(error, topic, subject) from error
        return value

    def own_decoder(self, text: str) -> Callable[[bytes, int], Any]:
        """Return the function that decodes bodies of a schema without references. The registry is not asked."""
        return self._decoder(References(Schema(self.type, text), {}), None)

    def _failed(self, error: Exception, topic: str, subject: str) -> DeserializationFailed:
        where = f" (subject {subject})" if subject else ""
        failed = DeserializationFailed(
            f"The {self.part} of topic {topic}{where} cannot be deserialized: {error}", topic=topic
        )
        failed.what = self.part
        failed.field = getattr(error, "field", "")
        failed.subject = subject
        failed.retriable = getattr(error, "retriable", False)
        return failed

    def describe_reader(self, part: str) -> dict[str, Any] | None:
        """Return the reader's schema for a report (`ottla.clients.reader_reports`); None without one."""
        if self.reader_schema is None:
            return None
        subject = self.settings.strategy(part)(TOPIC, part, self._record_name(self.reader_schema))
        return described(subject, self.reader_schema)

    def writer_schema(self, schema_id: int | str, topic: str) -> Schema:
        """Return the schema with this id or GUID. Blocks."""
        if isinstance(schema_id, str):
            return self._registry.get_schema_by_guid(schema_id)
        subject = self._strategy(topic, self.part, "?")  # a context is the beginning of every subject
        return self._registry.get_schema(schema_id, subject=subject if subject.startswith(":.") else None)

    def _resolve(self, key: Any) -> _Reading:
        schema_id, topic = key
        writer = self.writer_schema(schema_id, topic)
        if writer.type is not self.type:
            raise ValueError(f"its schema {schema_id} is of type {writer.type}, not {self.type}")
        reader = self.reader_schema
        subject = self._strategy(topic, self.part, self._record_name(writer))
        latest = self._latest(subject)
        if latest is not None:
            reader = latest.schema
        wanted = None if reader is None else self._with_references(reader)
        return _Reading(self._decoder(self._with_references(writer), wanted), subject)


def with_context(function: Callable[..., Any] | None) -> Convert | None:
    """Return a function of value and context; `function` may take the value alone."""
    if function is None:
        return None
    try:
        positional = [
            each
            for each in inspect.signature(function).parameters.values()
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
        ]
    except (TypeError, ValueError):  # a C function without a signature
        positional = []
    if len(positional) >= 2:
        return function
    return lambda value, _: function(value)


def _add_header(headers: Any, name: str, value: bytes) -> None:
    if isinstance(headers, list):
        headers.append((name, value))
    elif isinstance(headers, dict):
        headers[name] = value
    else:
        raise SerializationFailed("HeaderSchemaIdSerializer needs headers in a list or a dictionary")
