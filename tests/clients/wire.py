"""Kafka's wire format by hand, to send invalid requests and to read batches as the broker stores them.

It does not use Ottla's protocol code, because it tests that code.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

import crc32c

# The beginning of today, in UTC: records of a fixed day would be deleted by retention a week later.
FIRST_MS = int(time.time()) // 86_400 * 86_400_000

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, INIT_PRODUCER_ID, OFFSET_COMMIT = 0, 1, 2, 3, 18, 22, 8
COORDINATOR_LOAD_IN_PROGRESS = 14
# Errors of a partition that is in the metadata but has no leader yet.
STARTING = (3, 5, 6)
CODEC_NAMES = ["none", "gzip", "snappy", "lz4", "zstd"]
TIMEOUT_S = 10.0


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def request(api_key: int, version: int, correlation_id: int, body: bytes, client_id: str | None = "wire") -> bytes:
    """Return a complete frame with request header v1."""
    payload = struct.pack(">hhi", api_key, version, correlation_id) + string(client_id) + body
    return struct.pack(">i", len(payload)) + payload


class Connection:
    """A blocking connection with a deadline on everything."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes. Raises ConnectionClosed if the broker has closed the connection."""
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise ConnectionClosed from error

    def receive(self) -> bytes:
        """Return the next frame's payload. It begins with the correlation id."""
        (size,) = struct.unpack(">i", self._exactly(4))
        assert 0 < size < 100_000_000, f"a response of {size} bytes"
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.socket.recv(count - len(parts))
            except ConnectionResetError as error:
                raise ConnectionClosed from error
            if not part:
                raise ConnectionClosed
            parts += part
        return bytes(parts)

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send one request and return the body of its response (response header v0)."""
        self._correlation_id += 1
        self.send(request(api_key, version, self._correlation_id, body))
        answer = self.receive()
        assert answer[:4] == struct.pack(">i", self._correlation_id), "an answer to another request"
        return answer[4:]

    def finish(self) -> None:
        """Close the sending direction of the connection."""
        with contextlib.suppress(OSError):  # the broker closed first
            self.socket.shutdown(socket.SHUT_WR)

    def is_closed(self, within_s: float = TIMEOUT_S) -> bool:
        """Whether the broker closes the connection within `within_s` seconds without a response."""
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def varint(value: int) -> bytes:
    """Encode a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record(delta: int, value: bytes, key: bytes | None = None) -> bytes:
    body = b"\x00" + varint(0) + varint(delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    values: Sequence[bytes],
    *,
    magic: int = 2,
    attributes: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp: int = FIRST_MS,
    crc_error: int = 0,
    count: int | None = None,
    last_offset_delta: int | None = None,
    records: bytes | None = None,
) -> bytes:
    """Return a record batch v2. It is valid unless an argument says otherwise."""
    if records is None:
        records = b"".join(record(i, v) for i, v in enumerate(values))
    n = len(values) if count is None else count
    last = n - 1 if last_offset_delta is None else last_offset_delta
    checked = (
        struct.pack(">hiqqqhii", attributes, last, timestamp, timestamp, producer_id, epoch, sequence, n) + records
    )
    crc = crc32c.crc32c(checked) ^ crc_error
    after_length = struct.pack(">ibI", -1, magic, crc) + checked
    return struct.pack(">qi", 0, len(after_length)) + after_length


class Produced(NamedTuple):
    error: int
    base_offset: int


def produce_body(topic: str, partition: int, records: bytes, acks: int = -1) -> bytes:
    """Return a ProduceRequest v3 with one partition."""
    head = string(None) + struct.pack(">hi", acks, 10_000) + struct.pack(">i", 1) + string(topic)
    return head + struct.pack(">iii", 1, partition, len(records)) + records


def produce(connection: Connection, topic: str, records: bytes, partition: int = 0, acks: int = -1) -> Produced:
    answer = connection.ask(PRODUCE, 3, produce_body(topic, partition, records, acks))
    position = 4 + 2 + len(topic.encode()) + 4
    index, error, base = struct.unpack_from(">ihq", answer, position)
    assert index == partition
    return Produced(error, base)


def fetch(
    connection: Connection, topic: str, partition: int, offset: int, max_bytes: int = 50_000_000, wait_ms: int = 100
) -> tuple[int, int, bytes]:
    """Return (error, high watermark, record batches) of a Fetch v4."""
    body = struct.pack(">iiiib", -1, wait_ms, 1, max_bytes, 0) + struct.pack(">i", 1) + string(topic)
    body += struct.pack(">iiqi", 1, partition, offset, max_bytes)
    answer = connection.ask(FETCH, 4, body)
    position = 4 + 4 + 2 + len(topic.encode()) + 4
    _, error, high_watermark, _ = struct.unpack_from(">ihqq", answer, position)
    position += 22
    (aborted,) = struct.unpack_from(">i", answer, position)
    position += 4 + 16 * max(0, aborted)
    (size,) = struct.unpack_from(">i", answer, position)
    return error, high_watermark, answer[position + 4 : position + 4 + max(0, size)]


def serves(bootstrap: str, topic: str, partitions: int) -> bool:
    """Whether every partition responds to a fetch. Stock Kafka's metadata names leaders before they serve requests."""
    with Connection(bootstrap) as connection:
        return all(fetch(connection, topic, p, 0, wait_ms=0)[0] == 0 for p in range(partitions))


def init_producer_id(connection: Connection) -> tuple[int, int]:
    """Return a new producer id and epoch (InitProducerId v0). Retries while the coordinator is loading."""
    for _ in range(100):
        answer = connection.ask(INIT_PRODUCER_ID, 0, string(None) + struct.pack(">i", 60_000))
        _, error, producer_id, epoch = struct.unpack(">ihqh", answer)
        if error != COORDINATOR_LOAD_IN_PROGRESS:
            assert error == 0
            return producer_id, epoch
        time.sleep(0.05)
    raise AssertionError("no producer id in 5 s")


class StoredBatch(NamedTuple):
    base_offset: int
    codec: str
    count: int


def stored_batches(bootstrap: str, topic: str, partition: int = 0) -> list[StoredBatch]:
    """Return the batches of a partition up to the high watermark, as a fetch returns them. Checks the CRCs."""
    found: list[StoredBatch] = []
    offset, end = 0, 1
    with Connection(bootstrap) as connection:
        for _ in range(1000):
            if offset >= end:
                return found
            error, end, data = fetch(connection, topic, partition, offset)
            if error in STARTING:
                time.sleep(0.01)
                end = offset + 1
                continue
            assert error == 0
            position = 0
            while position + 61 <= len(data):
                base, length = struct.unpack_from(">qi", data, position)
                if position + 12 + length > len(data):
                    break
                magic, crc, attributes, last = struct.unpack_from(">bIhi", data, position + 16)
                assert magic == 2
                assert crc32c.crc32c(data[position + 21 : position + 12 + length]) == crc
                (count,) = struct.unpack_from(">i", data, position + 57)
                found.append(StoredBatch(base, CODEC_NAMES[attributes & 7], count))
                offset = base + last + 1
                position += 12 + length
    raise AssertionError(f"no end of {topic}-{partition} in 1000 fetches")


def stored_codecs(bootstrap: str, topic: str, partition: int = 0) -> set[str]:
    return {b.codec for b in stored_batches(bootstrap, topic, partition)}
