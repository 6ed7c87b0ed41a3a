"""Programs with the real clients, each in a process of its own, and what they must see.

- `Writer` sends records with an idempotent producer. An acknowledged one is at its offset.
- `Transformer` copies partitions of `in` to `out` in transactions, together with the offsets of its group, and writes
  the number of the transaction to both partitions of `out`. Some transactions are aborted.
- `Reader` reads `out` with read_committed: each partition has the values of that partition of `in`, once and in order.
- `Member` is in a group, in which a partition has one owner per generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeAlias

from ottla.clients import AsyncConsumer, AsyncProducer
from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition
from tests.simulation.world.cluster import SimulatedCluster
from tests.simulation.world.cluster_checks import ClusterChecks
from tests.simulation.world.process_loop import ProcessLoop

IN, OUT = "in", "out"
GROUPS = "__consumer_offsets"
PARTITIONS = 2
TAG = b"#"
CONNECTION = {
    "request_timeout_ms": 3_000,
    "socket_connection_setup_timeout_ms": 1_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 400,
    "reconnect_backoff_max_ms": 400,
}
Main: TypeAlias = "Coroutine[Any, Any, None]"


class Work:
    """The state that all programs of a run share."""

    def __init__(self, cluster: SimulatedCluster, checks: ClusterChecks, group_protocol: str) -> None:
        self.cluster, self.checks = cluster, checks
        self.random = Random(cluster.random.random())
        self.group_protocol = group_protocol
        """The transformers' group protocol; the members use the other protocol."""
        self.pauses_s = cluster.random.choice(((0.002, 0.05, 0.1), (0.002, 0.1, 0.5), (0.1, 0.3)))
        """Between two records of a writer."""
        self.stopping = False
        self.connection: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, **CONNECTION}
        self.acknowledged = self.transactions = 0
        self.owners: dict[tuple[str, int, TopicPartition], str] = {}
        self.errors: dict[str, int] = {}
        self.outcomes: dict[str, int] = {}

    def note(self, error: Exception) -> None:
        """Count an error that a program recovers from."""
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1

    def note_outcome(self, action: str, error_code: int) -> None:
        """Count the outcome of an administrator's action."""
        outcome = f"{action} {error_code}"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def owned(self, group: str, generation: int, partition: TopicPartition, member: str) -> None:
        """A member was assigned a partition. A group that lost its records counts from the first generation again."""
        if self.checks.losses_of(GROUPS):
            return
        owner = self.owners.setdefault((group, generation, partition), member)
        assert owner == member, self.cluster.fail(f"{owner} and {member} own {partition} in generation {generation}")


class Program:
    """One program; a new run of it starts after a crash."""

    name = "program"

    def __init__(self, work: Work, index: int) -> None:
        self.work, self.host = work, f"{self.name}{index}"
        self.index = index
        self.runs = 0
        self.stopping = False
        self.process: ProcessLoop | None = None

    def start(self) -> None:
        """Start it, if it does not run."""
        if self.process is None:
            machines = self.work.cluster.machines
            self.runs += 1
            self.process = machines.start_process(self.host, rate=machines.random.uniform(0.97, 1.03))
            self.process.start(self._run(), self.host)

    def kill(self) -> None:
        """kill -9"""
        if self.process is not None:
            self.work.cluster.machines.kill(self.process)
            self.process = None

    async def _run(self) -> None:
        while not (self.work.stopping or self.stopping):
            try:
                await self.main()
            except ClientError as error:
                self.work.note(error)
                await asyncio.sleep(0.2)

    async def main(self) -> None:
        """The program, until it fails or the work ends."""
        raise NotImplementedError


class Writer(Program):
    """Sends numbered records."""

    name = "writer"

    def __init__(self, work: Work, index: int) -> None:
        super().__init__(work, index)
        self.incarnation = 0

    async def main(self) -> None:
        work = self.work
        self.incarnation += 1
        linger_ms = work.random.choice((0, 5, 50))
        async with AsyncProducer(linger_ms=linger_ms, delivery_timeout_ms=15_000, **work.connection) as producer:
            count = 0
            while not (work.stopping or self.stopping):
                count += 1
                value = f"{self.index}.{self.incarnation}.{count}".encode()
                partition = work.random.randrange(PARTITIONS)
                await producer.send(IN, value, partition=partition, callback=self._outcome(partition, value))
                await asyncio.sleep(work.random.choice(work.pauses_s))

    def _outcome(self, partition: int, value: bytes) -> Any:
        def done(delivery: Any) -> None:
            error = delivery.exception()
            if error is None:
                self.work.acknowledged += 1
                self.work.checks.acknowledged(IN, partition, delivery.result().offset, value)
            else:
                self.work.note(error)

        return done


class _Abort(Exception):
    """The program changes its mind."""


class Transformer(Program):
    """Copies `in` to `out`, exactly once."""

    name = "transformer"

    async def main(self) -> None:
        work = self.work
        consumer: AsyncConsumer[Any, Any] = AsyncConsumer(
            group_id="transformers",
            group_protocol=work.group_protocol,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            default_api_timeout_ms=5_000,
            **work.connection,
            **({"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500} if work.group_protocol == "classic" else {}),
        )
        async with (
            consumer,
            AsyncProducer(
                transactional_id=self.host,
                transaction_timeout_ms=6_000,
                delivery_timeout_ms=5_000,
                max_block_ms=10_000,
                linger_ms=0,
                **work.connection,
            ) as producer,
        ):
            await producer.init_transactions()
            consumer.subscribe([IN])
            while not work.stopping:
                records = await consumer.poll(0.5, max_records=20)
                if records:
                    await self._transaction(producer, consumer, records)

    async def _transaction(self, producer: Any, consumer: Any, records: list[Any]) -> None:
        self.work.transactions += 1
        tag = TAG + f"{self.host}.{self.work.transactions}".encode()
        random = self.work.random
        try:
            async with producer.transaction(consumer):
                for record in records:
                    await producer.send(OUT, record.value, partition=record.partition)
                for partition in range(PARTITIONS):
                    await producer.send(OUT, tag, partition=partition)
                if random.random() < 0.3:
                    await asyncio.sleep(random.random() * 2)
                if random.random() < 0.1:
                    raise _Abort
        except _Abort:
            pass


class Reader(Program):
    """Reads `out` with read_committed from its start, also after a crash."""

    name = "reader"

    def __init__(self, work: Work, index: int) -> None:
        super().__init__(work, index)
        self.values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.tags: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._next = [0] * PARTITIONS

    async def main(self) -> None:
        partitions = [TopicPartition(OUT, each) for each in range(PARTITIONS)]
        async with AsyncConsumer(
            isolation_level="read_committed", auto_offset_reset="earliest", **self.work.connection
        ) as consumer:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, self._next[partition.partition])
            while not self.work.stopping:
                for record in await consumer.poll(0.5):
                    self._read(record.partition, record.offset, record.value)

    def _read(self, partition: int, offset: int, value: bytes) -> None:
        fail = self.work.cluster.fail
        assert offset >= self._next[partition], fail(f"the reader goes back to {offset} in {OUT}-{partition}")
        self._next[partition] = offset + 1
        if value.startswith(TAG):
            self.tags[partition].append(value)
            return
        values = self.values[partition]
        values.append(value)
        if self.work.checks.losses:
            return
        wanted = self.work.checks.values(IN, partition)[len(values) - 1 : len(values)]
        assert wanted == [value], fail(f"{OUT}-{partition} has {value!r} as {len(values)}. value, {IN} has {wanted}")


class Member(Program):
    """A member of a group that only reads."""

    name = "member"

    async def main(self) -> None:
        work = self.work
        protocol = "consumer" if work.group_protocol == "classic" else "classic"
        timeouts = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500} if protocol == "classic" else {}
        consumer: AsyncConsumer[Any, Any] = AsyncConsumer(
            group_id="members",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            **work.connection,
            **timeouts,  # type: ignore[arg-type]
        )

        def assigned(partitions: list[TopicPartition]) -> None:
            group = consumer.group_metadata()
            for partition in partitions:
                work.owned("members", group.generation, partition, group.member_id)

        async with consumer:
            consumer.subscribe([IN], on_assigned=assigned)
            while not work.stopping:
                await consumer.poll(0.5)
