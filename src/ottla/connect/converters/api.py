"""The interface of converters (org.apache.kafka.connect.storage.Converter and HeaderConverter).

A converter belongs to one task and is called by its thread. `from_connect` is called for each record: implementations
cache one encoder for each Schema object, by identity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from ottla.connect.config.definition import ConfigDef

if TYPE_CHECKING:
    from ottla.connect.data import Schema

RecordHeaders: TypeAlias = list[tuple[str, bytes | None]]
"""The headers of a Kafka record. A converter may add some."""


class SchemaAndValue(NamedTuple):
    """A value, and its type if it is known."""

    schema: Schema | None
    value: Any


NULL = SchemaAndValue(None, None)


class HeaderConverter(ABC):
    """Converts the values of headers."""

    version: ClassVar[str] = "4.3.0"
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:  # noqa: B027 - optional
        """Read the settings, which have no prefix here. Called once. Raises SettingError."""

    @abstractmethod
    def from_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a header's value. Raises DataError."""

    @abstractmethod
    def to_header(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        """Return the value of a header. Raises DataError."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release connections."""


class Plain(Enum):
    """The data of a converter whose bytes are the value itself, null for None, and which accepts all bytes."""

    TEXT = "UTF-8"
    BYTES = "bytes"


class Converter(HeaderConverter):
    """Converts keys and values, and also headers, in the same way."""

    @property
    def plain(self) -> Plain | None:
        """Whether many values may be passed on without this converter."""
        return None

    @abstractmethod
    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return the bytes of a key or a value. Raises DataError, and RetriableError if a registry is not reached."""

    @abstractmethod
    def to_connect(self, topic: str, data: bytes | None, headers: RecordHeaders | None = None) -> SchemaAndValue:
        """Return the key or value of bytes. Schema objects are reused. Raises as `from_connect`."""

    def round_trip(self, topic: str, schema: Schema | None, value: Any) -> Any:
        """Return the value that is read after it is written, without an effect elsewhere. Raises as `from_connect`."""
        return self.to_connect(topic, self.from_connect(topic, schema, value)).value

    def from_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """As `from_connect`."""
        del name
        return self.from_connect(topic, schema, value)

    def to_header(self, topic: str, name: str, data: bytes | None) -> SchemaAndValue:
        """As `to_connect`."""
        del name
        return self.to_connect(topic, data)
