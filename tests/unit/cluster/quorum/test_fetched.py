"""Batches of a fetch response are appended only if they continue the log of this leader and are whole."""

from __future__ import annotations

import pytest

from ottla.cluster.quorum.fetched import fetched_batches
from ottla.common.errors import ErrorCode, KafkaError
from ottla.raft import VoterSet, control
from ottla.records import encode_batch

CONTROL = 0x20


def batch(offset: int, epoch: int, *values: bytes) -> bytes:
    rows = [(0, None, value, ()) for value in values]
    return bytes(encode_batch(rows, base_offset=offset, leader_epoch=epoch))


def test_whole_batches_are_returned_and_one_that_is_cut_off_is_fetched_again() -> None:
    data = batch(5, 1, b"a", b"b") + batch(7, 2, b"c") + batch(8, 2, b"d")[:-1]
    found = list(fetched_batches(data, 5, 2))
    assert [(each.header.base_offset, each.header.partition_leader_epoch) for each in found] == [(5, 1), (7, 2)]
    assert b"".join(each.data for each in found) == data[: sum(len(each.data) for each in found)]


def test_voters_and_versions_are_found_with_their_offsets() -> None:
    records = [control.KRaftVersion(1), VoterSet(), control.LeaderChange(1, (1,), (1,))]
    rows = [(0, key, value, ()) for key, value in map(control.encode, records)]
    (found,) = fetched_batches(bytes(encode_batch(rows, base_offset=3, leader_epoch=1, attributes=CONTROL)), 3, 1)
    assert found.controls == ((3, records[0]), (4, records[1]))


@pytest.mark.parametrize(
    "data",
    [
        batch(6, 1, b"a"),
        batch(4, 1, b"a"),
        batch(5, 3, b"a"),
        batch(5, 1, b"a")[:-1] + b"x",
        batch(5, 1, b"a") + batch(5, 1, b"a"),
    ],
    ids=["a gap", "an old offset", "a future epoch", "a wrong checksum", "an offset twice"],
)
def test_other_batches_are_rejected(data: bytes) -> None:
    with pytest.raises(KafkaError) as error:
        list(fetched_batches(data, 5, 2))
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE
