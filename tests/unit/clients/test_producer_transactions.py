"""Transactions of the producer on a simulated cluster: what is committed is visible once, and nothing else is."""

from __future__ import annotations

import os

import pytest

from ottla.clients.errors import (
    ClientError,
    Closed,
    ConnectionLost,
    InvalidTransactionState,
    TransactionAborted,
    TransactionFailed,
)
from ottla.clients.producer._encoder import Delivery
from ottla.clients.producer.effects import Wake
from ottla.clients.producer.transaction_states import State
from ottla.common.errors import ErrorCode
from tests.simulation.world.transactional_producer import TransactionWorld

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "30")))


def end(world: TransactionWorld, name: str) -> ClientError | None:
    """Commit or abort; return the error, after an abort if it failed the transaction."""
    try:
        call = world.call(name)
    except TransactionFailed as failed:
        world.finish(world.call("abort"))
        return failed
    world.finish(call)
    assert call is not None
    if isinstance(call.error, TransactionFailed):
        world.finish(world.call("abort"))
    else:
        assert call.error is None, call.error
    return call.error


Values = dict[int, list[bytes | None]]


def fill(world: TransactionWorld, number: int) -> tuple[Values, int | None]:
    """Send records and an offset at random in the open transaction. Raises TransactionFailed."""
    random = world.random
    sent: Values = {p: [] for p in world.logs}
    for index in range(random.randrange(8)):
        partition = random.randrange(len(world.logs))
        value = b"%d/%d" % (number, index)
        if world.send(value, partition=partition) is not None:
            sent[partition].append(value)
        if random.random() < 0.4:
            world.run(for_ms=random.randrange(20))
    if random.random() < 0.5:
        return sent, None
    world.send_offset(number)
    return sent, number


def run_transactions(world: TransactionWorld, count: int) -> None:
    """Send, commit and abort at random; check what a reader sees."""
    world.finish(world.call("initialize"))
    world.call("begin")
    world.learn()
    end(world, "abort")
    random = world.random
    expected: Values = {p: [] for p in world.logs}
    expected_offset = None
    for number in range(count):
        world.call("begin")
        try:
            sent, offset = fill(world, number)
        except TransactionFailed:
            assert end(world, "commit") is not None
            continue
        if random.random() < 0.1:
            world.core.purge(in_queue=True, in_flight=random.random() < 0.5)
        if random.random() < 0.3:
            end(world, "abort")
        elif end(world, "commit") is None:
            for partition, values in sent.items():
                expected[partition] += values
            expected_offset = expected_offset if offset is None else offset
    world.lose_request = world.lose_answer = world.delay_answer = world.refuse_coordinator = 0
    world.refuse.clear()
    world.run(for_ms=5_000)
    assert world.visible == expected
    assert world.coordinator.offset == expected_offset
    assert not any(world.open.values()), "a transaction hangs"
    assert not world.coordinator.is_open
    assert world.core.transactions is not None
    assert world.core.transactions.state is State.READY


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_committed_records_are_visible_once_and_in_order_and_no_others(seed: int, level: int) -> None:
    world = TransactionWorld(seed, level, retry_backoff_ms=10, batch_size=60, delivery_timeout_ms=4000)
    random = world.random
    world.lose_request = random.choice([0, 0.05, 0.2])
    world.lose_answer = random.choice([0, 0.05, 0.2])
    world.delay_answer = random.choice([0, 0, 0.05])
    world.refuse_coordinator = random.choice([0, 0.1])
    if random.random() < 0.5:
        world.refuse = {ErrorCode.NOT_LEADER_OR_FOLLOWER: 0.1, ErrorCode.INVALID_RECORD: 0.05}
    run_transactions(world, 12)


def test_records_outside_a_transaction_are_refused() -> None:
    world = TransactionWorld()
    with pytest.raises(InvalidTransactionState, match="init_transactions"):
        world.send(b"too early")
    world.finish(world.call("initialize"))
    with pytest.raises(InvalidTransactionState, match="begin_transaction"):
        world.send(b"between two transactions")


def test_record_after_the_commit_began_does_not_join_its_batch() -> None:
    """Threads append to open batches without the lock (`RecordEncoder.try_append`)."""
    world = TransactionWorld(linger_ms=60_000)
    world.finish(world.call("initialize"))
    world.call("begin")
    world.learn()
    world.send(b"a")
    world.send(b"b", partition=1)
    world.logs[0].leader = world.known[0] = -1  # its batch waits
    call = world.call("commit")
    encoder = world.core.accumulator.encoder
    assert encoder.try_append(world.topic, 0, None, b"late", (), 0, Delivery, None) is None
    world.logs[0].leader = 0
    world.finish(call)
    world.run(for_ms=100)
    assert world.visible == {0: [b"a"], 1: [b"b"]}


def test_abort_drops_records_that_were_not_sent() -> None:
    world = TransactionWorld(linger_ms=60_000)
    world.finish(world.call("initialize"))
    world.call("begin")
    world.learn()
    delivery = world.send(b"a")
    begun = world.now_ms
    world.finish(world.call("abort"))
    assert world.now_ms - begun < 1000
    assert world.logs[0].values == []
    assert delivery is not None
    assert isinstance(delivery._batch.error, TransactionAborted)


def test_waiter_of_a_call_wakes_once_though_the_coordinator_is_lost_after_the_stop() -> None:
    world = TransactionWorld()
    call = world.call("initialize")  # its request is sent at once
    woken: list[int] = []
    assert call is not None
    call.waiters.append(lambda: woken.append(1))
    effects = world.core.stop(Closed("closed")) + world.core.coordinator_lost(ConnectionLost("closed"), world.now_ms)
    for effect in effects:
        for waker in effect.wakers if isinstance(effect, Wake) else ():
            waker()
    assert woken == [1]
