"""Transaction markers: what is encoded once for many partitions is what each of them reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.log.transaction_marker import Marker, TransactionEnd, read_marker
from ottla.records import BatchProducer, encode_batch, read_header
from ottla.records.batch import CONTROL, TRANSACTIONAL, patch

ENDS = st.builds(
    TransactionEnd,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    coordinator_epoch=st.integers(-(2**31), 2**31 - 1),
    commit=st.booleans(),
    transaction_version=st.integers(0, 2),
)
TIMES_MS = st.integers(0, 2**42)


@given(st.lists(st.tuples(ENDS, TIMES_MS), min_size=1, max_size=6), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_marker_is_read_back_in_every_partition(
    rows: list[tuple[TransactionEnd, int]], offset: int, epoch: int
) -> None:
    for end, time_ms in [*rows, *reversed(rows)]:
        for _ in range(2):  # two partitions, each of which writes offset and epoch into its own copy
            batch, header = end.encode(time_ms)
            assert header == read_header(batch)
            assert header.is_control
            assert header.is_transactional
            assert (header.producer_id, header.producer_epoch) == (end.producer_id, end.producer_epoch)
            expected = Marker(not end.commit, end.coordinator_epoch, time_ms)
            assert read_marker(batch, 0) == expected
            patch(batch, 0, offset, epoch)
            assert read_marker(batch, 0) == expected, "the offset is not part of the marker"
            assert read_marker(b"before" + batch, 6) == expected


def test_control_batch_without_a_marker_has_none() -> None:
    other = encode_batch([(0, b"\0\0\0\2", b"", [])], attributes=TRANSACTIONAL | CONTROL, producer=BatchProducer(1))
    assert read_marker(other, 0) is None
