"""Source offsets: the bytes of keys, and partitions that are equal in another order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect.cluster import offset_records
from ottla.connect.cluster.offset_records import OffsetState, hash_map_order
from ottla.connect.errors import BadRequestError

# As a stock worker of version 4.3.0 wrote them.
KEY = b'["src-x",{"filename":"/tmp/in.txt"}]'
VALUE = b'{"position":4}'


def test_records_are_written_byte_for_byte_as_by_a_stock_worker() -> None:
    assert offset_records.key("src-x", {"filename": "/tmp/in.txt"}) == KEY
    assert offset_records.value({"position": 4}) == VALUE


def test_records_of_a_stock_worker_are_read() -> None:
    state = OffsetState()
    assert state.apply(KEY, VALUE)
    assert state.get("src-x", {"filename": "/tmp/in.txt"}) == {"position": 4}
    assert state.all("src-x") == [({"filename": "/tmp/in.txt"}, {"position": 4})]
    assert state.get("other", {"filename": "/tmp/in.txt"}) is None
    assert state.apply(KEY, None)
    assert state.all("src-x") == []


def test_a_known_key_keeps_its_bytes() -> None:
    """Another order would be another key: compaction would keep both, and a stock worker would find the old offset."""
    state = OffsetState()
    written = b'["c",{"z":1,"a":"x"}]'
    state.apply(written, VALUE)
    assert state.key("c", {"a": "x", "z": 1}) == written
    assert state.get("c", {"a": "x", "z": 1}) == {"position": 4}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        # The order of HashMap in OpenJDK 17, of the partitions of MirrorMaker, Debezium and others.
        (["cluster", "partition", "topic"], ["cluster", "partition", "topic"]),
        (["server", "database"], ["server", "database"]),
        (["b", "a"], ["a", "b"]),
        (["kafka_topic", "kafka_partition"], ["kafka_partition", "kafka_topic"]),
    ],
)
def test_new_keys_have_the_order_of_a_hash_map(names: list[str], expected: list[str]) -> None:
    assert hash_map_order(names) == expected


_position = st.dictionaries(
    st.text(max_size=5), st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.text(max_size=3)), max_size=4
)


@given(_position, _position)
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read(partition: dict[str, object], offset: dict[str, object]) -> None:
    state = OffsetState()
    assert state.apply(state.key("c", partition), offset_records.value(offset))
    shuffled = dict(reversed(partition.items()))
    assert state.get("c", shuffled) == offset
    assert state.key("c", shuffled) == state.key("c", partition)


@pytest.mark.parametrize("key", [None, b"x", b"[]", b'["c"]', b"[1,{}]", b'["c",null]', b'{"c":{}}'])
def test_keys_of_other_records_are_ignored(key: bytes | None) -> None:
    assert not OffsetState().apply(key, VALUE)


@pytest.mark.parametrize("position", [{"a": [1]}, {"a": {}}, {1: "a"}, {"a": b"bytes"}])
def test_nested_values_are_refused(position: dict[str, object]) -> None:
    with pytest.raises(BadRequestError):
        offset_records.value(position)
