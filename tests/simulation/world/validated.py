"""A topic with schema validation on a cluster of real nodes, and a schema registry that is slow, down or late.

Writers send records of which some have no registered schema id. Whatever fails:

- No record without a registered schema id is committed to the topic.
- When a record without one is acknowledged, it is committed in the dead letter topic, and it stays there.
- The dead letter topic has no other records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ottla.broker import late
from ottla.broker.contracts.contracts import Contracts
from ottla.broker.contracts.schemas import Schemas
from ottla.broker.contracts.source import Registered
from ottla.clients import AsyncProducer
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from tests.simulation.world.cluster import NodeRun
from tests.simulation.world.cluster_checks import ClusterChecks
from tests.simulation.world.programs import IN, PARTITIONS, Program, Work

BAD = "bad"
TIMEOUT_MS = 1_500
TOPICS: dict[str, dict[str, object]] = {
    BAD: {},
    IN: {
        "confluent.value.schema.validation": "true",
        "ottla.schema.validation.mode": "dlq",
        "ottla.schema.validation.dlq.topic": BAD,
    },
}
_OFTEN = range(1, 9)
"""Ids that many records have; the others are new."""


def is_registered(schema_id: int) -> bool:
    """Whether the registry knows an id."""
    return schema_id % 4 != 0


def is_valid(value: bytes | None) -> bool:
    """Whether the topic accepts a value."""
    return value is None or (value[:1] == b"\0" and is_registered(int.from_bytes(value[1:5], "big")))


class SimulatedRegistry:
    """The registry for all nodes. A node gets no answer after its timeout, as with the real client."""

    def __init__(self, work: Work) -> None:
        self._random = work.random
        self.delays_ms = (1, 20)
        self.is_down = False
        self.asked = self.late = self.refused = 0

    def change(self) -> str:
        """Become fast, slow, late or unreachable: a fault."""
        kinds = (((1, 20), False), ((200, 1_400), False), ((500, 2_500), False), ((1, 20), True))
        self.delays_ms, self.is_down = self._random.choice(kinds)
        return f"the registry answers after {self.delays_ms} ms" + (", with errors" if self.is_down else "")

    def heal(self) -> None:
        """Answer soon from now on."""
        self.delays_ms, self.is_down = (1, 20), False

    def fetch(self, schema_id: int, *, with_schema: bool) -> Completion[Registered | None]:
        """See `Source`."""
        assert not with_schema
        self.asked += 1
        answer: Completion[Registered | None] = Completion()
        delay_ms = self._random.randint(*self.delays_ms)
        loop = asyncio.get_running_loop()
        if self.is_down or delay_ms > TIMEOUT_MS:
            self.late += not self.is_down
            self.refused += self.is_down
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the registry did not answer")
            loop.call_later(min(delay_ms, TIMEOUT_MS) / 1000, answer.fail, error)
        else:
            found = Registered(frozenset({f"{IN}-value"})) if is_registered(schema_id) else None
            loop.call_later(delay_ms / 1000, answer.complete, found)
        return answer

    def close(self) -> None:
        """See `Source`: the process ends, and its timers with it."""


class Validated:
    """The registry, and the checks."""

    def __init__(self, work: Work, checks: ClusterChecks) -> None:
        self.registry = SimulatedRegistry(work)
        self.work, self._checks = work, checks
        self.dead_letters: set[bytes] = set()
        self.diverted: set[bytes] = set()
        """The records without a registered id that were acknowledged."""
        self.newest_id = _OFTEN.stop
        self._seen: dict[TopicPartition, int] = {}
        work.cluster.on_event.append(self._after_event)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let each node ask the simulated registry."""

        def create(node: Any, _config: object) -> Contracts:
            return Contracts(node, Schemas(self.registry, node.clock), TIMEOUT_MS)

        with mock.patch.object(late, "create_contracts", create):
            yield

    def _after_event(self, _run: NodeRun) -> None:
        for name, known in self._checks.partitions.items():
            if name.topic not in TOPICS or self._checks.losses:
                continue
            for at in range(self._seen.get(name, 0), len(known.records)):
                value = known.records[at][1]
                problem = f"{name} has {value!r} at {at}"
                assert is_valid(value) is (name.topic == IN), self.work.cluster.fail(problem)
                if name.topic == BAD:
                    assert value is not None, self.work.cluster.fail(problem)
                    self.dead_letters.add(value)
            self._seen[name] = len(known.records)

    def acknowledged(self, index: int, offset: int, value: bytes) -> None:
        """A producer was notified that its record is handled."""
        diverted = not is_valid(value)
        self._checks.acknowledged(IN, index, offset, None if diverted else value)
        if diverted and not self._checks.losses:
            problem = f"{value!r} is acknowledged, and its dead letter is not committed"
            assert value in self.dead_letters, self.work.cluster.fail(problem)
            self.diverted.add(value)

    def next_id(self) -> int:
        """Return the id for a record: one of a few, or a new one, which nodes have to ask for."""
        if self.work.random.random() < 0.7:
            return self.work.random.choice(_OFTEN)
        self.newest_id += 1
        return self.newest_id

    def check_end(self) -> None:
        """Each acknowledged record without a schema is a committed dead letter."""
        kept = {value for index in range(PARTITIONS) for value in self._checks.values(BAD, index)}
        lost = self.diverted - kept
        assert not lost, self.work.cluster.fail(f"lost dead letters: {sorted(lost)[:3]}")


class ValidatedWriter(Program):
    """Sends numbered records, some without a registered schema id, with an idempotent producer."""

    name = "writer"

    def __init__(self, work: Work, index: int, validated: Validated) -> None:
        super().__init__(work, index)
        self.validated = validated
        self.incarnation = 0

    async def main(self) -> None:
        work = self.work
        self.incarnation += 1
        linger_ms = work.random.choice((0, 5, 50))
        async with AsyncProducer(linger_ms=linger_ms, delivery_timeout_ms=15_000, **work.connection) as producer:
            count = 0
            while not (work.stopping or self.stopping):
                count += 1
                text = f"{self.index}.{self.incarnation}.{count}".encode()
                value = b"\0" + self.validated.next_id().to_bytes(4, "big") + text
                if work.random.random() < 0.1:
                    value = b"plain" + text
                partition = work.random.randrange(PARTITIONS)
                await producer.send(IN, value, partition=partition, callback=self._outcome(partition, value))
                await asyncio.sleep(work.random.choice(work.pauses_s))

    def _outcome(self, partition: int, value: bytes) -> Callable[[Any], None]:
        def done(delivery: Any) -> None:
            error = delivery.exception()
            if error is None:
                self.work.acknowledged += 1
                self.validated.acknowledged(partition, delivery.result().offset, value)
            else:
                self.work.note(error)

        return done
