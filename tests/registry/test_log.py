"""The topic of schemas with several nodes in one process: fencing, catching up, groups of changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import AsyncConsumer
from ottla.clients.consumer.record import Record as ConsumerRecord
from ottla.registry.errors import RegistryError, subject_not_found
from ottla.registry.log import SchemaLog
from ottla.registry.records import NOOP, Record, SchemaKey, SchemaValue, config_record, encode_key, encode_schema
from ottla.registry.state import State
from ottla.registry.topic import LogSettings, TopicSettings
from ottla.registry.writer import Build, NotPrimary
from ottla.schemas.model import Schema, SchemaType
from ottla.testing import Ottla
from tests.ottla_process import ForkedOttla, OttlaProcess

WITHIN_S = 30
TOPIC = "_schemas"


def registration(subject: str, text: str = "") -> Build[State, int]:
    """Register a schema that no other change registers."""

    def build(state: State) -> tuple[list[Record], int]:
        schema_id = state.highest_id(subject) + 1
        number = len(state.versions(subject)) + 1
        schema = Schema(SchemaType.AVRO, f'"{subject}{number}{text}"')
        value = encode_schema(subject, number, SchemaValue(schema_id, schema))
        return [Record(encode_key(SchemaKey(subject, number)), value)], schema_id

    return build


class GatedLog(SchemaLog):
    """A node whose reader can be held."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__(settings, State())
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self) -> asyncio.Task[None]:
        reader = await super().start()
        consumer: Any = self._consumer
        poll = consumer.poll

        async def held(*arguments: Any, **options: Any) -> list[ConsumerRecord[bytes, bytes]]:
            records = await poll(*arguments, **options)
            await self.gate.wait()
            return records  # type: ignore[no-any-return]

        consumer.poll = held
        return reader


@contextlib.asynccontextmanager
async def node(ottla: Ottla | OttlaProcess, timeout_s: float = WITHIN_S) -> AsyncIterator[GatedLog]:
    clients = {"bootstrap.servers": ottla.bootstrap}
    log = GatedLog(LogSettings(clients, TopicSettings(TOPIC), "registry", timeout_s=timeout_s))
    async with asyncio.timeout(WITHIN_S):
        await log.start()
        await log.loaded.wait()
        try:
            yield log
        finally:
            log.gate.set()
            await log.close()


async def leading(log: SchemaLog) -> None:
    await log.lead()
    while not log.is_primary:
        await asyncio.sleep(0.01)


def test_new_primary_fences_the_old_one(ottla: Ottla) -> None:
    async def scenario() -> None:
        async with node(ottla) as old, node(ottla) as new:
            fenced = asyncio.Event()
            old.term_ended = fenced.set
            await leading(old)
            assert await old.change(registration("a")) == 1
            await leading(new)
            with pytest.raises((RegistryError, NotPrimary)):
                await old.change(registration("b"))
            await fenced.wait()
            assert await new.change(registration("c")) == 2
            with pytest.raises(NotPrimary):
                await old.change(registration("d"))
            assert set(new.state.subjects()) == {"a", "c"}

    asyncio.run(scenario())


def test_new_primary_writes_only_after_it_has_read_everything(ottla: Ottla) -> None:
    async def scenario() -> None:
        async with node(ottla) as old, node(ottla) as new:
            await leading(old)
            new.gate.clear()
            assert await old.change(registration("a")) == 1
            await new.lead()
            change = asyncio.create_task(new.change(registration("b")))
            await asyncio.sleep(0.5)  # The new primary could write by now.
            assert not change.done()
            new.gate.set()
            assert await change == 2

    asyncio.run(scenario())


def test_concurrent_changes_see_each_other_and_no_reader_sees_them_before_their_commit(ottla: Ottla) -> None:
    async def scenario() -> None:
        async with node(ottla) as log:
            await leading(log)
            log.gate.clear()
            changes = [asyncio.create_task(log.change(registration("a", str(i)))) for i in range(20)]
            await asyncio.sleep(0.5)  # The transaction is committed by now.
            assert not log.state.has_subject("a")
            log.gate.set()
            assert await asyncio.gather(*changes) == list(range(1, 21))
            assert [version.version for version in log.state.versions("a")] == list(range(1, 21))

    asyncio.run(scenario())


def test_change_of_settings_ends_its_group(ottla: Ottla) -> None:
    async def scenario() -> None:
        async with node(ottla) as log:
            await leading(log)
            seen: list[object] = []

            def look(state: State) -> tuple[list[Record], None]:
                seen.append(state.settings.stored_config("a"))
                return [], None

            settings = log.change(lambda _: ([config_record("a", {"compatibilityLevel": "FULL"})], None))
            await asyncio.gather(log.change(registration("a")), settings, log.change(look))
            assert seen == [{"compatibilityLevel": "FULL"}]

    asyncio.run(scenario())


def test_failed_change_does_not_disturb_the_others_of_its_group(ottla: Ottla) -> None:
    def refused(_state: State) -> tuple[list[Record], None]:
        raise subject_not_found("x")

    def defect(_state: State) -> tuple[list[Record], None]:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with node(ottla) as log:
            await leading(log)
            large = registration("c", "x" * 2_000_000)
            builds = [registration("a"), refused, defect, large, registration("b")]
            results = await asyncio.gather(*map(log.change, builds), return_exceptions=True)
            codes = [each.error_code if isinstance(each, RegistryError) else each for each in results]
            assert codes[:2] == [1, 40401]
            assert isinstance(codes[2], ZeroDivisionError)
            assert codes[3:] == [42209, 2]

    asyncio.run(scenario())


def test_follower_answers_what_needs_no_record(ottla: Ottla) -> None:
    async def scenario() -> None:
        async with node(ottla) as log:
            assert await log.change(lambda state: ([], state.has_subject("a"))) is False
            with pytest.raises(NotPrimary):
                await log.change(registration("a"))

    asyncio.run(scenario())


def test_last_record_of_the_idle_topic_is_an_ordinary_one(ottla: Ottla) -> None:
    async def scenario() -> None:
        async with node(ottla) as log, AsyncConsumer(bootstrap_servers=ottla.bootstrap) as consumer:
            await leading(log)
            await log.change(registration("a"))
            consumer.assign([(TOPIC, 0)])
            while True:
                (end,) = (await consumer.end_offsets([(TOPIC, 0)])).values()
                last = [record for record in ottla.records(TOPIC) if record.offset == end - 1]
                if last and last[0].key == NOOP.key:
                    return
                await asyncio.sleep(0.05)

    asyncio.run(scenario())


def test_write_to_a_broker_that_is_down_ends_in_time(tmp_path: Path) -> None:
    async def scenario(ottla: OttlaProcess) -> None:
        async with node(ottla, timeout_s=1) as log:
            elections: list[asyncio.Task[None]] = []
            log.term_ended = lambda: elections.append(asyncio.create_task(log.lead()))
            await leading(log)
            await asyncio.to_thread(ottla.stop)
            try:
                with pytest.raises(RegistryError) as error:
                    await log.change(registration("a"))
                assert error.value.error_code in (50001, 50002)
            finally:
                await asyncio.to_thread(ottla.start)
            while True:  # The outcome is unknown; later changes succeed, whatever it was.
                await asyncio.sleep(0.05)
                with contextlib.suppress(RegistryError, NotPrimary):
                    assert await log.change(registration("b")) in (1, 2)
                    return

    with ForkedOttla(tmp_path) as process:
        asyncio.run(scenario(process))
