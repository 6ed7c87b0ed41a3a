"""The messages of pgoutput, PostgreSQL's logical replication plug-in, protocol version 1: bytes to tuples, without I/O.

Source: "Logical Replication Message Formats" of PostgreSQL 18's documentation. `decode` returns one of the classes
below; `TABLE` has the parser of each message. A tuple's column is None (null), UNCHANGED (a large value that was not
written), or its text in UTF-8. Raises DecodingError for bytes that are not a message.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeAlias

# Microseconds from 1970 to 2000, PostgreSQL's epoch.
EPOCH_US: Final = 946_684_800_000_000


class DecodingError(ValueError):
    """Bytes that are not a message of pgoutput, version 1."""


class Unchanged:
    """The class of UNCHANGED."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
Values: TypeAlias = list[bytes | Unchanged | None]


class Begin(NamedTuple):
    """The start of a transaction."""

    final_lsn: int
    """The position of its commit record."""
    commit_us: int
    """The time of the commit, in microseconds since 1970."""
    xid: int


class Commit(NamedTuple):
    """The end of a transaction."""

    commit_lsn: int
    end_lsn: int
    commit_us: int


class Origin(NamedTuple):
    """The server at which a replicated transaction began."""

    lsn: int
    name: str


class RelationColumn(NamedTuple):
    """A column of a relation."""

    key: bool
    """Whether it is part of the replica identity."""
    name: str
    type_oid: int
    modifier: int


class Relation(NamedTuple):
    """A table, before its first change in a session and after each change of its definition."""

    oid: int
    schema: str
    table: str
    identity: str
    """d (default), n (nothing), f (full) or i (index)."""
    columns: tuple[RelationColumn, ...]


class TypeName(NamedTuple):
    """The name of a type."""

    oid: int
    schema: str
    name: str


class Insert(NamedTuple):
    """A new row."""

    oid: int
    new: Values


class Update(NamedTuple):
    """A changed row. `old` is None if neither the key changed nor the replica identity is full."""

    oid: int
    old: Values | None
    new: Values
    full: bool
    """Whether `old` has all columns, not just the key."""


class Delete(NamedTuple):
    """A deleted row."""

    oid: int
    old: Values
    full: bool


class Truncate(NamedTuple):
    """Emptied tables."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


class Message(NamedTuple):
    """A logical decoding message (pg_logical_emit_message)."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Any: TypeAlias = Begin | Commit | Origin | Relation | TypeName | Insert | Update | Delete | Truncate | Message

_BEGIN, _COMMIT, _ORIGIN = Struct("!QqI"), Struct("!BQQq"), Struct("!Q")
_OID, _COUNT, _TRUNCATE, _MESSAGE = Struct("!I"), Struct("!H"), Struct("!IB"), Struct("!BQ")
_COLUMN, _SIZE = Struct("!Ii"), Struct("!I")
_NULL, _TEXT, _TOAST = ord("n"), ord("t"), ord("u")
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")


def decode(data: bytes) -> Any:
    """Return the message in `data`."""
    parse = TABLE.get(data[0]) if data else None
    if parse is None:
        raise DecodingError(f"{data[:1]!r} is not a message of pgoutput, version 1")
    try:
        return parse(data)
    except (IndexError, struct_error, UnicodeDecodeError) as error:
        raise DecodingError(f"message {data[:1]!r} of {len(data)} bytes is cut or corrupt: {error}") from error


def _begin(data: bytes) -> Begin:
    final_lsn, commit_us, xid = _BEGIN.unpack_from(data, 1)
    return Begin(final_lsn, commit_us + EPOCH_US, xid)


def _commit(data: bytes) -> Commit:
    _, commit_lsn, end_lsn, commit_us = _COMMIT.unpack_from(data, 1)
    return Commit(commit_lsn, end_lsn, commit_us + EPOCH_US)


def _string(data: bytes, position: int) -> tuple[str, int]:
    end = data.find(0, position)
    if end < 0:
        raise DecodingError("a name without its end")
    return data[position:end].decode(), end + 1


def _origin(data: bytes) -> Origin:
    return Origin(_ORIGIN.unpack_from(data, 1)[0], _string(data, 9)[0])


def _relation(data: bytes) -> Relation:
    (oid,) = _OID.unpack_from(data, 1)
    schema, position = _string(data, 5)
    table, position = _string(data, position)
    identity = chr(data[position])
    (count,) = _COUNT.unpack_from(data, position + 1)
    position += 3
    columns = []
    for _ in range(count):
        flags = data[position]
        name, position = _string(data, position + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, position)
        position += 8
        columns.append(RelationColumn(bool(flags & 1), name, type_oid, modifier))
    # The server writes pg_catalog as an empty name.
    return Relation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def _type(data: bytes) -> TypeName:
    (oid,) = _OID.unpack_from(data, 1)
    schema, position = _string(data, 5)
    return TypeName(oid, schema or "pg_catalog", _string(data, position)[0])


def _tuple(data: bytes, position: int) -> tuple[Values, int]:
    (count,) = _COUNT.unpack_from(data, position)
    position += 2
    values: Values = []
    append, size_of = values.append, _SIZE.unpack_from
    for _ in range(count):
        kind = data[position]
        if kind == _TEXT:
            begin = position + 5
            position = begin + size_of(data, position + 1)[0]
            append(data[begin:position])
        elif kind in (_NULL, _TOAST):
            append(None if kind == _NULL else UNCHANGED)
            position += 1
        else:
            raise DecodingError(f"a column of kind {chr(kind)!r}")
    if position > len(data):
        raise DecodingError("a value without its end")
    return values, position


def _insert(data: bytes) -> Insert:
    if data[5] != _NEW:
        raise DecodingError("an insert without its row")
    return Insert(_OID.unpack_from(data, 1)[0], _tuple(data, 6)[0])


def _update(data: bytes) -> Update:
    (oid,) = _OID.unpack_from(data, 1)
    kind, position, old = data[5], 6, None
    full = kind == _OLD
    if full or kind == _KEY:
        old, position = _tuple(data, position)
        kind = data[position]
        position += 1
    if kind != _NEW:
        raise DecodingError("an update without its row")
    return Update(oid, old, _tuple(data, position)[0], full)


def _delete(data: bytes) -> Delete:
    kind = data[5]
    if kind != _KEY and kind != _OLD:
        raise DecodingError("a delete without its key")
    return Delete(_OID.unpack_from(data, 1)[0], _tuple(data, 6)[0], kind == _OLD)


def _truncate(data: bytes) -> Truncate:
    count, flags = _TRUNCATE.unpack_from(data, 1)
    if count > (len(data) - 6) // 4:
        raise DecodingError("a truncate without its tables")
    return Truncate(
        tuple(_OID.unpack_from(data, 6 + 4 * each)[0] for each in range(count)), bool(flags & 1), bool(flags & 2)
    )


def _message(data: bytes) -> Message:
    flags, lsn = _MESSAGE.unpack_from(data, 1)
    prefix, position = _string(data, 10)
    (size,) = _SIZE.unpack_from(data, position)
    content = data[position + 4 : position + 4 + size]
    if len(content) != size:
        raise DecodingError("a message without its end")
    return Message(bool(flags & 1), lsn, prefix, content)


TABLE: Final[dict[int, Callable[[bytes], Any]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
}
"""The parser of each message, by its first byte."""


def lsn_of(text: str) -> int:
    """Return the number of a position in the log, such as 0/16B3748."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return PostgreSQL's text of a position."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
