"""Invalid requests get the protocol's error or a closed connection, and do not affect other clients.

Every test has a witness: a connection that produces before and after, and whose records are all stored. At the end of
the session, a check ensures that the broker's log has no traceback.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import unique
from .wire import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
    Connection,
    ConnectionClosed,
    Produced,
    batch,
    fetch,
    init_producer_id,
    produce,
    produce_body,
    record,
    request,
    stored_batches,
    string,
    varint,
)

CORRUPT_MESSAGE, UNKNOWN_TOPIC, MESSAGE_TOO_LARGE, INVALID_REQUIRED_ACKS = 2, 3, 10, 21
UNSUPPORTED_VERSION, OUT_OF_ORDER_SEQUENCE, DUPLICATE_SEQUENCE, INVALID_PRODUCER_EPOCH = 35, 45, 46, 47
UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = -1, 76, 87
NEVER = -1


class Witness:
    """Another client. It produces before and after the test, and checks at the end that all its records are stored."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._connection = Connection(bootstrap)
        self._count = 0
        self.goes_on()

    def goes_on(self) -> None:
        assert produce(self._connection, self._topic, batch([b"witness"])) == Produced(0, self._count)
        self._count += 1

    def close(self) -> None:
        try:
            self.goes_on()
            stored = stored_batches(self._bootstrap, self._topic)
            assert [(b.base_offset, b.count) for b in stored] == [(i, 1) for i in range(self._count)]
        finally:
            self._connection.socket.close()


@pytest.fixture(autouse=True)
def witness(broker: RunningBroker, make_topic: MakeTopic) -> Iterator[Witness]:
    watching = Witness(broker.bootstrap, make_topic())
    yield watching
    watching.close()


def closes(broker: RunningBroker, data: bytes, within_s: float = 10.0) -> bool:
    """Whether the broker closes a new connection that sends `data`, without a response."""
    with Connection(broker.bootstrap) as connection:
        try:
            connection.send(data)
        except ConnectionClosed:
            return True
        return connection.is_closed(within_s)


@pytest.mark.both
def test_random_bytes_close_the_connection(broker: RunningBroker) -> None:
    chance = random.Random(1)
    for _ in range(30):
        data = chance.randbytes(chance.randrange(1, 4000))
        with Connection(broker.bootstrap) as connection:
            connection.send(data)
            connection.finish()
            assert connection.is_closed()


@pytest.mark.both
def test_random_request_bodies_get_a_response_or_a_closed_connection(broker: RunningBroker) -> None:
    chance = random.Random(2)
    keys = [
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        9,
        10,
        11,
        14,
        15,
        16,
        18,
        19,
        20,
        22,
        32,
        36,
        44,
        60,
    ]
    for i in range(120):
        key = keys[i % len(keys)]
        body = chance.randbytes(chance.randrange(0, 200))
        with Connection(broker.bootstrap) as connection:
            connection.send(request(key, chance.randrange(0, 8), 7, body))
            connection.finish()
            with contextlib.suppress(ConnectionClosed):  # as Kafka does with a request that it cannot decode
                assert connection.receive()[:4] == struct.pack(">i", 7)


@pytest.mark.both
@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 200_000_000, 0], ids=lambda s: f"length {s}")
def test_invalid_frame_length_closes_the_connection(broker: RunningBroker, size: int) -> None:
    assert closes(broker, struct.pack(">i", size) + b"\x00" * 16)


@pytest.mark.both
def test_incomplete_frame_is_dropped_and_does_not_affect_other_clients(broker: RunningBroker, witness: Witness) -> None:
    frame = request(METADATA, 1, 1, struct.pack(">i", -1))
    for cut in (1, 3, 4, 7, len(frame) - 1):
        with Connection(broker.bootstrap) as connection:
            connection.send(frame[:cut])
            witness.goes_on()
            connection.finish()
            assert connection.is_closed()


@pytest.mark.both
def test_frame_may_arrive_byte_by_byte_or_together_with_others(broker: RunningBroker) -> None:
    frame = request(API_VERSIONS, 0, 1, b"")
    with Connection(broker.bootstrap) as connection:
        for i in range(len(frame)):
            connection.send(frame[i : i + 1])
            time.sleep(0.002)
        assert connection.receive()[:4] == struct.pack(">i", 1)
        connection.send(b"".join(request(API_VERSIONS, 0, i, b"") for i in range(2, 52)))
        assert [connection.receive()[:4] for _ in range(50)] == [struct.pack(">i", i) for i in range(2, 52)]


@pytest.mark.both
@pytest.mark.parametrize("count", [2**31 - 1, 50_000_000, -2, -(2**31)])
def test_invalid_array_count_closes_the_connection(broker: RunningBroker, count: int) -> None:
    head = string(None) + struct.pack(">hi", -1, 1000)
    assert closes(broker, request(PRODUCE, 3, 1, head + struct.pack(">i", count)))
    if count > 0:  # Kafka decodes any negative count as null where null is allowed
        assert closes(broker, request(METADATA, 1, 1, struct.pack(">i", count)))


@pytest.mark.both
def test_field_longer_than_the_frame_closes_the_connection(broker: RunningBroker) -> None:
    assert closes(broker, request(METADATA, 1, 1, struct.pack(">i", 1) + struct.pack(">h", 30_000) + b"short"))
    body = string(None) + struct.pack(">hi", -1, 1000) + struct.pack(">i", 1) + string("t")
    assert closes(broker, request(PRODUCE, 3, 1, body + struct.pack(">iii", 1, 0, 2**31 - 1) + b"\x00" * 20))


@pytest.mark.both
@pytest.mark.parametrize("key", [-1, 4, 7, 93, 999, 32_767])
def test_unknown_api_closes_the_connection(broker: RunningBroker, key: int) -> None:
    assert closes(broker, request(key, 0, 1, b"\x00" * 8))


@pytest.mark.both
@pytest.mark.parametrize(("key", "version"), [(METADATA, 99), (FETCH, 0), (PRODUCE, 2), (FETCH, -1), (11, 300)])
def test_unknown_version_closes_the_connection(broker: RunningBroker, key: int, version: int) -> None:
    assert closes(broker, request(key, version, 1, b"\x00" * 40))


@pytest.mark.both
@pytest.mark.parametrize("version", [99, 5, 32_767])
def test_unknown_version_of_api_versions_is_answered_in_version_0(broker: RunningBroker, version: int) -> None:
    with Connection(broker.bootstrap) as connection:
        answer = connection.ask(API_VERSIONS, version, b"\x00" * 5)
        error, count = struct.unpack_from(">hi", answer)
        assert error == UNSUPPORTED_VERSION
        ranges = {k: (low, high) for k, low, high in struct.iter_unpack(">hhh", answer[6 : 6 + 6 * count])}
        assert ranges[API_VERSIONS] == (0, 4)
        error, count = struct.unpack_from(">hi", connection.ask(API_VERSIONS, 0, b""))
        assert (error, count > 20) == (0, True)


@pytest.mark.both
def test_wrong_checksum_is_rejected(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, topic, batch([b"a"], crc_error=1)) == Produced(CORRUPT_MESSAGE, NEVER)
        good = bytearray(batch([b"abcdefgh"]))
        good[-3] ^= 0x40
        assert produce(connection, topic, bytes(good)) == Produced(CORRUPT_MESSAGE, NEVER)
        assert produce(connection, topic, batch([b"b"])) == Produced(0, 0)
    assert len(stored_batches(broker.bootstrap, topic)) == 1


def refused(broker: RunningBroker, topic: str, records: bytes) -> int | None:
    """Produce `records` and return the error; None if the broker closed the connection."""
    with Connection(broker.bootstrap) as connection:
        try:
            return produce(connection, topic, records).error
        except ConnectionClosed:
            return None


BAD_BATCHES = {
    "magic 0": (batch([b"a"], magic=0), {None, CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_VERSION}),
    "magic 1": (batch([b"a"], magic=1), {None, CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_VERSION}),
    "magic 3": (batch([b"a"], magic=3), {None, CORRUPT_MESSAGE, INVALID_RECORD}),
    "two batches": (batch([b"a"]) + batch([b"b"]), {INVALID_RECORD}),
    "no batch": (b"", {None, INVALID_RECORD, CORRUPT_MESSAGE}),
    "half a batch": (batch([b"abcdefgh"])[:-4], {None, INVALID_RECORD, CORRUPT_MESSAGE}),
    "half a header": (batch([b"abcdefgh"])[:30], {None, INVALID_RECORD, CORRUPT_MESSAGE}),
    "count too high": (batch([b"a"], count=5, last_offset_delta=4), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "count too low": (batch([b"a", b"b"], count=1, last_offset_delta=0), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "count absurd": (batch([b"a"], count=2**31 - 1, last_offset_delta=2**31 - 2), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "count negative": (batch([b"a"], count=-5, last_offset_delta=0), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "count and delta differ": (batch([b"a", b"b"], last_offset_delta=7), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "no records": (batch([], count=0, last_offset_delta=0), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "a control batch": (batch([b"a"], attributes=0x20), {INVALID_RECORD}),
    "a codec that is not": (batch([b"a"], attributes=7), {UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE}),
    "a record longer than the batch": (
        batch([b"a"], records=varint(1000) + b"\x00" * 9),
        {INVALID_RECORD, CORRUPT_MESSAGE},
    ),
    "bytes behind the records": (
        batch([b"a"], records=record(0, b"a") + b"\x00\x00"),
        {INVALID_RECORD, CORRUPT_MESSAGE},
    ),
}


@pytest.mark.both
@pytest.mark.parametrize("name", BAD_BATCHES)
def test_invalid_batch_is_rejected(broker: RunningBroker, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic()
    records, answers = BAD_BATCHES[name]
    assert refused(broker, topic, records) in answers
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, topic, batch([b"good"])) == Produced(0, 0)
    assert [(b.base_offset, b.count) for b in stored_batches(broker.bootstrap, topic)] == [(0, 1)]


@pytest.mark.both
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_batch_with_invalid_compressed_data_does_not_affect_other_batches(
    broker: RunningBroker, make_topic: MakeTopic, codec: int
) -> None:
    """Kafka decompresses every batch and fails. Ottla decompresses a batch only if the topic's settings require it."""
    topic, strict = make_topic(), make_topic(cleanup_policy="compact")
    rubbish = batch([b"a"], attributes=codec)
    assert refused(broker, topic, rubbish) in (UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, 0)
    assert refused(broker, strict, rubbish) in (UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, INVALID_RECORD)
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, topic, batch([b"good"])).error == 0
    assert stored_batches(broker.bootstrap, topic)[-1].codec == "none"


@pytest.mark.both
def test_sequence_numbers_of_an_idempotent_producer_are_checked(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Connection(broker.bootstrap) as connection:
        producer_id, epoch = init_producer_id(connection)

        def send(sequence: int, count: int = 2, at_epoch: int = epoch) -> Produced:
            records = batch([b"v"] * count, producer_id=producer_id, epoch=at_epoch, sequence=sequence)
            return produce(connection, topic, records)

        assert send(0) == Produced(0, 0)
        assert send(2) == Produced(0, 2)
        assert send(2) == Produced(0, 2)  # sent twice, stored once
        assert send(6).error == OUT_OF_ORDER_SEQUENCE  # 4 is missing
        assert send(4) == Produced(0, 4)
        for sequence in range(6, 18, 2):
            assert send(sequence) == Produced(0, sequence)
        assert send(8) == Produced(0, 8)  # among the last five
        assert send(0).error in (DUPLICATE_SEQUENCE, OUT_OF_ORDER_SEQUENCE)  # older than the last five
        assert send(1, at_epoch=epoch + 1).error == OUT_OF_ORDER_SEQUENCE  # a new epoch begins at 0
        assert send(0, at_epoch=epoch + 1) == Produced(0, 18)
        assert send(18).error == INVALID_PRODUCER_EPOCH
    assert sum(b.count for b in stored_batches(broker.bootstrap, topic)) == 20


@pytest.mark.both
def test_invalid_acks_are_rejected(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, topic, batch([b"a"]), acks=2).error == INVALID_REQUIRED_ACKS
        assert produce(connection, unique("nowhere"), batch([b"a"]), partition=0).error in (0, UNKNOWN_TOPIC)
        assert produce(connection, topic, batch([b"a"]), partition=9).error == UNKNOWN_TOPIC
        assert produce(connection, topic, batch([b"a"]), partition=-1).error == UNKNOWN_TOPIC
        assert fetch(connection, topic, 9, 0)[0] == UNKNOWN_TOPIC
    assert stored_batches(broker.bootstrap, topic) == []


@pytest.mark.both
def test_error_with_acks_0_closes_the_connection(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert closes(broker, request(PRODUCE, 3, 1, produce_body(topic, 0, batch([b"a"], crc_error=1), acks=0)))
    with Connection(broker.bootstrap) as connection:
        connection.send(request(PRODUCE, 3, 1, produce_body(topic, 0, batch([b"a"]), acks=0)))
        connection.send(request(API_VERSIONS, 0, 2, b""))
        assert connection.receive()[:4] == struct.pack(">i", 2)  # without a response to the first request


def test_decompression_bomb_is_rejected_or_stored_compressed(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    bomb = record(0, b"\x00" * 100_000_000)
    bomb = gzip.compress(bomb, 9)
    assert len(bomb) < 400_000
    start = time.monotonic()
    error = refused(broker, topic, batch([b""], attributes=1, records=bomb))
    assert error in (None, 0, CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE)
    assert time.monotonic() - start < 15


@pytest.mark.both
def test_many_silent_connections_do_not_block_other_clients(broker: RunningBroker, witness: Witness) -> None:
    silent = [Connection(broker.bootstrap) for _ in range(200)]
    try:
        witness.goes_on()
    finally:
        for connection in silent:
            connection.socket.close()


@pytest.mark.both
def test_client_that_does_not_read_responses_does_not_block_other_clients(
    broker: RunningBroker, make_topic: MakeTopic, witness: Witness
) -> None:
    topic = make_topic(max_message_bytes=2_000_000)
    with Connection(broker.bootstrap) as connection:
        for _ in range(8):
            assert produce(connection, topic, batch([b"x" * 900_000])).error == 0
    body = struct.pack(">iiiib", -1, 100, 1, 50_000_000, 0) + struct.pack(">i", 1) + string(topic)
    body += struct.pack(">iiqi", 1, 0, 0, 50_000_000)
    with Connection(broker.bootstrap, timeout_s=2.0) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            for i in range(100):  # 7 MB each
                slow.send(request(FETCH, 4, i, body))
        except (TimeoutError, ConnectionClosed):
            pass  # the broker stopped reading, as it should
        for _ in range(5):
            witness.goes_on()
