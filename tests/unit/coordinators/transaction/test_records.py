"""The records of `__transaction_state`, and the state that is replayed from them."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call
from ottla.coordinators.transaction import AddPartitions, TransactionConfig, TransactionShard
from ottla.coordinators.transaction.errors import error_response
from ottla.coordinators.transaction.events import DescribeTransaction, ListTransactions
from ottla.coordinators.transaction.metadata import Metadata
from ottla.coordinators.transaction.records import key_of, metadata_of, record_of, tombstone_of
from ottla.coordinators.transaction.states import MOVES, State
from ottla.protocol.keyed import encode_value
from ottla.protocol.transaction_records import TransactionLogValue, decode_record
from ottla.protocol.wire import DecodeError
from tests.simulation.world.transactions import Producer, TransactionDriver

FULL = Metadata(
    producer_id=2**40,
    producer_epoch=32_767,
    timeout_ms=60_000,
    state=State.PREPARE_COMMIT,
    partitions=frozenset({("b", 2), ("a", 10), ("a", 9)}),
    start_ms=5,
    update_ms=6,
    previous_producer_id=7,
    next_producer_id=8,
    client_transaction_version=2,
)


def test_record_of_version_1_has_the_bytes_of_kafka() -> None:
    key, value = record_of("tx", FULL, 2)
    assert key.hex() == "0000" + "0002" + "7478"
    assert value is not None
    assert value.hex() == (
        "0001"
        "0000010000000000" "7fff" "0000ea60" "02"
        "03" "0261" "03" "00000009" "0000000a" "00" "0262" "02" "00000002" "00"
        "0000000000000006" "0000000000000005"
        "03" "00" "08" "0000000000000007" "01" "08" "0000000000000008" "02" "02" "0002"
    )  # fmt: skip


def test_record_of_version_0_has_the_bytes_of_kafka() -> None:
    _, value = record_of("tx", FULL, 0)
    assert value is not None
    assert value.hex() == (
        "0000"
        "0000010000000000" "7fff" "0000ea60" "02"
        "00000002" "0001" "61" "00000002" "00000009" "0000000a" "0001" "62" "00000001" "00000002"
        "0000000000000006" "0000000000000005"
    )  # fmt: skip


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("state", State)
def test_records_can_be_decoded(level: int, state: State) -> None:
    partitions = frozenset() if state is State.EMPTY else FULL.partitions
    metadata = Metadata(1, 2, 3, state, partitions, 4, 5, 6, 7, 2)
    decoded = decode_record(*record_of("x", metadata, level))
    assert decoded is not None
    assert metadata_of(decoded[1]) == metadata


def test_partitions_of_an_empty_transaction_are_null() -> None:
    value = record_of("x", Metadata(1, 2, 3, State.EMPTY, frozenset(), -1, 5), 0)[1]
    assert value is not None
    assert value[2 + 8 + 2 + 4 + 1 :][:4] == b"\xff\xff\xff\xff"


def test_unknown_state_is_an_error() -> None:
    shard = TransactionShard(TransactionConfig(), 0, 0, lambda: 2)
    value = encode_value(TransactionLogValue(transaction_status=9), 1)
    with pytest.raises(DecodeError, match="state id 9"):
        shard.replay(key_of("x"), value, 0)


def test_records_of_unknown_types_are_counted() -> None:
    shard = TransactionShard(TransactionConfig(), 0, 0, lambda: 2)
    shard.replay(b"\x00\x05\x00\x00", b"\x00\x00", 0)
    assert (shard.skipped_records, shard.transactions) == (1, {})


def test_tombstone_deletes_the_id() -> None:
    shard = TransactionShard(TransactionConfig(), 0, 0, lambda: 2)
    shard.replay(*record_of("x", FULL, 2), 0)
    shard.replay(*tombstone_of("x"), 1)
    shard.replay(*tombstone_of("y"), 2)
    assert shard.transactions == {}
    shard.validate()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_replay_restores_the_state(level: int) -> None:
    driver = TransactionDriver(level=level)
    for name in ("one", "two", "three"):
        producer = Producer(driver, name, version=2 if level else 1)
        producer.init()
        producer.add(("a", 0))
        if name != "one":
            producer.end(commit=name == "two")
        live = {n: record_of(n, m, level) for n, m in driver.shard.transactions.items()}
        assert {n: record_of(n, m, level) for n, m in driver.replayed().transactions.items()} == live


def test_level_of_the_feature_chooses_the_version_of_each_record() -> None:
    driver = TransactionDriver(level=0)
    producer = Producer(driver, version=1)
    producer.init()
    driver.level = 2
    producer.add(("a", 0))
    assert [value[:2] for _, value in driver.log if value] == [b"\0\0", b"\0\1"]


def test_illegal_move_is_a_defect() -> None:
    with pytest.raises(AssertionError, match="PrepareCommit -> Ongoing is not a legal move"):
        FULL.with_partitions(frozenset(), 0, 2)
    assert set(MOVES) == set(State)


# -- unload --------------------------------------------------------------------------------------------------------


def test_unload_answers_requests_that_wait_and_stops_the_timers() -> None:
    driver = TransactionDriver()
    open_producer = Producer(driver, "open")
    open_producer.init()
    open_producer.add(("a", 0))
    driver.holds_allocations = driver.holds_markers = True
    open_producer.commit()
    producer = Producer(driver)
    call = driver.send(producer.init_request(), 5)
    driver.obey(driver.shard.unload(ErrorCode.NOT_COORDINATOR, driver.now()))
    assert producer.initialized(driver.answers[call]) is ErrorCode.NOT_COORDINATOR
    assert driver.shard.next_timer_ms() is None


def test_every_request_has_an_error_response() -> None:
    producer = Producer(TransactionDriver())
    error = ErrorCode.NOT_COORDINATOR
    for request in (producer.init_request(), producer.end_request(commit=True), DescribeTransaction("x")):
        assert error_response(Call(request, 5), error).error_code == error
    assert error_response(Call(AddPartitions("x", 1, 1, (("a", 1),))), error) == {("a", 1): error}
    assert error_response(Call(ListTransactions()), error) is error
    assert error_response(Call(None), error) is None
