"""Clients that violate the protocol, against a broker in its own process, beside a client that does not.

The tests assert that the broker answers the good client, no event loop iteration takes long, memory is bounded, and the
log has few lines and no traceback. The latency of the good client is printed, not asserted, because it shares the
processor with the hostile clients and the rest of the machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.records import Codec
from ottla.records.codecs import compress
from tests.chaos.machine import slowness
from tests.chaos.support import WatchedProcess, create_topic
from tests.clients.wire import (
    API_VERSIONS,
    FETCH,
    PRODUCE,
    Connection,
    batch,
    produce,
    produce_body,
    record,
    request,
    string,
)
from tests.fuzz.mutation import Requests, served
from tests.fuzz.recorded import corpus
from tests.ottla_process import OttlaProcess

SECONDS = float(os.environ.get("OTTLA_FUZZ_MINUTES", "0")) * 60
TOPIC = "t"
LINES_A_SECOND = 10
MIB = 1 << 20
ANSWER_WITHIN_S = 20.0
CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 2, 10, 32, 76, 87
LONGEST_TURN_MS = 400


@pytest.fixture
def process(tmp_path: Path) -> Iterator[WatchedProcess]:
    limits = {
        "queued.max.request.bytes": 64 * MIB,
        "socket.request.max.bytes": 64 * MIB,
        "message.max.bytes": 4 * MIB,
        # The first FindCoordinator creates an internal topic, with a log line for each partition.
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 1,
    }
    with WatchedProcess(tmp_path, limits) as process:
        create_topic(process, TOPIC)
        yield process
    process.assert_no_traceback()


class Witness(threading.Thread):
    """A good client: it sends one record at a time, and all are acknowledged. `latencies` are in milliseconds."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.latencies: list[float] = []
        self.problem: BaseException | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with Connection(self.bootstrap, ANSWER_WITHIN_S) as connection:
                while not self._stopping.is_set():
                    begun = time.perf_counter()
                    assert produce(connection, TOPIC, batch([b"witness"])).error == 0
                    self.latencies.append((time.perf_counter() - begun) * 1000)
                    time.sleep(0.002)
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self.problem = error

    def stop(self) -> None:
        self._stopping.set()
        self.join(ANSWER_WITHIN_S + 5)
        assert not self.is_alive()
        if self.problem is not None:
            raise self.problem

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


@contextlib.contextmanager
def witnessed(process: WatchedProcess, what: str) -> Iterator[None]:
    """Run a good client before and during the body; check memory, log lines and event loop iterations."""
    quiet = Witness(process.bootstrap)
    quiet.start()
    time.sleep(0.3)
    quiet.stop()
    before, logged, begun, looks = resident(process), process.log_size(), time.monotonic(), len(process.held())
    witness = Witness(process.bootstrap)
    witness.start()
    yield
    seen, deadline = len(witness.latencies), time.monotonic() + ANSWER_WITHIN_S
    while len(witness.latencies) < seen + 5 and witness.is_alive():
        assert time.monotonic() < deadline, "the good client makes no progress"
        time.sleep(0.01)
    witness.stop()
    lines = process.log_tail(since=logged, limit=10 * MIB).count("\n")
    seconds = time.monotonic() - begun
    process.wait_for_reports()
    held = process.held()[looks:]
    turn_ms, late_ms = max(each["turn"] for each in held) * 1000, max(each["late"] for each in held) * 1000
    # CPU time, which depends little on other load of the machine.
    assert turn_ms < LONGEST_TURN_MS * slowness(), f"one event loop iteration took {turn_ms:.0f} ms"
    assert lines <= (seconds + 2) * LINES_A_SECOND, f"{lines} log lines in {seconds:.1f} s"
    print(
        f"\n{what}: the other client's p99 {quiet.percentile(0.99):.1f} ms before, {witness.percentile(0.99):.1f}"
        f" during; the longest turn {turn_ms:.0f} ms of the processor, late by {late_ms:.0f} at most;"
        f" resident {before // MIB} MiB before, {resident(process) // MIB} after, {peak(process) // MIB} at most;"
        f" {lines} log lines"
    )


def resident(process: OttlaProcess) -> int:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def peak(process: OttlaProcess) -> int:
    """The peak of the resident memory."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def descriptors(process: OttlaProcess) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def raw(process: OttlaProcess) -> socket.socket:
    host, port = process.bootstrap.rsplit(":", 1)
    return socket.create_connection((host, int(port)), ANSWER_WITHIN_S)


def sent(process: OttlaProcess, data: bytes) -> None:
    """Send `data` on a new connection, and close it after the first response or when the broker closes it."""
    with contextlib.suppress(OSError), raw(process) as sock:
        sock.settimeout(0.05)
        sock.sendall(data)
        sock.recv(65536)


def test_corrupted_frames_of_every_api(process: WatchedProcess) -> None:
    end = time.monotonic() + SECONDS
    seed = int(os.environ.get("OTTLA_FUZZ_SEED", "1000"))
    limit = resident(process) + 100 * MIB
    with witnessed(process, "corrupted frames"):
        while True:
            requests = Requests(seed)
            for key, version in served():
                frame = requests.corrupted(requests.frame(key, version))
                size = len(frame) if requests.chance.random() < 0.9 else requests.chance.randrange(-5, 1 << 31)
                sent(process, struct.pack(">i", size) + frame)
            for each in requests.chance.sample(corpus(), 100):
                frame = requests.corrupted(bytearray(each.frame))
                sent(process, struct.pack(">i", len(frame)) + frame)
            seed += 1
            assert resident(process) < limit
            if time.monotonic() >= end:
                break


def test_half_frames_slow_senders_and_clients_that_never_read(process: WatchedProcess) -> None:
    """Together these connections use no more memory than the limit on half-received frames."""
    before = resident(process)
    big = request(PRODUCE, 3, 1, produce_body(TOPIC, 0, batch([bytes(1 * MIB)])))
    with contextlib.ExitStack() as stack, witnessed(process, "half frames, slow and deaf clients"):
        half = [stack.enter_context(raw(process)) for _ in range(200)]
        for sock in half:  # 180 MB in total; the limit is 64 MB
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.send(big[:900_000])
        slow = [stack.enter_context(raw(process)) for _ in range(50)]
        deaf = [stack.enter_context(raw(process)) for _ in range(20)]
        ask = request(FETCH, 4, 1, struct.pack(">iiiib", -1, 0, 0, 50 * MIB, 0) + struct.pack(">i", 1) + string(TOPIC)
                      + struct.pack(">iiqi", 1, 0, 0, 50 * MIB))  # fmt: skip
        for sock in deaf:
            sock.setblocking(False)
        for i in range(60):
            for sock in slow:
                sock.sendall(big[i : i + 1])
            for sock in deaf:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    sock.send(ask * 10)
            time.sleep(0.01)
        assert resident(process) - before < 110 * MIB
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while descriptors(process) > 60:
        assert time.monotonic() < deadline, "closed connections are released"
        time.sleep(0.05)


def test_clients_that_fetch_much_and_read_nothing(process: WatchedProcess) -> None:
    """The requested bytes stay in the files: each of 30 responses of 32 MB uses the memory of one piece."""
    topic = "much-to-read"
    create_topic(process, topic)
    big = request(PRODUCE, 3, 1, produce_body(topic, 0, batch([bytes(900_000)])))
    with raw(process) as sock:
        for _ in range(36):
            sock.sendall(big)
            assert sock.recv(65536)
    before = resident(process)
    ask = request(FETCH, 4, 1, struct.pack(">iiiib", -1, 0, 0, 50 * MIB, 0) + struct.pack(">i", 1) + string(topic)
                  + struct.pack(">iiqi", 1, 0, 0, 50 * MIB))  # fmt: skip
    with contextlib.ExitStack() as stack, witnessed(process, "clients that ask for much and read none of it"):
        deaf = [stack.enter_context(raw(process)) for _ in range(30)]
        for sock in deaf:
            sock.sendall(ask)
        (size,) = struct.unpack(">i", deaf[-1].recv(4, socket.MSG_WAITALL))
        assert size > 30 * MIB
        more = resident(process) - before
        print(f"{more / MIB:.0f} MiB for {len(deaf)} answers of {size / MIB:.0f} MiB")
        # 4 MiB for each connection, whatever the sockets hold; the answers are 960 MiB.
        assert more < len(deaf) * 4 * MIB + 100 * MIB


@pytest.fixture
def many_files() -> Iterator[int]:
    """How many descriptors this process may open during the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, 5500)
    assert hard >= most, "raise the hard limit of open files (ulimit -Hn)"
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    yield most
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_five_thousand_connections_and_a_storm(process: WatchedProcess) -> None:
    count = 5000
    before, files = resident(process), descriptors(process)
    ask = request(API_VERSIONS, 0, 1, b"")
    with witnessed(process, f"{count} connections"):
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(raw(process)) for _ in range(count)]
            for sock in sockets[::50]:
                sock.sendall(ask)
                assert sock.recv(4096)
            assert resident(process) - before < count * 20_000 + 50 * MIB
        for _ in range(1000):  # the burst: connect, send a request, disconnect at once
            with raw(process) as sock:
                sock.sendall(ask)
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while descriptors(process) > files + 20:
        assert time.monotonic() < deadline, f"{descriptors(process)} descriptors, {files} before"
        time.sleep(0.05)


def test_many_requests_in_flight_whose_responses_are_not_read(process: WatchedProcess) -> None:
    """Tens of thousands of requests on one connection with unread responses: reading stops, memory does not grow."""
    before, most = resident(process), 0
    ask = request(API_VERSIONS, 0, 1, b"") * 100
    with raw(process) as sock, witnessed(process, "requests without end"):
        sock.settimeout(1.5)  # a broker that still reads has read more by then
        total = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            while total < 100 * MIB and most < 100 * MIB:
                total += sock.send(ask)
                most = max(most, resident(process) - before)
        assert total < 100 * MIB, "the broker stopped reading"
        assert max(most, resident(process) - before) < 50 * MIB


def lies() -> Iterator[tuple[str, int, bytes]]:
    """Batches with false headers, and the expected error code of each."""
    good, hour_ms = batch([b"a"]), 3_600_000
    yield "more records than there are", INVALID_RECORD, batch([b"a"], count=1000)
    yield "two thousand million records", INVALID_RECORD, batch([b"a"], count=2**31 - 1)
    yield "no records", INVALID_RECORD, batch([b"a"], count=0)
    yield "a negative count", INVALID_RECORD, batch([b"a"], count=-1)
    yield "a delta beyond its records", INVALID_RECORD, batch([b"a", b"b"], last_offset_delta=5)
    yield "a negative delta", INVALID_RECORD, batch([b"a"], last_offset_delta=-1)
    yield "a record longer than the batch", INVALID_RECORD, batch([b"a"], records=b"\xfe\xff\xff\xff\x0f" + bytes(20))
    yield "more bytes than its records", INVALID_RECORD, batch([b"a"], records=record(0, b"a") + b"more")
    yield "an offset far away", INVALID_RECORD, struct.pack(">q", 2**62) + good[8:]
    yield "a negative offset", INVALID_RECORD, struct.pack(">q", -5) + good[8:]
    yield "offsets that repeat", INVALID_RECORD, batch([b"a", b"b", b"c"], records=record(0, bytes(64)) * 3)
    yield "offsets with a gap", INVALID_RECORD, batch([b"a", b"b"], records=record(0, b"a") + record(7, b"b"))
    yield "a timestamp before time", INVALID_TIMESTAMP, batch([b"a"], timestamp=-(2**63))
    yield "a timestamp at the end of time", INVALID_TIMESTAMP, batch([b"a"], timestamp=2**63 - 1)
    ahead_ms = int(time.time() * 1000) + 2 * hour_ms
    yield "a timestamp two hours ahead", INVALID_TIMESTAMP, batch([b"a"], timestamp=ahead_ms)
    yield "a length beyond the request", INVALID_RECORD, good[:8] + struct.pack(">i", 2**31 - 1) + good[12:]
    yield "a negative length", CORRUPT_MESSAGE, good[:8] + struct.pack(">i", -1) + good[12:]
    yield "another checksum", CORRUPT_MESSAGE, batch([b"a"], crc_error=1)
    yield "another magic", CORRUPT_MESSAGE, batch([b"a"], magic=3)
    yield "another codec", UNSUPPORTED_COMPRESSION_TYPE, batch([b"a"], attributes=7)
    bomb = zlib.compressobj(1, zlib.DEFLATED, 31)
    packed = bomb.compress(bytes(300 * MIB)) + bomb.flush()
    # Stored without decompression, because nothing requires it.
    yield "300 MiB of zeros in gzip", 0, batch([b"a"], attributes=1, records=packed)


def test_batches_with_false_headers_and_decompression_bombs(process: WatchedProcess) -> None:
    limit = resident(process) + 60 * MIB
    with witnessed(process, "batches that lie"):
        for name, error, data in lies():
            with Connection(process.bootstrap, ANSWER_WITHIN_S) as connection:
                assert produce(connection, TOPIC, data).error == error, name
            assert peak(process) < limit, name


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_decompression_bombs_in_batches_that_must_be_decompressed(process: WatchedProcess, codec: Codec) -> None:
    create_topic(process, "compacted", cleanup_policy="compact")
    inside = b"".join(record(i, bytes(MIB), key=b"k") for i in range(100))
    bomb = bytes(compress(codec, inside))[: 3 * MIB]  # of snappy only that much would come in
    limit = resident(process) + 100 * MIB
    with (
        witnessed(process, f"bombs in {codec.name.lower()}"),
        Connection(process.bootstrap, ANSWER_WITHIN_S) as connection,
    ):
        for _ in range(3):
            data = batch([b""] * 100, attributes=int(codec), records=bomb)
            answer = connection.ask(PRODUCE, 7, produce_body("compacted", 0, data))
            (error,) = struct.unpack_from(">h", answer, 4 + 2 + len("compacted") + 4 + 4)
            assert error in {CORRUPT_MESSAGE, MESSAGE_TOO_LARGE}
    assert peak(process) < limit


def test_random_bytes_make_few_log_lines(process: WatchedProcess) -> None:
    chance = random.Random(5)
    with witnessed(process, "random bytes"):
        for _ in range(400):
            sent(process, chance.randbytes(chance.randrange(4, 200)))
