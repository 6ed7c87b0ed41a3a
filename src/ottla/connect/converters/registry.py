"""The common part of the converters with a schema registry: settings, one serializer for each schema, and errors.

Settings are the registry's, the serializers' (`schema.registry.url`, `auto.register.schemas`, ...) and the format's.
Unknown ones are ignored, as by Confluent's, unless they would change values (`refused`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from ottla.clients.errors import ClientError, ConfigurationError
from ottla.clients.serializers.base import InvalidValue
from ottla.clients.serializers.settings import DESERIALIZER_OPTIONS, SERIALIZER_OPTIONS
from ottla.connect.config.definition import Importance, Setting, SettingError, SettingType
from ottla.connect.converters.api import NULL, Converter, RecordHeaders, SchemaAndValue
from ottla.connect.errors import DataError, RetriableError
from ottla.registry_client import RegistryClient
from ottla.registry_client.errors import RegistryUnavailable, SchemaRegistryError
from ottla.registry_client.settings import has_setting

if TYPE_CHECKING:
    from ottla.clients.serializers.base import RegistryDeserializer, RegistrySerializer
    from ottla.connect.api import Config
    from ottla.connect.data import Schema

T = TypeVar("T")
MOST_SCHEMAS: Final = 1_000
"""How many schemas a converter caches."""
_DENIED: Final = frozenset({401, 403, 407})
_STRATEGIES: Final = "io.confluent.kafka.serializers.subject."
REGISTRY_SETTINGS: Final = (
    Setting("schema.registry.url", SettingType.LIST, "The schema registries, http://HOST:PORT.",
            importance=Importance.HIGH),
    Setting("auto.register.schemas", SettingType.BOOLEAN, "Whether unknown schemas are registered.", True),
    Setting("use.latest.version", SettingType.BOOLEAN, "Whether the latest schema of the subject is used.", False,
            Importance.LOW),
)  # fmt: skip


class Writing(NamedTuple):
    """How the values of a schema are written."""

    encode: Callable[[Any], Any] | None
    """Returns what the serializer takes; None if it takes the values as they are."""
    serializer: RegistrySerializer


class _Local(NamedTuple):
    """How the values of a schema are written and read without a registry."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes, int], SchemaAndValue]


class RegistryConverter(Converter):
    """Converts between Connect's data and a format whose schemas are in a registry."""

    refused: ClassVar[Mapping[str, str]] = {
        "rule.executors": "rules of schemas are not executed",
        "schema.backup.enabled": "records with their schemas in an envelope are not written",
    }
    """Settings of Confluent's converters that would change values, and what is done in their place."""

    def configure(self, config: Config, *, is_key: bool) -> None:
        """Read the settings. Nothing connects before the first record."""
        self._part = "key" if is_key else "value"
        for name, reason in self.refused.items():
            value = (config.get(name) or "").strip()
            if value.lower() not in ("", "false"):
                raise SettingError(f"Invalid value {value} for configuration {name}: {reason}; remove the setting")
        self._read_settings(self.config_def.parse(config))
        given = {name: value.removeprefix(_STRATEGIES) for name, value in config.items() if value is not None}
        try:
            self._registry = RegistryClient({name: value for name, value in given.items() if has_setting(name)})
            self._options = _known(SERIALIZER_OPTIONS, given)
            self._reader = self._deserializer(_known(DESERIALIZER_OPTIONS, given))
        except (ConfigurationError, ValueError) as error:
            raise SettingError(str(error)) from error
        self._reader.bind(self._part, deferring=False)
        # Schemas are referenced, so that no other schema gets the id() of one.
        self._writers: dict[int, tuple[Schema, Writing]] = {}
        self._locals: dict[int, tuple[Schema, _Local]] = {}

    @abstractmethod
    def _read_settings(self, settings: Mapping[str, Any]) -> None:
        """Keep the settings of the format."""

    @abstractmethod
    def _deserializer(self, options: dict[str, str]) -> RegistryDeserializer:
        """Return the deserializer, which returns SchemaAndValue."""

    @abstractmethod
    def _writing(self, schema: Schema) -> Writing:
        """Return how the values of a schema are written. Raises DataError."""

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return the schema id and the value; None is a null."""
        if value is None:
            return None
        try:
            encode, serializer = self._writing_of(schema)
            # A value that does not fit must not register its schema.
            encoded = value if encode is None else encode(value)
        except DataError as error:
            raise DataError(f"The {self._part} for topic {topic} cannot be converted: {error}") from error
        return guarded(lambda: serializer(encoded, topic=topic, headers=[] if headers is None else headers), self._part)

    def _writing_of(self, schema: Schema | None) -> Writing:
        if schema is None:
            raise DataError(f"{type(self).__name__} needs a schema for the {self._part}, and the record has none")
        known = self._writers.get(id(schema))
        if known is not None:
            return known[1]
        made = guarded(lambda: self._writing(schema), self._part)
        made.serializer.bind(self._part, deferring=False)
        if len(self._writers) >= MOST_SCHEMAS:
            self._writers.clear()
        self._writers[id(schema)] = schema, made
        return made

    def to_connect(self, topic: str, data: bytes | None, headers: RecordHeaders | None = None) -> SchemaAndValue:
        """Return the value and its schema, which is read once for each schema id."""
        if data is None:
            return NULL
        found: SchemaAndValue = guarded(lambda: self._reader(data, topic=topic, headers=headers or []), self._part)
        return found

    def reader_of(self, text: str) -> Callable[[bytes, int], SchemaAndValue]:
        """Return the function that reads values of a schema, from a position of some bytes. It raises InvalidValue."""
        return self._deserializer({}).own_decoder(text)

    def round_trip(self, topic: str, schema: Schema | None, value: Any) -> Any:
        """Write and read a value with its own schema. The registry is not asked, and no schema is registered."""
        if value is None:
            return None
        try:
            write, read = self._local_of(schema)
            return read(write(value), 0).value
        except (DataError, InvalidValue) as error:
            raise DataError(f"The {self._part} for topic {topic} cannot be converted: {error}") from error

    def _local_of(self, schema: Schema | None) -> _Local:
        encode, serializer = self._writing_of(schema)
        assert schema is not None
        known = self._locals.get(id(schema))
        if known is not None:
            return known[1]
        text, write = serializer.own_encoder()
        made = _Local(lambda value: write(value if encode is None else encode(value)), self.reader_of(text))
        if len(self._locals) >= MOST_SCHEMAS:
            self._locals.clear()
        self._locals[id(schema)] = schema, made
        return made

    def close(self) -> None:
        """Close the connections to the registry."""
        self._registry.close()


def _known(rows: Any, given: dict[str, str]) -> dict[str, str]:
    names = {name for row in rows for name in (row.name, *row.aliases)}
    return {name: value for name, value in given.items() if name in names}


def guarded(call: Callable[[], T], part: str) -> T:
    """Call a serializer. Its errors are DataError, or RetriableError if the record is not the cause."""
    try:
        return call()
    except ClientError as error:
        step = _next_step(error.__cause__, f"{part}.converter")
        if step:
            raise RetriableError(f"{error}. {step}") from error
        kind = RetriableError if error.retriable else DataError
        raise kind(str(error)) from error


def _next_step(cause: BaseException | None, prefix: str) -> str:
    """Return what an operator should do about a registry that does not serve; empty: it has refused the record."""
    if isinstance(cause, RegistryUnavailable):
        return f"Check that the schema registry runs, and {prefix}.schema.registry.url"
    if isinstance(cause, SchemaRegistryError) and cause.http_status_code in _DENIED:
        # A record must not be skipped because of a password. Values of variables are read again before the next try.
        return f"The schema registry denies access: check {prefix}.basic.auth.user.info or {prefix}.bearer.auth.token"
    if isinstance(cause, SchemaRegistryError) and cause.retriable:
        return "The schema registry answers, but cannot serve at this moment: see its log"
    return ""
