"""Checks of large schemas run in a thread: the others are answered, and the verdicts do not change."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.registry import comparisons
from ottla.registry.comparisons import Comparisons
from ottla.schemas import compatibility
from ottla.schemas.model import SchemaType
from tests.unit.registry.support import Api

WAIT_S = 20.0
SUBJECT = "/subjects/orders/versions"


def large(kind: str = "string", properties: int = 100) -> dict[str, str]:
    """A JSON Schema of 4 KB; with another kind it is incompatible."""
    fields = {f"a_long_name_of_a_field_{number}": {"type": kind} for number in range(properties)}
    return {"schemaType": "JSON", "schema": json.dumps({"type": "object", "properties": fields})}


class HeldThread:
    """Lets the checks in the thread wait. `compared` counts the comparisons of two schemas that ran in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes, self.began = threading.Event(), threading.Event()
        self.compared = 0
        check, compare = comparisons.check, compatibility._compare

        def held(*arguments: Any) -> Any:
            self.began.set()
            assert self.passes.wait(WAIT_S), "the check was not allowed to go on"
            return check(*arguments)

        def counted(*arguments: Any) -> Any:
            self.compared += 1
            return compare(*arguments)

        monkeypatch.setattr(comparisons, "check", held)
        monkeypatch.setattr(compatibility, "_compare", counted)

    async def wait(self) -> None:
        """Wait until a check has begun."""
        assert await asyncio.to_thread(self.began.wait, WAIT_S)


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.registry.state.comparisons.close()


@pytest.fixture
def held(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldThread]:
    """A subject with one large schema; checks wait from now on."""
    assert api.post(SUBJECT, large()).status == 200
    thread = HeldThread(monkeypatch)
    yield thread
    thread.passes.set()


@pytest.mark.parametrize("path", [SUBJECT, "/compatibility/subjects/orders/versions/latest"])
def test_lookup_is_answered_while_large_schemas_are_compared(api: Api, held: HeldThread, path: str) -> None:
    async def run() -> None:
        waiting = asyncio.create_task(api.ask("POST", path, large(properties=99)))
        await held.wait()
        for _ in range(3):
            assert (await api.ask("GET", "/schemas/ids/1")).status == 200
        assert not waiting.done()
        held.passes.set()
        assert (await waiting).status == 200

    asyncio.run(run())


def test_version_that_is_registered_during_a_check_is_checked_too(api: Api, held: HeldThread) -> None:
    async def run() -> None:
        waiting = asyncio.create_task(api.ask("POST", SUBJECT, large(properties=99)))
        await held.wait()
        assert (await api.ask("POST", SUBJECT + "?force=true", large("integer"))).status == 200
        held.passes.set()
        assert (await waiting).status == 409

    asyncio.run(run())
    assert api.get(SUBJECT).json == [1, 2]


def test_equal_checks_run_once_and_their_result_is_remembered(api: Api, held: HeldThread) -> None:
    async def run() -> None:
        path = "/compatibility/subjects/orders/versions/latest"
        waiting = [asyncio.create_task(api.ask("POST", path, large("integer"))) for _ in range(5)]
        await held.wait()
        held.passes.set()
        assert [response.json for response in await asyncio.gather(*waiting)] == [{"is_compatible": False}] * 5
        assert (await api.ask("POST", SUBJECT, large("integer"))).status == 409

    asyncio.run(run())
    assert held.compared == 1


def test_check_has_a_deadline_and_stops_before_the_next_version(
    api: Api, held: HeldThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.post(SUBJECT + "?force=true", large(properties=98)).status == 200
    assert api.put("/config/orders", {"compatibility": "FULL_TRANSITIVE"}).status == 200
    monkeypatch.setattr(comparisons, "LONGEST_S", 0.05)
    response = api.post(SUBJECT, large(properties=99))
    assert response.error == (500, 50002)
    assert "takes longer than 0.05 s" in response.json["message"]
    held.passes.set()
    threads = api.registry.state.comparisons._threads
    assert threads is not None
    threads.submit(int).result(WAIT_S)  # the thread has ended the check
    assert held.compared == 0


def test_number_of_waiting_checks_is_limited(api: Api, held: HeldThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "MOST_WAITING", 2)

    async def run() -> None:
        waiting = [asyncio.create_task(api.ask("POST", SUBJECT, large(properties=each))) for each in (90, 91)]
        await held.wait()
        assert (await api.ask("POST", SUBJECT, large(properties=92))).error == (503, 50303)
        held.passes.set()
        assert {(await each).status for each in waiting} <= {200, 409}

    asyncio.run(run())


def test_stop_ends_the_waiting_checks(api: Api, held: HeldThread) -> None:
    async def run() -> None:
        waiting = [asyncio.create_task(api.ask("POST", SUBJECT, large(properties=each))) for each in (90, 91)]
        await held.wait()
        api.registry.state.comparisons.close()
        held.passes.set()
        _, pending = await asyncio.wait(waiting, timeout=WAIT_S)
        assert not pending

    asyncio.run(run())
    assert held.compared == 0


AVRO = ('"int"', '"long"'), ('{"type":"record","name":"R","fields":[]}', '{"type":"record","name":"S","fields":[]}')
JSON = (
    ('{"type":"string"}', '{"type":"integer"}'),
    ('{"type":"object","properties":{"a":{"type":"string"}}}', '{"type":"object","properties":{}}'),
)
PROTO = 'syntax = "proto3"; message M { %s f = 1; }'
PROTOBUF = ((PROTO % "string", PROTO % "int32"), (PROTO % "int32", PROTO % "uint32"))
PAIRS = [
    (kind, *pair)
    for kind, pairs in (("AVRO", AVRO), ("JSON", JSON), ("PROTOBUF", PROTOBUF))
    for one, other in pairs
    for pair in ((one, other), (other, one))
]


@pytest.mark.parametrize(("kind", "old", "new"), PAIRS)
@pytest.mark.parametrize("level", ["BACKWARD", "FORWARD", "FULL_TRANSITIVE", "NONE"])
def test_verdict_of_the_thread_is_the_verdict_of_the_event_loop(
    kind: str, old: str, new: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdicts() -> list[Any]:
        api = Api()
        assert api.put("/config", {"compatibility": level}).status == 200
        assert api.post(SUBJECT, {"schemaType": kind, "schema": old}).status == 200
        asked = {"schemaType": kind, "schema": new}
        found = [api.post(f"/compatibility{SUBJECT}/latest?verbose=true", asked).json, api.post(SUBJECT, asked).json]
        api.registry.state.comparisons.close()
        return found

    expected = verdicts()
    monkeypatch.setattr(comparisons, "_LARGE", dict.fromkeys(SchemaType, 0))
    ran: list[object] = []
    original: Callable[..., Any] = Comparisons._start
    monkeypatch.setattr(Comparisons, "_start", lambda *arguments: (ran.append(1), original(*arguments))[1])
    assert verdicts() == expected
    assert bool(ran) is (level != "NONE")
