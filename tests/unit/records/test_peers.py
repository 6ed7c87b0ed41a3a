"""Compatibility with other clients: builders and readers of kafka-python and aiokafka, and librdkafka's mock broker."""

import socket
import struct
import time
import uuid
from collections.abc import Iterator

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.records import (
    BatchProducer,
    Codec,
    ProduceRules,
    check_crc,
    decode_batch,
    encode_batch,
    encode_end_transaction_marker,
    iter_batches,
    murmur2,
    partition_for_key,
    validate_produced,
)

from .samples import CODECS, ROWS, rows_of

PEERS = [
    pytest.param(AiokafkaBuilder, AiokafkaBatch, id="aiokafka"),
    pytest.param(KafkaPythonBuilder, KafkaPythonBatch, id="kafka-python"),
]
# kafka-python needs packages for the other codecs that nothing else here needs.
PEERS_AND_CODECS = [
    *(pytest.param(AiokafkaBuilder, AiokafkaBatch, codec, id=f"aiokafka-{codec.name}") for codec in CODECS),
    *(
        pytest.param(KafkaPythonBuilder, KafkaPythonBatch, codec, id=f"kafka-python-{codec.name}")
        for codec in (Codec.NONE, Codec.GZIP)
    ),
]
SEQUENCE = {"producer_id": 4_000_000_000, "producer_epoch": 3, "base_sequence": 12}
PRODUCER = BatchProducer(*SEQUENCE.values())


def _build(builder_class: type, codec: Codec) -> bytes:
    builder = builder_class(magic=2, compression_type=int(codec), is_transactional=True, batch_size=1 << 20, **SEQUENCE)
    for offset, (timestamp, key, value, headers) in enumerate(ROWS):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    return bytes(builder.build())


@pytest.mark.parametrize(("builder", "reader", "codec"), PEERS_AND_CODECS)
def test_batches_of_python_clients_are_decoded(builder: type, reader: type, codec: Codec) -> None:
    batch = _build(builder, codec)
    assert check_crc(batch, 0, len(batch))
    header, _ = validate_produced(memoryview(bytearray(batch)), ProduceRules("t"), 10_000)
    assert (header.codec, header.is_transactional) == (codec, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == tuple(SEQUENCE.values())
    assert rows_of(decode_batch(batch)) == ROWS


@pytest.mark.parametrize(("builder", "reader"), PEERS)
def test_encoded_batches_equal_the_batches_of_python_clients(builder: type, reader: type) -> None:
    theirs = _build(builder, Codec.NONE)
    # Both leave the leader epoch at what a producer does not know.
    ours = encode_batch(ROWS, attributes=0x10, leader_epoch=struct.unpack_from(">i", theirs, 12)[0], producer=PRODUCER)
    assert ours == theirs


@pytest.mark.parametrize(("builder", "reader", "codec"), PEERS_AND_CODECS)
def test_python_clients_decode_our_batches(builder: type, reader: type, codec: Codec) -> None:
    batch = reader(bytes(encode_batch(ROWS, base_offset=70, codec=codec, producer=PRODUCER)))
    assert batch.validate_crc()
    found = [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in batch]
    assert found == [(70 + index, *row) for index, row in enumerate(ROWS)]


def test_kafka_python_reads_our_markers() -> None:
    for commit in (True, False):
        batch = KafkaPythonBatch(
            bytes(
                encode_end_transaction_marker(
                    commit=commit, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp_ms=4
                )
            )
        )
        assert batch.is_control_batch
        assert batch.is_transactional
        (marker,) = batch
        assert (marker.commit, marker.abort) == (commit, not commit)
        assert marker.value == b"\0\0\0\0\0\3"


def test_keys_go_where_kafka_python_sends_them() -> None:
    from kafka.partitioner.default import murmur2 as theirs

    for number in range(300):
        key = bytes(range(number % 97)) + b"%d" % number
        assert murmur2(key) == theirs(key) & 0xFFFFFFFF
        assert partition_for_key(key, 17) == (theirs(key) & 0x7FFFFFFF) % 17


class MockBroker:
    """librdkafka's mock broker, used over its socket; it stores and returns batches without decoding them."""

    def __init__(self) -> None:
        self.owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
        broker = next(iter(self.owner.list_topics(timeout=10).brokers.values()))
        self.address = f"{broker.host}:{broker.port}"
        self._socket = socket.create_connection((broker.host, broker.port), timeout=10)

    def close(self) -> None:
        self._socket.close()

    def _ask(self, api_key: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhih", api_key, version, 1, -1) + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        size = struct.unpack(">i", self._read(4))[0]
        return self._read(size)[4:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            assert piece, "the mock broker hung up"
            data += piece
        return data

    def create(self, topic: str) -> None:
        self.owner.list_topics(topic, timeout=10)

    def produce(self, topic: str, batch: bytes) -> None:
        name = struct.pack(">h", len(topic)) + topic.encode()
        body = struct.pack(">hhii", -1, -1, 5_000, 1) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
        answer = self._ask(0, 7, body)
        assert struct.unpack_from(">h", answer, 4 + len(name) + 8)[0] == 0

    def fetch(self, topic: str) -> bytes:
        name = struct.pack(">h", len(topic)) + topic.encode()
        body = struct.pack(">iiiibi", -1, 500, 1, 1 << 24, 0, 1) + name + struct.pack(">iiqi", 1, 0, 0, 1 << 24)
        answer = self._ask(1, 4, body)
        position = 8 + len(name) + 4 + 4
        error, _, _, aborted = struct.unpack_from(">hqqi", answer, position)
        assert (error, max(aborted, 0)) == (0, 0)
        return answer[position + 26 :]


@pytest.fixture(scope="module")
def mock_broker() -> Iterator[MockBroker]:
    broker = MockBroker()
    yield broker
    broker.close()


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_our_batches(mock_broker: MockBroker, codec: Codec) -> None:
    topic = f"ours-{codec.name}-{uuid.uuid4().hex[:6]}"
    mock_broker.create(topic)
    mock_broker.produce(topic, bytes(encode_batch(ROWS, codec=codec)))
    consumer = Consumer({"bootstrap.servers": mock_broker.address, "group.id": "g", "check.crcs": True, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        deadline = time.monotonic() + 10
        while len(found) < len(ROWS) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error() is None
                found.append((message.timestamp()[1], message.key(), message.value(), message.headers() or []))
    finally:
        consumer.close()
    assert found == ROWS


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafkas_batches_are_read(mock_broker: MockBroker, codec: Codec) -> None:
    topic = f"theirs-{codec.name}-{uuid.uuid4().hex[:6]}"
    producer = Producer(
        {
            "bootstrap.servers": mock_broker.address,
            "compression.type": codec.name.lower(),
            "enable.idempotence": True,
            "linger.ms": 50,
            "log_level": 0,
        }
    )
    rows = [(number + 1, b"key %d" % number, b"the same value " * 100, [("h", b"x")]) for number in range(50)]
    for timestamp, key, value, headers in rows:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=headers)
    assert producer.flush(10) == 0
    data = mock_broker.fetch(topic)
    batches = list(iter_batches(data))
    found = []
    for position, header in batches:
        assert check_crc(data, position, header.size)
        found += rows_of(decode_batch(data, position))
        batch = bytearray(data[position : position + header.size])
        batch[:8] = bytes(8)
        validate_produced(memoryview(batch), ProduceRules("t", compression_type="gzip", compacted=True), 10_000)
    assert batches[0][1].codec is codec
    assert found == rows
