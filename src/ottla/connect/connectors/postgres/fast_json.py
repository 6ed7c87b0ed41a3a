"""Rows to the bytes of JsonConverter without dicts between: one function compiled for each definition of a table.

PostgreSQL's text of most values is JSON already. A row that does not fit (null in a required column, characters that
Java escapes in its own way, an unchanged large value) raises an exception, and takes the way through the converter.
"""

from __future__ import annotations

import time
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from json.encoder import encode_basestring as c_quoted
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.connect import data
from ottla.connect.connectors.postgres import literals
from ottla.connect.connectors.postgres.context import Context
from ottla.connect.connectors.postgres.rows import Member, Row, RowEncoder, Texts
from ottla.connect.data import Schema, Type
from ottla.connect.errors import ConnectError
from ottla.connect.records import EncodedRecord, Position, SourceRecord

if TYPE_CHECKING:
    from ottla.connect.converters.json import JsonConverter

_MARK: Final = 7_777_777_777_777_777_777
_MARK_BYTES: Final = b"%d" % _MARK
EncodeRow: TypeAlias = Callable[[Any], tuple[str, str]]
"""From the texts of a row to its key and its fields as JSON objects."""


class NotPlainError(Exception):
    """A value that the fast way cannot write."""


def quoted(text: str) -> str:
    """Return a JSON string."""
    found = c_quoted(text)
    if "\\u00" in found:  # Java writes these in upper case
        raise NotPlainError
    return found


def _required(column: str) -> str:
    raise NotPlainError(column)


NOT_FAST: Final = (NotPlainError, AttributeError, TypeError, ValueError, ArithmeticError, IndexError, ConnectError)
"""The exceptions after which a row goes through the converter, which names what is wrong with it."""


class RecordForm(NamedTuple):
    """How the records of a table look."""

    topic: str
    key_schema: Schema | None
    envelope: Schema
    encoder: RowEncoder
    partition: Position
    source: Callable[[Context], Row]
    """Make the source block of an event."""


def json_converters(given: tuple[object, object] | None) -> tuple[JsonConverter, JsonConverter] | None:
    """Return the converters of keys and values if both are JsonConverter itself."""
    if given is None:
        return None
    from ottla.connect.converters.json import JsonConverter  # noqa: PLC0415 - needs orjson

    key, value = given
    if type(key) is not JsonConverter or type(value) is not JsonConverter:
        return None
    return key, value


class JsonRows:
    """Makes records of a table as bytes."""

    def __init__(self, form: RecordForm, converters: tuple[JsonConverter, JsonConverter]) -> None:
        self._form = form
        key, self._value = converters
        self._key_begin, self._key_end = _around(key.beginning(form.key_schema))
        self._begin, self._end = _around(self._value.beginning(form.envelope))
        self._has_key = form.key_schema is not None
        self._source = self._value_encoder("source")
        self._transaction: tuple[object, ...] = ()
        self._parts: list[bytes] = []
        members, names = form.encoder.members, form.encoder.key_names
        self._from_text = _compiled(members, names, form.encoder.width, self._value, raw=False)
        self._from_bytes = _compiled(members, names, form.encoder.width, self._value, raw=True)

    def _value_encoder(self, field: str) -> Callable[[Any], bytes]:
        from ottla.connect.converters.json_encoder import compiled, dumps  # noqa: PLC0415 - optional

        encode = compiled(self._form.envelope.fields_by_name[field].schema, self._value.options)
        return lambda value: dumps(encode(value))

    def reads(self, rows: Sequence[Texts], context: Context) -> list[SourceRecord]:
        """Return the records of rows of a snapshot. Raises an exception if a row must go through the converter."""
        form, encode, now = self._form, self._from_text, time.time_ns()
        head = self._begin + b'{"before":null,"after":'
        tail = self._tail("r", self._source(form.source(context)), now)
        key_begin, key_end, topic = self._key_begin, self._key_end, form.topic
        partition, offset = form.partition, context.offset
        records: list[SourceRecord] = []
        for row in rows:
            key, value = encode(row)
            key_bytes = key_begin + key.encode() + key_end if self._has_key else None
            records.append(
                EncodedRecord(
                    topic, None, None, key_bytes, None, head + value.encode() + tail, None, [], partition, offset
                )
            )
        return records

    def _tail(self, op: str, source: bytes, now: int) -> bytes:
        times = b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now // 1_000_000, now // 1000, now)
        return b',"source":%b,"transaction":null,"op":"%b",%b%b' % (source, op.encode(), times, self._end)

    def _source_of_change(self, context: Context) -> bytes:
        """Return the source block; within a transaction just the position differs."""
        key = (context.xid, context.commit_us, context.last_commit, context.origin)
        if key != self._transaction:
            self._parts = self._source(self._form.source(replace(context, lsn=_MARK))).split(_MARK_BYTES)
            self._transaction = key
        return (b"%d" % context.lsn).join(self._parts)

    def change(self, op: str, values: Texts, context: Context) -> SourceRecord:
        """Return the record of a new or changed row without its old one. Raises an exception as `reads` does."""
        form, now = self._form, time.time_ns()
        key, value = self._from_bytes(values)
        key_bytes = self._key_begin + key.encode() + self._key_end if self._has_key else None
        data_ = b'%b{"before":null,"after":%b%b' % (
            self._begin,
            value.encode(),
            self._tail(op, self._source_of_change(context), now),
        )
        return EncodedRecord(form.topic, None, None, key_bytes, None, data_, None, [], form.partition, context.offset)


def _around(beginning: bytes | None) -> tuple[bytes, bytes]:
    return (b"", b"") if beginning is None else (beginning, b"}")


def _compiled(
    members: Sequence[Member], key_names: Sequence[str], width: int, converter: JsonConverter, *, raw: bool
) -> EncodeRow:
    from ottla.connect.converters.json_encoder import compiled, dumps  # noqa: PLC0415 - optional

    names = [f"v{each}" for each in range(width)]
    scope: dict[str, Any] = {"quoted": quoted, "required": _required}
    lines, parts = [f"[{', '.join(names)}] = values" if names else "[] = values"], {}
    for number, each in enumerate(members):
        encode = compiled(each.schema, converter.options)
        value = names[each.position]
        text = f"{value}.decode()" if raw else value
        expression, extra = _expression(each, encode, dumps, converter)
        scope |= {f"{name}{number}": given for name, given in extra.items()}
        null = _null(each.schema, encode, dumps)
        absent = repr(null) if null is not None else f"required({each.column!r})"
        lines.append(f"c{number} = {absent} if {value} is None else {expression.format(text, number)}")
        parts[each.name] = f"c{number}"
    lines.append(f"return {_object(key_names, parts)}, {_object(list(parts), parts)}")
    code = "def encode(values):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(code, "<JSON encoder>", "exec"), scope)  # noqa: S102 - names are quoted, nothing else is from outside
    encode_row: EncodeRow = scope["encode"]
    return encode_row


def _object(names: Sequence[str], parts: dict[str, str]) -> str:
    if not names:
        return repr("{}")
    texts = [quoted(name).replace("{", "{{").replace("}", "}}") + ":{" + parts[name] + "}" for name in names]
    return "f" + repr("{{" + ",".join(texts) + "}}")


def _null(schema: Schema, encode: Callable[[Any], Any], dumps: Callable[[Any], bytes]) -> str | None:
    if not schema.optional and not schema.has_default:
        return None
    printed: str = dumps(encode(None)).decode()
    return printed


_INTEGERS: Final = frozenset({Type.INT16, Type.INT32, Type.INT64})


def _expression(
    member: Member, encode: Callable[[Any], Any], dumps: Callable[[Any], bytes], converter: JsonConverter
) -> tuple[str, dict[str, Any]]:
    found, schema = member.codec, member.schema
    if found.plain == "int":
        return "{0}", {}
    if found.plain == "str":
        return "quoted({0})", {}
    if found.plain == "bool":
        return "('true' if {0} == 't' else 'false')", {}
    parse = found.parse
    if (
        schema.type in _INTEGERS
        and schema.name != data.TIME
        and schema.name != data.DATE
        and schema.name != data.TIMESTAMP
    ):
        return "str(p{1}({0}))", {"p": parse}
    if schema.type is Type.STRING:
        return "quoted(p{1}({0}))", {"p": parse}
    if schema.name == data.DECIMAL and not converter.options.numeric_decimals and found.fixed:
        return "p{1}({0})", {"p": _decimal}
    return "p{1}({0})", {"p": lambda text: dumps(encode(parse(text))).decode()}


def _decimal(text: str) -> str:
    """Return a numeric of a fixed scale, which PostgreSQL prints with all its digits, as base64."""
    number = int(text.replace(".", "", 1))
    return f'"{b2a_base64(literals.unscaled(number), newline=False).decode()}"'
