"""Commands of `broker_*.txt`: a complete broker on a simulated disk and clock, spoken to by the wire protocol.

topic NAME [partitions=N]                     create a topic
produce TOPIC-PARTITION VALUE... [producer=N epoch=N sequence=N]    append one batch, acks=all
read TOPIC-PARTITION                          print the offsets and values of a partition
fetch [session=NAME epoch=N] [TOPIC-PARTITION@OFFSET...] [forget=TOPIC-PARTITION,...]    send one Fetch
commit GROUP TOPIC-PARTITION=OFFSET           commit an offset without members
offsets GROUP                                 print the committed offsets
advance MS                                    let time pass
kill                                          kill and restart the broker; unsynced writes survive
power-cut                                     the same, but unsynced writes are lost
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.records import BatchProducer, decode_batch, encode_batch, iter_batches
from tests.simulation.world.broker import NodeOnDisk
from tests.simulation.world.clock import SimulatedClock
from tests.simulation.world.disk import SimulatedDisk

FETCH_VERSION = 12  # The last version that names topics; later versions use topic ids.


class BrokerScenario:
    """Runs the commands of one scenario."""

    def __init__(self, directory: Path) -> None:
        self._clock = SimulatedClock()
        self._disk = SimulatedDisk()
        self._directory = directory
        self._sessions: dict[str, int] = {}
        self._runner = asyncio.Runner()
        self._start()

    def close(self) -> None:
        self._wait(self._broker.abandon())
        self._runner.close()

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def _start(self) -> None:
        self._broker = self._runner.run(self._new_broker())

    async def _new_broker(self) -> NodeOnDisk:
        broker = NodeOnDisk(self._disk, self._directory, clock=self._clock, log_flush_interval_messages=1)
        await broker.start()
        return broker

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        match verb:
            case "topic":
                self._wait(self._broker.create(arguments[0], int(options.get("partitions", "1"))))
                return []
            case "produce":
                return [self._produce(arguments[0], arguments[1:], options)]
            case "read":
                topic, index = _partition(arguments[0])
                found, _ = self._wait(self._broker.read(topic, 0, index))
                return [f"{offset}: {value.decode()}" for offset, value in found.items()]
            case "fetch":
                return self._fetch(arguments, options)
            case "commit":
                ((name, offset),) = options.items()
                topic, index = _partition(name)
                self._wait(self._broker.committed(arguments[0]))
                error = self._wait(self._broker.commit(arguments[0], topic, int(offset), index))
                return [ErrorCode(error).name]
            case "offsets":
                committed = self._wait(self._broker.committed(arguments[0]))
                return [f"{topic}-{index}={offset}" for (topic, index), offset in sorted(committed.items())]
            case "advance":
                self._clock.advance_to(self._clock.now_ms + int(arguments[0]))
                return []
            case "kill" | "power-cut":
                after = self._disk.crash() if verb == "power-cut" else self._disk
                self._wait(self._broker.abandon())
                self._disk = after
                self._start()
                return []
        raise ValueError(f"unknown command {verb}")

    def _produce(self, partition: str, values: list[str], options: Mapping[str, str]) -> str:
        topic, index = _partition(partition)
        now_ms = self._clock.wall_ms()
        batch = encode_batch(
            [(now_ms, None, value.encode(), []) for value in values],
            producer=BatchProducer(
                int(options.get("producer", "-1")), int(options.get("epoch", "-1")), int(options.get("sequence", "-1"))
            ),
        )
        error, offset = self._wait(self._broker.produce(topic, batch, index))
        return f"{ErrorCode(error).name} offset={offset}" if not error else ErrorCode(error).name

    def _fetch(self, partitions: list[str], options: Mapping[str, str]) -> list[str]:
        wanted = [word.split("@") for word in partitions]
        topics = [
            FetchTopic(topic, partitions=[FetchPartition(index, fetch_offset=int(offset), partition_max_bytes=1 << 20)])
            for name, offset in wanted
            for topic, index in [_partition(name)]
        ]
        forgotten = [
            ForgottenTopic(topic, partitions=[index])
            for name in options.get("forget", "").split(",")
            if name
            for topic, index in [_partition(name)]
        ]
        request = FetchRequest(
            max_bytes=1 << 20,
            session_id=self._sessions.get(options.get("session", ""), 0),
            session_epoch=int(options.get("epoch", "-1")),
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        response = self._wait(self._broker.ask(request, FETCH_VERSION))
        lines = [f"{ErrorCode(response.error_code).name} session={self._session(response.session_id)}"]
        for topic in response.responses:
            for row in topic.partitions:
                values = [
                    record.value.decode()
                    for position, _ in iter_batches(row.records or b"")
                    for record in decode_batch(row.records, position)
                ]
                error = ErrorCode(row.error_code).name
                lines.append(
                    f"  {topic.topic}-{row.partition_index}: {error} high_watermark={row.high_watermark}"
                    + (f" values={','.join(values)}" if values else "")
                )
        return lines

    def _session(self, session_id: int) -> str:
        if session_id == 0:
            return "none"
        for name, known in self._sessions.items():
            if known == session_id:
                return name
        name = f"session-{len(self._sessions) + 1}"
        self._sessions[name] = session_id
        return name


def _partition(name: str) -> tuple[str, int]:
    topic, _, index = name.rpartition("-")
    return topic, int(index)
