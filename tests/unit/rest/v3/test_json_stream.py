"""The cutter of concatenated JSON objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.rest.v3.json_stream import JsonObjects, StreamError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=6), VALUES, max_size=3), max_size=5)


@given(OBJECTS, st.data(), st.sampled_from(["", " ", "\n", "\r\n\t"]), st.booleans())
def test_objects_are_found_however_their_bytes_arrive(
    objects: list[dict[str, Any]], data: st.DataObject, separator: str, is_ascii: bool
) -> None:
    stream = separator.join(json.dumps(each, ensure_ascii=is_ascii) for each in objects).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    cutter = JsonObjects(10_000)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += cutter.feed(stream[start:end])
    cutter.finish()
    assert [json.loads(each) for each in found] == objects


def test_limit_is_for_one_object() -> None:
    cutter = JsonObjects(20)
    assert len(cutter.feed(b'{"a":1}' * 100)) == 100
    with pytest.raises(StreamError, match="more than 20 bytes"):
        cutter.feed(b'{"a":"' + b"x" * 20)


@pytest.mark.parametrize("stream", [b"[1]", b"x", b"1", b'{"a":1},{"b":2}'])
def test_stream_of_other_values_is_refused(stream: bytes) -> None:
    with pytest.raises(StreamError, match="must be a JSON object"):
        JsonObjects(100).feed(stream)


@pytest.mark.parametrize("stream", [b"{", b'{"a', b'{"a\\', b'{"a":[1,'])
def test_end_within_an_object_is_refused(stream: bytes) -> None:
    cutter = JsonObjects(100)
    assert cutter.feed(stream) == []
    with pytest.raises(StreamError, match="ends within a record"):
        cutter.finish()


@given(st.binary(max_size=60))
def test_any_bytes_give_objects_or_a_stream_error(data: bytes) -> None:
    cutter = JsonObjects(50)
    try:
        cutter.feed(data)
        cutter.finish()
    except StreamError:
        pass
