"""examples/streams on Ottla and on stock Kafka: results equal to a batch computation over the same records."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.streams.declarations import Pipeline
from ottla.streams.loading import load_pipelines
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings
from tests.conftest import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "streams"
NAMES = ("wordcount", "page_views", "temperature", "fraud")
FIRST = 1_767_225_600
HOUR = 3600


@pytest.fixture(scope="module")
def pipelines() -> dict[str, Pipeline]:
    return {name: load_pipelines(EXAMPLES / f"{name}.py")[0] for name in NAMES}


class World:
    """A broker with the topics of the examples."""

    def __init__(self, bootstrap: str, pipelines: list[Pipeline]) -> None:
        self.bootstrap = bootstrap
        with Admin(bootstrap) as admin:
            for topic in sorted({given.topic for each in pipelines for given in each.inputs.values()}):
                admin.create_topic(topic, partitions=2, replication_factor=1)
            for topic in OUTPUTS.values():
                admin.create_topic(topic, partitions=1, replication_factor=1)

    def send(self, topic: str, *records: tuple[str | None, Any]) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for key, value in records:
                text = value if isinstance(value, str) else json.dumps(value)
                producer.send(topic, text.encode(), key=None if key is None else key.encode())
            producer.flush()

    def results(self, topic: str) -> list[dict[str, Any]]:
        """Return the values of a topic, as a reader with read_committed sees them."""
        found = []
        with Consumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([(topic, 0)])
            for _ in range(50):
                polled = consumer.poll(0.2)
                found += [json.loads(record.value or b"") for record in polled]
                if found and not polled:
                    break
        return found


OUTPUTS = {
    "wordcount": "streams-wordcount-output",
    "page_views": "streams-pageviewstats-output",
    "temperature": "iot-temperature-max",
    "fraud": "suspicious",
}


def shuffled(rng: random.Random, records: list[dict[str, Any]], late_s: int) -> Iterator[dict[str, Any]]:
    """Yield records in an order in which each is at most `late_s` later than it would be by its time."""
    for record in sorted(records, key=lambda each: each["at"] + rng.randint(0, late_s)):
        yield {**record, "at": _iso(record["at"])}


def _iso(second: int) -> str:
    return dt.datetime.fromtimestamp(second, dt.UTC).isoformat()


@pytest.mark.long
@pytest.mark.both
def test_examples_write_what_a_batch_computation_gives(
    broker: RunningBroker, ottla_spark: SparkSession, pipelines: dict[str, Pipeline], tmp_path: Path
) -> None:
    rng = random.Random(16)
    world = World(broker.bootstrap, list(pipelines.values()))
    lines = [" ".join(rng.choices(["all", "streams", "lead", "to", "Kafka"], k=5)) for _ in range(100)]
    users = {f"u{n}": rng.choice(["europe", "asia"]) for n in range(8)}
    views = [{"user": f"u{rng.randint(0, 9)}", "page": "p", "at": FIRST + rng.randint(0, 5 * HOUR)} for _ in range(200)]
    readings = [
        {"sensor": rng.choice("xy"), "degrees": rng.randint(5, 24), "at": FIRST + rng.randint(0, 60)}
        for _ in range(200)
    ]
    payments = [
        {"card": f"c{rng.randint(0, 5)}", "amount": rng.randint(1, 800), "at": FIRST + rng.randint(0, 4 * HOUR)}
        for _ in range(200)
    ]
    for user, region in users.items():
        world.send("streams-userprofile-input", (user, {"region": "old"}), (user, {"region": region}))
    world.send("streams-plaintext-input", *((None, line) for line in lines))
    world.send("streams-pageview-input", *((each["user"], each) for each in shuffled(rng, views, 300)))
    world.send("iot-temperature", *((each["sensor"], each) for each in shuffled(rng, readings, 4)))
    world.send("payments", *((each["card"], each) for each in shuffled(rng, payments, 50)))
    runner = Runner(
        ottla_spark, list(pipelines.values()), Settings({"bootstrap.servers": broker.bootstrap}, str(tmp_path))
    )
    try:
        runner.start()
        runner.process_available()
        # Records of the next day close the windows.
        end = _iso(FIRST + 24 * HOUR)
        world.send("streams-pageview-input", (None, {"user": "end", "page": "p", "at": end}))
        world.send("iot-temperature", (None, {"sensor": "end", "degrees": 0, "at": end}))
        world.send("payments", (None, {"card": "end", "amount": 1, "at": end}))
        runner.process_available()
    finally:
        runner.stop()
    assert _last(world.results(OUTPUTS["wordcount"])) == Counter(" ".join(lines).lower().split())
    assert _sorted(world.results(OUTPUTS["page_views"])) == _sorted(batch_page_views(views, users))
    assert _sorted(world.results(OUTPUTS["temperature"])) == _sorted(batch_temperature(readings))
    assert _sorted(world.results(OUTPUTS["fraud"])) == _sorted(batch_fraud(payments))


def _last(updates: list[dict[str, Any]]) -> dict[str, int]:
    return {row["word"]: row["count"] for row in updates}


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def batch_page_views(views: list[dict[str, Any]], users: dict[str, str]) -> list[dict[str, Any]]:
    counts = Counter((users.get(each["user"], "UNKNOWN"), each["at"] // HOUR * HOUR) for each in views)
    return [{"region": region, "hour": hour, "count": count} for (region, hour), count in counts.items()]


def batch_temperature(readings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    highest: dict[tuple[str, int], int] = defaultdict(int)
    for each in readings:
        place = each["sensor"], each["at"] // 5 * 5
        highest[place] = max(highest[place], each["degrees"])
    return [
        {"sensor": sensor, "second": second, "degrees": degrees}
        for (sensor, second), degrees in highest.items()
        if degrees > 20
    ]


def batch_fraud(payments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for card in {each["card"] for each in payments}:
        sessions: list[dict[str, Any]] = []
        for each in sorted((each for each in payments if each["card"] == card), key=lambda each: each["at"]):
            if not sessions or each["at"] > sessions[-1]["end"]:
                sessions.append({"card": card, "start": each["at"], "end": 0, "payments": 0, "amount": 0})
            last = sessions[-1]
            last["end"], last["payments"] = each["at"] + 300, last["payments"] + 1
            last["amount"] += each["amount"]
        found += [each for each in sessions if each["payments"] >= 3 and each["amount"] >= 1000]
    return found
