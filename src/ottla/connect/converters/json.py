"""JsonConverter (org.apache.kafka.connect.json): JSON with or without the schema in each record.

Bytes equal Java's, but for the order of map entries: Python keeps the order of insertion. Each Schema object has its
encoder and its JSON, which is the constant beginning of each record. The decoder remembers beginnings, too: a record
with a known one is parsed without its schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import orjson

from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, Width, between, one_of
from ottla.connect.converters import json_decoder, json_encoder
from ottla.connect.converters.api import NULL, Converter, RecordHeaders, SchemaAndValue
from ottla.connect.converters.json_decoder import Decode, has_decimals, loads
from ottla.connect.converters.json_encoder import Encode, JsonOptions, dumps
from ottla.connect.converters.json_schemas import from_json, to_json
from ottla.connect.converters.simple import CONVERTER_SETTINGS
from ottla.connect.data import Schema
from ottla.connect.errors import DataError

if TYPE_CHECKING:
    from ottla.connect.api import Config

_BOOLEAN, _HIGH, _LOW = SettingType.BOOLEAN, Importance.HIGH, Importance.LOW
_SETTINGS: Final = CONVERTER_SETTINGS.plus(
    [
        Setting(
            "schemas.enable",
            _BOOLEAN,
            "Include schemas within each of the serialized values and keys.",
            True,
            _HIGH,
            group="Schemas",
            width=Width.MEDIUM,
            display_name="Enable Schemas",
            order=0,
        ),
        Setting(
            "schemas.cache.size",
            SettingType.INT,
            "The maximum number of schemas that can be cached in this converter instance.",
            1000,
            _HIGH,
            between(1),
            group="Schemas",
            width=Width.MEDIUM,
            display_name="Schema Cache Size",
        ),
        Setting(
            "schema.content",
            SettingType.STRING,
            "When set, this is used as the schema for all messages, and the schemas within each of the message will be "
            "ignored.Otherwise, the schema will be included in the content of each message. This configuration applies "
            "only 'schemas.enable' is true, and it exclusively affects the sink connector.",
            None,
            _HIGH,
            group="Schemas",
            width=Width.MEDIUM,
            display_name="Schema Content",
        ),
        Setting(
            "decimal.format",
            SettingType.STRING,
            "Controls which format this converter will serialize decimals in. This value is case insensitive and can "
            "be either 'BASE64' (default) or 'NUMERIC'",
            "BASE64",
            _LOW,
            one_of("BASE64", "NUMERIC", ignore_case=True),
            group="Serialization",
            width=Width.MEDIUM,
            display_name="Decimal Format",
            order=0,
        ),
        Setting(
            "replace.null.with.default",
            _BOOLEAN,
            "Whether to replace fields that have a default value and that are null to the default value. When set to "
            "true, the default value is used, otherwise null is used.",
            True,
            _LOW,
            group="Serialization",
            width=Width.MEDIUM,
            display_name="Replace null with default",
        ),
    ]
)
_ENVELOPE: Final = frozenset({"schema", "payload"})
_BEFORE_SCHEMA: Final = re.compile(r'\s*\{\s*"schema"\s*:\s*')
_BEFORE_PAYLOAD: Final = re.compile(r'\s*,\s*"payload"\s*:\s*')
_NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_MAX_BEGINNINGS: Final = 8


class _Reader(NamedTuple):
    """How the payload of a schema is read."""

    schema: Schema | None
    decode: Decode
    exact: bool


class JsonConverter(Converter):
    """Values as JSON."""

    config_def: ClassVar[ConfigDef] = _SETTINGS

    def __init__(self) -> None:
        self._options = JsonOptions()
        self._has_schemas = True
        self._cache_size = 1000
        # By id of the schema, which each row keeps alive.
        self._encoders: dict[int, tuple[Schema | None, bytes, Encode]] = {}
        self._readers: dict[bytes, _Reader] = {}
        self._beginnings: list[tuple[bytes, _Reader]] = []
        # KIP-1054: the reader of all records.
        self._common: _Reader | None = None

    def configure(self, config: Config, *, is_key: bool) -> None:
        """Read the settings. Raises SettingError."""
        del is_key
        values = self.config_def.parse(config)
        self._has_schemas = values["schemas.enable"]
        self._cache_size = values["schemas.cache.size"]
        self._options = JsonOptions(values["decimal.format"].upper() == "NUMERIC", values["replace.null.with.default"])
        content = values["schema.content"]
        if content is not None and content.strip():
            reader = self._reader(_content(content))
            self._common = None if reader.schema is None else reader

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return JSON; None for None without a schema. Raises DataError that names the field."""
        del topic, headers
        if schema is None and value is None:
            return None
        found = self._encoders.get(id(schema))
        if found is None:
            found = self._add_encoder(schema)
        payload = dumps(found[2](value))
        return b"%b%b}" % (found[1], payload) if self._has_schemas else payload

    def encoder(self, schema: Schema | None) -> Callable[[Any], bytes]:
        """Return a function from values of one schema to bytes, without the look-up of each call."""
        _, beginning, encode = self._encoders.get(id(schema)) or self._add_encoder(schema)
        if not self._has_schemas:
            return lambda value: dumps(encode(value))
        return lambda value: b"%b%b}" % (beginning, dumps(encode(value)))

    @property
    def options(self) -> JsonOptions:
        """The settings of its encoders."""
        return self._options

    def beginning(self, schema: Schema | None) -> bytes | None:
        """Return the bytes before the payload of each record of a schema; None without `schemas.enable`."""
        found = self._encoders.get(id(schema)) or self._add_encoder(schema)
        return found[1] if self._has_schemas else None

    def _add_encoder(self, schema: Schema | None) -> tuple[Schema | None, bytes, Encode]:
        if len(self._encoders) >= self._cache_size:
            for oldest in list(islice(self._encoders, max(1, self._cache_size // 10))):
                del self._encoders[oldest]
        beginning = b""
        if self._has_schemas:
            beginning = b'{"schema":%b,"payload":' % dumps(to_json(schema, self._options))
        made = schema, beginning, json_encoder.compiled(schema, self._options)
        self._encoders[id(schema)] = made
        return made

    def to_connect(self, topic: str, data: bytes | None, headers: RecordHeaders | None = None) -> SchemaAndValue:
        """Return the value of JSON. Raises DataError that names the field."""
        del topic, headers
        if data is None:
            return NULL
        if not self._has_schemas:
            return SchemaAndValue(None, loads(data) if data.strip() else None)
        if self._common is not None:
            payload = loads(data, exact=self._common.exact)
            return SchemaAndValue(self._common.schema, self._common.decode(payload))
        for index, (beginning, reader) in enumerate(self._beginnings):
            if data.startswith(beginning):
                try:
                    payload = loads(data[len(beginning) : data.rindex(b"}")], exact=reader.exact)
                except (DataError, ValueError):
                    break  # more fields follow, or it is not JSON
                if index:
                    self._beginnings.insert(0, self._beginnings.pop(index))
                return SchemaAndValue(reader.schema, reader.decode(payload))
        return self._with_envelope(data)

    def _with_envelope(self, data: bytes) -> SchemaAndValue:
        envelope = loads(data)
        if not isinstance(envelope, dict) or envelope.keys() != _ENVELOPE:
            raise DataError(_NO_ENVELOPE)
        written = orjson.dumps(envelope["schema"])
        reader = self._readers.get(written)
        if reader is None:
            reader = self._add_reader(written, envelope["schema"])
        self._remember_beginning(data, reader)
        payload = loads(data, exact=True)["payload"] if reader.exact else envelope["payload"]
        return SchemaAndValue(reader.schema, reader.decode(payload))

    def _add_reader(self, written: bytes, given: Any) -> _Reader:
        if len(self._readers) >= self._cache_size:
            del self._readers[next(iter(self._readers))]
        reader = self._readers[written] = self._reader(given)
        return reader

    def _reader(self, given: Any) -> _Reader:
        schema = from_json(given, self._options)
        return _Reader(schema, json_decoder.compiled(schema, self._options), has_decimals(schema))

    def _remember_beginning(self, data: bytes, reader: _Reader) -> None:
        """Remember the bytes before the payload, if the record has its two fields in Java's order."""
        text = data.decode()
        start = _BEFORE_SCHEMA.match(text)
        if start is None:
            return
        _, end = json.JSONDecoder().raw_decode(text, start.end())
        found = _BEFORE_PAYLOAD.match(text, end)
        if found is not None and data.rstrip().endswith(b"}"):
            self._beginnings.insert(0, (text[: found.end()].encode(), reader))
            del self._beginnings[_MAX_BEGINNINGS:]


def _content(text: str) -> Any:
    try:
        return loads(text)
    except DataError as error:
        raise DataError(f"Failed to parse schema in converter config due to serialization error: {error}") from error
