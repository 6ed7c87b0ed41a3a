"""Converters of one type each: strings, bytes, numbers and booleans, as Kafka's serializers write them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.connect import data
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, Width, one_of
from ottla.connect.converters.api import Converter, Plain, RecordHeaders, SchemaAndValue
from ottla.connect.converters.java_text import object_text, single
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError

if TYPE_CHECKING:
    from ottla.connect.api import Config

_TYPE: Final = Setting(
    "converter.type",
    SettingType.STRING,
    "How this converter will be used.",
    None,
    Importance.LOW,
    lambda name, value: None if value is None else one_of("key", "value", "header")(name, value),
)
CONVERTER_SETTINGS: Final = ConfigDef([_TYPE])
"""The settings of each converter."""


class StringConverter(Converter):
    """Text. Other values are written as Java's `toString` of them."""

    config_def: ClassVar[ConfigDef] = CONVERTER_SETTINGS.plus(
        [
            Setting(
                "converter.encoding",
                SettingType.STRING,
                "The name of the character set used for encoding/decoding the strings.",
                "UTF-8",
                Importance.HIGH,
                width=Width.MEDIUM,
                display_name="Encoding",
            )
        ]
    )
    _encoding = "UTF-8"

    def configure(self, config: Config, *, is_key: bool) -> None:
        """Read the encoding."""
        del is_key
        self._encoding = self.config_def.parse(config)["converter.encoding"]

    @property
    def plain(self) -> Plain | None:
        """Text, unless it has another encoding."""
        return Plain.TEXT if type(self) is StringConverter and self._encoding.lower() in ("utf-8", "utf8") else None

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return encoded text. Raises DataError."""
        del topic, headers
        if value is None:
            return None
        try:
            return (value if type(value) is str else object_text(value, schema)).encode(self._encoding)
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize to a string: {error}") from error

    def to_connect(self, topic: str, data_: bytes | None, headers: RecordHeaders | None = None) -> SchemaAndValue:
        """Return text. Bytes that are not valid text become U+FFFD, as in Java."""
        del topic, headers
        return SchemaAndValue(
            data.OPTIONAL_STRING, None if data_ is None else data_.decode(self._encoding, errors="replace")
        )


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    config_def: ClassVar[ConfigDef] = CONVERTER_SETTINGS

    @property
    def plain(self) -> Plain | None:
        """Bytes."""
        return Plain.BYTES if type(self) is ByteArrayConverter else None

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return the bytes. Raises DataError for other values."""
        del topic, headers
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type}")
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise DataError(f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}")

    def to_connect(self, topic: str, data_: bytes | None, headers: RecordHeaders | None = None) -> SchemaAndValue:
        """Return the bytes."""
        del topic, headers
        return SchemaAndValue(data.OPTIONAL_BYTES, data_)


class _NumberConverter(Converter):
    """A number in big-endian bytes."""

    config_def: ClassVar[ConfigDef] = CONVERTER_SETTINGS
    name: ClassVar[str]
    schema: ClassVar[Schema]
    format: ClassVar[struct.Struct]
    number: ClassVar[type[int | float]]

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return the bytes of a number. Raises DataError."""
        del topic, schema, headers
        if value is None:
            return None
        if isinstance(value, self.number) and not isinstance(value, bool):
            try:
                return self.format.pack(single(value) if self.format.format == ">f" else value)
            except (struct.error, OverflowError) as error:
                raise DataError(f"Failed to serialize to {self.name}: {value} is out of range") from error
        raise DataError(f"Failed to serialize to {self.name}: was given a {type(value).__name__}")

    def to_connect(self, topic: str, data_: bytes | None, headers: RecordHeaders | None = None) -> SchemaAndValue:
        """Return the number of bytes. Raises DataError if there are too few or too many."""
        del topic, headers
        if data_ is None:
            return SchemaAndValue(self.schema, None)
        if len(data_) != self.format.size:
            raise DataError(
                f"Failed to deserialize {self.name}: size of data received is {len(data_)}, not {self.format.size}"
            )
        return SchemaAndValue(self.schema, self.format.unpack(data_)[0])


class IntegerConverter(_NumberConverter):
    """INT32 in four bytes."""

    name, schema, format, number = "int", data.OPTIONAL_INT32, struct.Struct(">i"), int


class LongConverter(_NumberConverter):
    """INT64 in eight bytes."""

    name, schema, format, number = "long", data.OPTIONAL_INT64, struct.Struct(">q"), int


class ShortConverter(_NumberConverter):
    """INT16 in two bytes."""

    name, schema, format, number = "short", data.OPTIONAL_INT16, struct.Struct(">h"), int


class FloatConverter(_NumberConverter):
    """FLOAT32 in four bytes."""

    name, schema, format, number = "float", data.OPTIONAL_FLOAT32, struct.Struct(">f"), float


class DoubleConverter(_NumberConverter):
    """FLOAT64 in eight bytes."""

    name, schema, format, number = "double", data.OPTIONAL_FLOAT64, struct.Struct(">d"), float


class BooleanConverter(Converter):
    """A boolean in one byte: 1 or 0."""

    config_def: ClassVar[ConfigDef] = CONVERTER_SETTINGS

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return one byte. Raises DataError for other values."""
        del topic, headers
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type}")
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataError(f"BooleanConverter is not compatible with objects of type {type(value).__name__}")
        return b"\x01" if value else b"\x00"

    def to_connect(self, topic: str, data_: bytes | None, headers: RecordHeaders | None = None) -> SchemaAndValue:
        """Return the boolean of one byte. Raises DataError for other bytes."""
        del topic, headers
        if data_ is None:
            return SchemaAndValue(data.OPTIONAL_BOOLEAN, None)
        if data_ not in (b"\x00", b"\x01"):
            raise DataError(f"Failed to deserialize a boolean: {len(data_)} bytes that are not one 0 or 1")
        return SchemaAndValue(data.OPTIONAL_BOOLEAN, data_ == b"\x01")
