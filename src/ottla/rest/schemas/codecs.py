"""Values of one schema: JSON to bytes and back. The bytes are without the prefix of Confluent's wire format."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import fastavro
import orjson
from google.protobuf import json_format  # type: ignore[import-untyped,unused-ignore]
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.serializers.base import References
from ottla.clients.serializers.json_schema import checker
from ottla.clients.serializers.protobuf import FIRST_MESSAGE, read_path
from ottla.rest.calls import dump_json
from ottla.schemas.model import InvalidSchema, Schema, SchemaType
from ottla.schemas.protobuf.schema import parse_protobuf

_DEEPEST_MESSAGE: Final = 100
_AVRO_ERRORS: Final = (
    ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, EOFError, StopIteration, struct.error,
    RecursionError, MemoryError, fastavro.read.SchemaResolutionError,
)  # fmt: skip


class Codec(Protocol):
    """Converts values of one schema. Both methods raise ValueError."""

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value of JSON."""

    def decode(self, data: bytes) -> Any:
        """Return a value for orjson."""


class AvroCodec:
    """Values of an Avro schema."""

    def __init__(self, schema: Schema, referenced: Mapping[str, Schema]) -> None:
        named: dict[str, Any] = {}
        for each in referenced.values():
            fastavro.parse_schema(plain(json.loads(each.text)), named_schemas=named)
        self._schema = fastavro.parse_schema(plain(json.loads(schema.text)), named_schemas=named)

    def encode(self, value: Any) -> bytes:
        try:
            datum = next(iter(fastavro.json_reader(io.StringIO(dump_json(value).decode()), self._schema)))
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self._schema, datum)
        except _AVRO_ERRORS as error:
            raise ValueError(f"it does not fit the Avro schema: {_text(error)}") from error
        return out.getvalue()

    def decode(self, data: bytes) -> Any:
        out = io.StringIO()
        try:
            value = fastavro.schemaless_reader(
                io.BytesIO(data), self._schema, None, return_record_name=True, return_named_type=True
            )
            fastavro.json_writer(out, self._schema, [value])
        except _AVRO_ERRORS as error:
            raise ValueError(f"it does not fit its Avro schema: {_text(error)}") from error
        return orjson.Fragment(out.getvalue())


class JsonSchemaCodec:
    """Values of a JSON Schema. Written values are validated."""

    def __init__(self, schema: Schema, referenced: Mapping[str, Schema]) -> None:
        self._check = checker(References(schema, referenced))

    def encode(self, value: Any) -> bytes:
        self._check(value)
        return dump_json(value)

    def decode(self, data: bytes) -> Any:
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"it is not JSON: {error}") from error
        return orjson.Fragment(data)


class ProtobufCodec:
    """Values of a Protobuf schema: written values are its first message, read values any message of its file."""

    def __init__(self, schema: Schema, referenced: Mapping[str, Schema]) -> None:
        self._parsed = parse_protobuf(schema, referenced, is_new=False)
        self._first = self._parsed.message_class(None)
        self._classes: dict[tuple[int, ...], Any] = {}

    def encode(self, value: Any) -> bytes:
        try:
            message = json_format.Parse(dump_json(value), self._first(), max_recursion_depth=_DEEPEST_MESSAGE)
            body: bytes = message.SerializeToString()
        except (json_format.ParseError, EncodeError) as error:
            raise ValueError(f"it does not fit the Protobuf schema: {error}") from error
        return FIRST_MESSAGE + body

    def decode(self, data: bytes) -> Any:
        try:
            path, begin = read_path(data, 0)
            if path not in self._classes:
                self._classes[path] = self._parsed.message_class(self._parsed.message_name(path))
            message = self._classes[path].FromString(data[begin:])
            text = json_format.MessageToJson(message, always_print_fields_with_no_presence=True, indent=None)
        except (DecodeError, InvalidSchema, json_format.SerializeToJsonError) as error:
            raise ValueError(f"it does not fit its Protobuf schema: {error}") from error
        return orjson.Fragment(text)


class BrokenCodec:
    """In place of a schema that cannot be used: `problem` says why."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def encode(self, _: Any) -> bytes:
        raise ValueError(self.problem)

    def decode(self, _: bytes) -> Any:
        raise ValueError(self.problem)


CODECS: Final[Mapping[SchemaType, Callable[[Schema, Mapping[str, Schema]], Codec]]] = {
    SchemaType.AVRO: AvroCodec,
    SchemaType.JSON: JsonSchemaCodec,
    SchemaType.PROTOBUF: ProtobufCodec,
}


def make_codec(schema: Schema, referenced: Mapping[str, Schema]) -> Codec:
    """Return the codec of a schema; a BrokenCodec for an invalid schema, or a type that is not supported."""
    kind = CODECS.get(schema.type)
    if kind is None:
        return BrokenCodec(f"schemas of type {schema.type} are not supported here")
    try:
        return kind(schema, referenced)
    except (*_AVRO_ERRORS, InvalidSchema, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        return BrokenCodec(f"the schema is invalid: {_text(error)}")


def plain(schema: Any) -> Any:
    """Return an Avro schema without logical types, whose JSON has the underlying types."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value if name in {"default", "aliases", "symbols", "doc"} else plain(value)
        for name, value in schema.items()
        if name != "logicalType"
    }


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
