"""The services of examples/services: each port behaves like its original, and both can share a group.

The services are processes: uvicorn on a free port, and workers that SIGTERM stops while records arrive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .services import PARTITIONS, Service, Stored, committed, records_of, rows_of, share
from .support import FIRST_TIMESTAMP, WAIT_S, unique, wait_until

OLD_ORDERS, NEW_ORDERS = "orders_confluent.py", "orders_ottla.py"
OLD_READINGS, NEW_READINGS = "readings_aiokafka.py", "readings_ottla.py"
# A rebalance with librdkafka takes at least one heartbeat interval.
pytestmark = pytest.mark.timeout(240)
TOO_LARGE = "x" * 1_500_000

Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Return a function that starts a service with its script, arguments and `environment`."""
    started: list[Service] = []
    directory = tmp_path / "logs"
    directory.mkdir()

    def run(script: str, *arguments: str, environment: dict[str, str]) -> Service:
        started.append(Service(script, *arguments, environment=environment, directory=directory))
        return started[-1]

    yield run
    for service in started:
        service.kill()


def orders(first: int, count: int) -> list[dict[str, Any]]:
    """Return orders of 40 customers. Every 25th order cannot be billed."""
    return [
        {"order_id": f"o-{n}", "customer": f"customer-{n % 40}", "amount_cents": 0 if n % 25 == 0 else 100 + n}
        for n in range(first, first + count)
    ]


def readings(first: int, count: int) -> list[dict[str, Any]]:
    """Return readings of 30 sensors."""
    return [
        {"sensor": f"sensor-{n % 30}", "celsius": 20 + n / 8, "at_ms": FIRST_TIMESTAMP + n}
        for n in range(first, first + count)
    ]


class Orders:
    """A group of order workers: starts them, places orders and checks the results."""

    def __init__(self, broker: RunningBroker, topic: str, directory: Path, start: Start) -> None:
        self.broker, self.topic, self.group = broker, topic, unique("billing")
        self.ledger = directory / f"{topic}.jsonl"
        self.placed: list[dict[str, Any]] = []
        self._start = start
        self._environment = {
            "KAFKA_BOOTSTRAP": broker.bootstrap,
            "ORDERS_TOPIC": topic,
            "ORDERS_GROUP": self.group,
            "ORDERS_LEDGER": str(self.ledger),
        }

    def api(self, script: str) -> Service:
        return self._start(script, "api", "--port", "0", environment=self._environment)

    def worker(self, script: str) -> Service:
        return self._start(script, "worker", environment=self._environment)

    def place(self, api: Service, count: int, *, singly: bool = False) -> None:
        """Place the next orders, in one import or in single requests."""
        new = orders(len(self.placed), count)
        self.placed += new
        if not singly:
            assert api.post("/orders/import", new, 202) == {"accepted": count}
            return
        for order in new:
            answer = api.post("/orders", order, 201)
            assert 0 <= answer["partition"] < PARTITIONS
            assert answer["offset"] >= 0

    def wait_for_share(self, workers: list[Service]) -> None:
        wait_until(lambda: share(workers, eager=False), "the workers share the partitions", 2 * WAIT_S)

    def wait_until_billed(self) -> None:
        billable = sum(order["amount_cents"] > 0 for order in self.placed)
        wait_until(lambda: len(rows_of(self.ledger)) >= billable, f"{billable} orders are billed", 2 * WAIT_S)

    def check(self) -> dict[int, list[Stored]]:
        """Check that each order was billed or rejected once and is committed. Return the topic's records."""
        stored = records_of(self.broker.bootstrap, self.topic)
        assert sum(map(len, stored.values())) == len(self.placed)
        billed = Counter(row["order"] for row in rows_of(self.ledger))
        assert billed == Counter(order["order_id"] for order in self.placed if order["amount_cents"] > 0)
        (rejected,) = records_of(self.broker.bootstrap, f"{self.topic}.rejected").values()
        assert {row.headers for row in rejected} == {(("source", b"api"), ("reason", b"amount"))}
        assert Counter(json.loads(row.value or b"")["order_id"] for row in rejected) == Counter(
            order["order_id"] for order in self.placed if order["amount_cents"] == 0
        )
        offsets = {partition: len(rows) for partition, rows in stored.items()}
        assert committed(self.broker.bootstrap, self.group, self.topic) == offsets
        return stored


def run_orders(group: Orders, script: str) -> dict[int, list[Stored]]:
    """Run an API and two workers, and stop one worker while orders arrive."""
    api, first, second = group.api(script), group.worker(script), group.worker(script)
    group.wait_for_share([first, second])
    group.place(api, 60, singly=True)
    assert "detail" in api.post("/orders", {**orders(0, 1)[0], "note": TOO_LARGE}, 413)
    for _ in range(5):
        group.place(api, 100)
    first.terminate()
    for _ in range(10):
        group.place(api, 50)
    first.stop()
    group.wait_for_share([second])
    group.place(api, 100)
    group.wait_until_billed()
    wait_until(lambda: api.get("/deliveries")["delivered"] == len(group.placed), "all orders are delivered")
    assert api.get("/deliveries")["failed"] == 0
    for service in (second, api):
        service.stop()
    for worker in (first, second):
        assert "Lag: " in worker.log
        assert "Stopped" in worker.log
        assert f'"worker": {worker.process.pid},' in group.ledger.read_text(), "a worker without work proves nothing"
    return group.check()


@pytest.mark.long
def test_port_of_the_confluent_kafka_service_behaves_like_the_original(
    broker: RunningBroker, make_topic: MakeTopic, start: Start, tmp_path: Path
) -> None:
    found = [
        run_orders(Orders(broker, make_topic(PARTITIONS), tmp_path, start), script)
        for script in (OLD_ORDERS, NEW_ORDERS)
    ]
    assert found[0] == found[1]


@pytest.mark.both
def test_confluent_kafka_service_and_its_port_share_a_group(
    broker: RunningBroker, make_topic: MakeTopic, start: Start, tmp_path: Path
) -> None:
    group = Orders(broker, make_topic(PARTITIONS), tmp_path, start)
    apis = [group.api(OLD_ORDERS), group.api(NEW_ORDERS)]
    workers = [group.worker(OLD_ORDERS), group.worker(OLD_ORDERS)]
    group.wait_for_share(workers)
    for _ in range(2):  # replace one worker after the other
        for api in apis:
            group.place(api, 100)
        workers.append(group.worker(NEW_ORDERS))
        group.wait_for_share(workers)
        for api in apis:
            group.place(api, 100)
            group.place(api, 5, singly=True)
        workers[0].terminate()
        for api in apis:
            group.place(api, 100)
        workers.pop(0).stop()
        group.wait_for_share(workers)
    group.wait_until_billed()
    for service in (*workers, *apis):
        service.stop()
    stored = group.check()
    homes: dict[bytes | None, set[int]] = {}
    for partition, rows in stored.items():
        for row in rows:
            homes.setdefault(row.key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in homes.values()), "both APIs must agree on each key's partition"


class Readings:
    """A group of reading services: starts them, posts readings and checks the results."""

    def __init__(self, broker: RunningBroker, topic: str, directory: Path, start: Start) -> None:
        self.broker, self.topic, self.group = broker, topic, unique("thermometers")
        self.ledger = directory / topic / "ledger.jsonl"
        self.posted: list[dict[str, Any]] = []
        self._start = start
        self._environment = {
            "KAFKA_BOOTSTRAP": broker.bootstrap,
            "READINGS_TOPIC": topic,
            "READINGS_GROUP": self.group,
            "READINGS_LEDGER": str(self.ledger),
        }

    def service(self, script: str) -> Service:
        return self._start(script, "--port", "0", environment=self._environment)

    def post(self, service: Service, count: int, *, singly: bool = False) -> None:
        """Post the next readings, in one request or in single requests."""
        new = readings(len(self.posted), count)
        self.posted += new
        if not singly:
            assert service.post("/readings/bulk", new, 202) == {"failed": 0}
            return
        for reading in new:
            assert service.post("/readings", reading, 201)["offset"] >= 0

    def wait_for_share(self, services: list[Service]) -> None:
        wait_until(lambda: share(services, eager=True), "the services share the partitions", 2 * WAIT_S)

    def wait_until_stored(self) -> None:
        count = len(self.posted)
        wait_until(lambda: len(rows_of(self.ledger)) >= count, f"{count} readings are stored", 2 * WAIT_S)

    def check(self) -> dict[int, list[Stored]]:
        """Check that each reading was stored once and is committed. Return the topic's records."""
        stored = records_of(self.broker.bootstrap, self.topic)
        assert sum(map(len, stored.values())) == len(self.posted)
        rows = rows_of(self.ledger)
        assert Counter((row["sensor"], row["at_ms"]) for row in rows) == Counter(
            (reading["sensor"], reading["at_ms"]) for reading in self.posted
        )
        offsets = {partition: len(records) for partition, records in stored.items()}
        assert committed(self.broker.bootstrap, self.group, self.topic) == offsets
        return stored


def run_readings(group: Readings, script: str) -> dict[int, list[Stored]]:
    """Run two services and stop one while readings arrive. At first the store is unavailable."""
    first = group.service(script)
    group.wait_for_share([first])
    group.post(first, 40, singly=True)
    assert "detail" in first.post("/readings", {**readings(0, 1)[0], "note": TOO_LARGE}, 413)
    first.wait_for("is read again from offset")
    group.ledger.parent.mkdir()
    second = group.service(script)
    group.wait_for_share([first, second])
    for _ in range(5):
        group.post(first, 100)
        group.post(second, 100)
    first.terminate()
    for _ in range(10):
        group.post(second, 50)
    first.stop()
    group.wait_for_share([second])
    group.post(second, 30)
    group.wait_until_stored()
    wait_until(lambda: second.get("/sensors") == latest(group.posted), "the latest readings are known")
    second.stop()
    for service in (first, second):
        assert "Stopped" in service.log
        assert f'"worker": {service.process.pid},' in group.ledger.read_text(), "a service without work proves nothing"
    return group.check()


def latest(posted: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the latest reading of each sensor."""
    return {reading["sensor"]: {**reading, "note": ""} for reading in posted}


@pytest.mark.long
def test_port_of_the_aiokafka_service_behaves_like_the_original(
    broker: RunningBroker, make_topic: MakeTopic, start: Start, tmp_path: Path
) -> None:
    found = [
        run_readings(Readings(broker, make_topic(PARTITIONS), tmp_path, start), script)
        for script in (OLD_READINGS, NEW_READINGS)
    ]
    assert found[0] == found[1]


@pytest.mark.both
def test_aiokafka_service_and_its_port_share_a_group(
    broker: RunningBroker, make_topic: MakeTopic, start: Start, tmp_path: Path
) -> None:
    group = Readings(broker, make_topic(PARTITIONS), tmp_path, start)
    group.ledger.parent.mkdir()
    services = [group.service(OLD_READINGS), group.service(OLD_READINGS)]
    group.wait_for_share(services)
    for _ in range(2):  # replace one service after the other
        services.append(group.service(NEW_READINGS))
        group.wait_for_share(services)
        for service in services:
            group.post(service, 100)
            group.post(service, 5, singly=True)
        services[0].terminate()
        for service in services[1:]:
            group.post(service, 100)
        services.pop(0).stop()
        group.wait_for_share(services)
    group.wait_until_stored()
    for service in services:
        service.stop()
    stored = group.check()
    homes: dict[bytes | None, set[int]] = {}
    for partition, rows in stored.items():
        for row in rows:
            homes.setdefault(row.key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in homes.values()), "both must agree on each key's partition"
