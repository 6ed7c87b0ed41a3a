"""The bytes between workers: the golden ones are from IncrementalCooperativeConnectProtocol of Kafka 4.3.0."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect.cluster.protocol import (
    NO_WORK,
    GroupAssignment,
    MalformedError,
    MemberState,
    Work,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_member,
)
from ottla.connect.runtime import TaskId

ASSIGNMENT = bytes.fromhex(
    "0002000000066c6561642d31000e687474703a2f2f683a383038332f0000000000000007000000010001630000000"
    "3ffffffff00000000000000010000000100016400000002ffffffff0000000000001388"
)
MEMBER = bytes.fromhex(
    "0002000e687474703a2f2f683a383038332f0000000000000009000000430002000000066c6561642d31000e68747"
    "4703a2f2f683a383038332f00000000000000070000000100016300000003ffffffff000000000000000100000000"
    "00000000"
)
NEW_MEMBER = bytes.fromhex("0002000e687474703a2f2f683a383038332f0000000000000009ffffffff")
EAGER_MEMBER = bytes.fromhex("0000000e687474703a2f2f683a383038332f0000000000000009")


def work(name: str, *tasks: int) -> Work:
    return Work(frozenset([name]), frozenset(TaskId(name, each) for each in tasks))


GIVEN = GroupAssignment("lead-1", "http://h:8083/", 7, work("c", 0, 1), work("d", 0), 5000)


def test_bytes_are_the_same_as_of_a_stock_worker() -> None:
    assert encode_assignment(GIVEN, 2) == ASSIGNMENT
    assert encode_assignment(GIVEN, 1) == b"\x00\x01" + ASSIGNMENT[2:]
    assert encode_member(MemberState("http://h:8083/", 9, work("c", 0, 1)), 2, GIVEN) == MEMBER
    assert encode_member(MemberState("http://h:8083/", 9, NO_WORK), 2, None) == NEW_MEMBER


def test_bytes_of_a_stock_worker_are_read() -> None:
    assert decode_assignment(ASSIGNMENT) == GIVEN
    assert decode_member(MEMBER) == MemberState("http://h:8083/", 9, work("c", 0, 1))
    assert decode_member(NEW_MEMBER) == decode_member(EAGER_MEMBER) == MemberState("http://h:8083/", 9, NO_WORK)


_works = st.builds(
    Work,
    st.frozensets(st.text(max_size=3), max_size=3),
    st.frozensets(st.builds(TaskId, st.text(max_size=3), st.integers(0, 9)), max_size=4),
)


@given(_works, _works, st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_any_assignment_is_read_as_it_was_written(added: Work, revoked: Work, delay_ms: int) -> None:
    given_ = GroupAssignment("m", "u", 3, added, revoked, delay_ms)
    assert decode_assignment(encode_assignment(given_, 2)) == given_


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    for decode in (decode_member, decode_assignment):
        try:
            decode(data)
        except MalformedError:
            continue


@pytest.mark.parametrize("length", range(len(ASSIGNMENT) - 4))
def test_bytes_that_end_early_are_refused(length: int) -> None:
    if length in (len(ASSIGNMENT) - 4 - 31, 36 + 27):  # between two fields that older versions do not have
        return
    try:
        assert decode_assignment(ASSIGNMENT[:length]) != GIVEN
    except MalformedError:
        return
