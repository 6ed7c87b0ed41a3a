"""The decoder of pgoutput: every message of an own encoder comes back, and no bytes but messages do."""

from __future__ import annotations

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.connectors.postgres.pgoutput import (
    EPOCH_US,
    TABLE,
    UNCHANGED,
    Begin,
    Commit,
    DecodingError,
    Delete,
    Insert,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    TypeName,
    Update,
    decode,
    lsn_of,
    lsn_text,
)

LSN = st.integers(0, 2**64 - 1)
OID = st.integers(0, 2**32 - 1)
TIME = st.integers(-(2**62), 2**62)
NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=20)
VALUES = st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=50)), max_size=12)


def c_string(text: str) -> bytes:
    return text.encode() + b"\0"


def row(values: list[object]) -> bytes:
    parts = [pack("!H", len(values))]
    for each in values:
        if isinstance(each, bytes):
            parts.append(b"t" + pack("!I", len(each)) + each)
        else:
            parts.append(b"n" if each is None else b"u")
    return b"".join(parts)


@given(LSN, TIME, OID)
def test_begin(lsn: int, time: int, xid: int) -> None:
    assert decode(b"B" + pack("!QqI", lsn, time, xid)) == Begin(lsn, time + EPOCH_US, xid)


@given(LSN, LSN, TIME)
def test_commit(lsn: int, end: int, time: int) -> None:
    assert decode(b"C\0" + pack("!QQq", lsn, end, time)) == Commit(lsn, end, time + EPOCH_US)


@given(OID, VALUES)
def test_insert(oid: int, values: list[object]) -> None:
    assert decode(b"I" + pack("!I", oid) + b"N" + row(values)) == Insert(oid, values)  # type: ignore[arg-type]


@given(OID, VALUES, VALUES, st.sampled_from(["K", "O", ""]))
def test_update(oid: int, old: list[object], new: list[object], kind: str) -> None:
    before = kind.encode() + row(old) if kind else b""
    expected = Update(oid, old if kind else None, new, kind == "O")  # type: ignore[arg-type]
    assert decode(b"U" + pack("!I", oid) + before + b"N" + row(new)) == expected


@given(OID, VALUES, st.sampled_from(["K", "O"]))
def test_delete(oid: int, old: list[object], kind: str) -> None:
    assert decode(b"D" + pack("!I", oid) + kind.encode() + row(old)) == Delete(oid, old, kind == "O")  # type: ignore[arg-type]


@given(st.lists(OID, max_size=5), st.integers(0, 3))
def test_truncate(oids: list[int], flags: int) -> None:
    data = b"T" + pack("!IB", len(oids), flags) + b"".join(pack("!I", each) for each in oids)
    assert decode(data) == Truncate(tuple(oids), bool(flags & 1), bool(flags & 2))


@given(
    OID,
    NAME,
    NAME,
    st.sampled_from("dnfi"),
    st.lists(st.tuples(st.booleans(), NAME, OID, st.integers(-1, 2**31 - 1)), max_size=5),
)
def test_relation(oid: int, schema: str, table: str, identity: str, columns: list[tuple[bool, str, int, int]]) -> None:
    data = b"R" + pack("!I", oid) + c_string(schema) + c_string(table) + identity.encode() + pack("!H", len(columns))
    for key, name, kind, modifier in columns:
        data += bytes([key]) + c_string(name) + pack("!Ii", kind, modifier)
    assert decode(data) == Relation(oid, schema, table, identity, tuple(RelationColumn(*each) for each in columns))


@given(OID, NAME, LSN, st.binary(max_size=100), st.booleans())
def test_other_messages(oid: int, name: str, lsn: int, content: bytes, transactional: bool) -> None:
    assert decode(b"Y" + pack("!I", oid) + b"\0" + c_string(name)) == TypeName(oid, "pg_catalog", name)
    assert decode(b"O" + pack("!Q", lsn) + c_string(name)) == Origin(lsn, name)
    data = b"M" + pack("!BQ", transactional, lsn) + c_string(name) + pack("!I", len(content)) + content
    assert decode(data) == Message(transactional, lsn, name, content)


@given(
    st.one_of(
        st.binary(max_size=60),
        st.tuples(st.sampled_from(sorted(TABLE)), st.binary(max_size=60)).map(lambda each: bytes([each[0]]) + each[1]),
    )
)
def test_other_bytes_are_an_error(data: bytes) -> None:
    with suppress(DecodingError):
        decode(data)


@given(OID, st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4), st.data())
def test_cut_rows_are_an_error(oid: int, values: list[object], data: st.DataObject) -> None:
    message = b"I" + pack("!I", oid) + b"N" + row(values)
    cut = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(DecodingError):
        decode(message[:cut])


@given(LSN)
def test_positions_have_texts(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn
