"""Schema ids of a batch, compiled and from the source."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kernels import is_compiled
from ottla.records import HEADER_SIZE, _framed_fields, encode_batch
from ottla.records.framed_fields import NULL, UNFRAMED, framed_fields
from tests.uncompiled import record_kernels

UNCOMPILED = record_kernels()["_framed_fields"]
FIELDS = st.none() | st.binary(max_size=12) | st.integers(0, 2**32 - 1).map(lambda n: b"\0" + n.to_bytes(4, "big"))


@pytest.fixture(params=["compiled", "uncompiled"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "uncompiled":
        return UNCOMPILED
    if not is_compiled("ottla.records._framed_fields"):
        pytest.skip("the kernel is not compiled here")
    return _framed_fields


def expected_id(field: bytes | None) -> int:
    if field is None:
        return NULL
    return int.from_bytes(field[1:5], "big") if len(field) >= 5 and field[0] == 0 else UNFRAMED


@settings(deadline=None)
@given(st.lists(st.tuples(FIELDS, FIELDS, st.booleans()), min_size=1, max_size=20))
def test_ids_and_places_of_keys_and_values(rows: list[tuple[Any, Any, bool]]) -> None:
    headers = {True: [("name", b"value"), ("empty", None)], False: []}
    batch = encode_batch([(0, key, value, headers[more]) for key, value, more in rows])
    for of_keys in (True, False):
        fields = [row[0] if of_keys else row[1] for row in rows]
        for kernel in (_framed_fields, UNCOMPILED):
            places, ids = kernel.find_fields(batch, HEADER_SIZE, len(batch), len(rows), of_keys)
            assert list(ids) == list(dict.fromkeys(map(expected_id, fields)))
            numbers = memoryview(places).cast("q")
            count = len(rows)
            for row, field in enumerate(fields):
                assert numbers[row] == expected_id(field)
                assert batch[numbers[count + row] : numbers[2 * count + row]] == (field or b"")


def test_rows_and_data_of_an_id() -> None:
    values = [b"\0\0\0\0\7abc", b"plain", None, b"\0\0\0\0\7d", b"\0\0\0\0\x08"]
    batch = encode_batch([(0, None, value, ()) for value in values])
    fields = framed_fields(batch, HEADER_SIZE, len(batch), 5, of_keys=False)
    assert fields.ids == [7, UNFRAMED, NULL, 8]
    assert [fields.rows_with(each) for each in (7, UNFRAMED, NULL, 8, 9)] == [[0, 3], [1], [2], [4], []]
    assert fields.rows_with(7, range(1, 5)) == [3]
    assert [bytes(fields.field(row)) for row in (0, 3, 4)] == [b"abc", b"d", b""]


def test_malformed_records_are_an_error(module: ModuleType) -> None:
    batch = encode_batch([(0, None, b"value", ())])
    for end, count in ((len(batch) - 1, 1), (len(batch), 2)):
        with pytest.raises(KafkaError) as raised:
            module.find_fields(batch, HEADER_SIZE, end, count, False)
        assert raised.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(KafkaError, match="bytes follow the 0 records"):
        module.find_fields(batch, HEADER_SIZE, len(batch), 0, False)
    with pytest.raises(IndexError):
        module.find_fields(batch, HEADER_SIZE, len(batch) + 1, 1, False)
