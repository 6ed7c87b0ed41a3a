"""Valid and corrupted requests of every API and version to a whole broker: a response or an error, no traceback.

Short here; `make fuzz MINUTES=30` continues with new seeds. A failure names the seed and the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from ottla.broker.telemetry.receiver import ClientTelemetry
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.wire import DecodeError
from tests.fuzz.mutation import Requests, served
from tests.simulation.world.broker import NodeOnDisk
from tests.unit.broker.harness import Connection, HastyFiles, batch

MINUTES = float(os.environ.get("OTTLA_FUZZ_MINUTES", "0"))
SECONDS = MINUTES * 60
ROUNDS = 6
SLOWEST_S = 5.0
MOST_BYTES = 64 << 20
SEEDS = 4


async def _ask(node: NodeOnDisk, frame: bytearray) -> None:
    connection = Connection()
    answer = None
    with contextlib.suppress(KafkaError, DecodeError):
        answer = node.dispatch(connection, memoryview(frame))  # type: ignore[arg-type]
        if isinstance(answer, Completion) and not answer.done:
            await asyncio.sleep(0)
        if isinstance(answer, Completion) and answer.done:
            answer.result()
    connection.drop()


async def _fuzz(home: Path, seed: int) -> int:
    home.mkdir()
    node = NodeOnDisk(HastyFiles(), home, auto_create_topics_enable="false")
    await node.start()
    broker = node.node.broker
    # As with an endpoint of metrics, which would open a socket.
    telemetry = ClientTelemetry(broker.clock, 1 << 20, lambda: os.urandom(16))
    broker.caches = broker.caches._replace(telemetry=telemetry)
    count = 0
    try:
        await node.create("t", 2)
        await node.produce("t", batch(b"a", b"b"))
        requests = Requests(seed)
        for key, version in served():
            for round_ in range(ROUNDS):
                frame = requests.frame(key, version)
                if round_ % 3:
                    requests.corrupted(frame)
                copy = bytes(frame)
                begun = time.monotonic()
                try:
                    await _ask(node, frame)
                    await asyncio.sleep(0)
                    node.check()
                except Exception as error:
                    error.add_note(f"API {key} version {version}, seed {seed}: {copy.hex()}")
                    raise
                took = time.monotonic() - begun
                assert took < SLOWEST_S, f"API {key} version {version} took {took:.1f} s, seed {seed}: {copy.hex()}"
                count += 1
        await node.create("afterwards")
        assert await node.produce("afterwards", batch(b"goes on")) == (0, 0)
        node.check()
    finally:
        await node.abandon()
    return count


@pytest.mark.timeout(SECONDS + 120)
def test_any_request_is_answered_or_rejected(tmp_path: Path) -> None:
    end = time.monotonic() + SECONDS
    seed = int(os.environ.get("OTTLA_FUZZ_SEED", "0"))
    total = 0
    tracemalloc.start()
    try:
        while True:
            with asyncio.Runner() as runner:
                total += runner.run(_fuzz(tmp_path / f"data-{seed}", seed))
            seed += 1
            if time.monotonic() >= end and seed % SEEDS == 0:
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES, f"{peak >> 20} MiB at one time"
    print(f"{total} requests, at most {peak >> 20} MiB")
