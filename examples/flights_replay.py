"""The events of the example on their way: the year is sent to the broker, and what the pipeline writes is read back."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from flights_broker import Failure
from flights_data import Data, Event, json_rows

from ottla.clients import Admin, ClientError, Consumer, Producer
from ottla.clients.producer import Delivery

TOPICS = {"flights": 4, "weather": 3, "airlines": 1, "planes": 1, "delays": 2, "alerts": 1}
COMPACTED = ("airlines", "planes")
EXTREME_DELAY_MINUTES = 180
WARM_UP_DAYS = 7
WARM_UP_WAIT_S = 60.0


def create_topics(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        there = {listing.name for listing in admin.list_topics()} & TOPICS.keys()
        if there:
            raise Failure(f"the broker has topics {', '.join(sorted(there))} already")
        for topic, partitions in TOPICS.items():
            # Flights of 2013 are older than the default retention of a week.
            config = {"cleanup.policy": "compact"} if topic in COMPACTED else {"retention.ms": "-1"}
            admin.create_topic(topic, partitions=partitions, config=config)


def send_tables(bootstrap: str, data: Data) -> None:
    """Airlines and planes into their topics, a record for each, by its key."""
    with Producer(bootstrap_servers=bootstrap, key_serializer="str") as producer:
        for key, value in zip(data.airlines["carrier"], json_rows(data.airlines, {"name": "name"}), strict=True):
            producer.send("airlines", value, key=key)
        names = {name: name for name in ("year", "manufacturer", "model", "seats")}
        for key, value in zip(data.planes["tailnum"], json_rows(data.planes, names), strict=True):
            producer.send("planes", value, key=key)
        if producer.flush(30):
            raise Failure("the tables were not acknowledged in 30 s")


class Replay(threading.Thread):
    """Sends the year, a day at a time, evenly over `seconds`; a day is acknowledged before the next one begins.

    With `warmed`, the first week is sent at once, and the others follow when the event is set. A pipeline needs seconds
    for its first batch; all that is sent meanwhile would be in the second one, and results would be late.
    """

    def __init__(
        self, bootstrap: str, year: list[list[Event]], seconds: float, warmed: threading.Event | None = None
    ) -> None:
        super().__init__(name="replay", daemon=True)
        self.acknowledged = 0
        self.failures: list[BaseException] = []
        self.days_sent = 0
        self.waiting = False
        self.days = len(year) - 1  # the last entry only closes the windows
        self.events = sum(map(len, year))
        self.size = 0
        self.done = False
        self.seconds = 0.0
        self.bootstrap = bootstrap
        self._year = year
        self._warmed = warmed
        self._pace_s = seconds / len(year)
        self._stopped = threading.Event()

    @property
    def seconds_left(self) -> float:
        """How long sending will take from now on, if the broker keeps up."""
        return (self.days - self.days_sent) * self._pace_s

    def run(self) -> None:
        try:
            self._send()
        except (ClientError, OSError) as error:
            self.failures.append(error)
        self.done = True

    def stop(self) -> None:
        self._stopped.set()
        if self._warmed is not None:
            self._warmed.set()
        if self.is_alive():
            self.join(30)

    def _send(self) -> None:
        began = started = time.monotonic()
        with Producer(bootstrap_servers=self.bootstrap, compression_type="lz4", linger_ms=5) as producer:
            for day, events in enumerate(self._year):
                for topic, key, value, at_ms in events:
                    producer.send(topic, value, key=key or None, timestamp_ms=at_ms, callback=self._acknowledge)
                    self.size += len(value)
                if producer.flush(60):
                    raise TimeoutError("the broker did not acknowledge a day of events in 60 s")
                self.days_sent = min(day + 1, self.days)
                if self._warmed is not None and day + 1 <= WARM_UP_DAYS:
                    if day + 1 == WARM_UP_DAYS:
                        self.waiting = True
                        self._warmed.wait(WARM_UP_WAIT_S)
                        self.waiting = False
                    started = time.monotonic() - (day + 1) * self._pace_s
                if self._stopped.wait(max(0.0, started + (day + 1) * self._pace_s - time.monotonic())):
                    break
        self.seconds = time.monotonic() - began

    def _acknowledge(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error)


@dataclass
class Results(threading.Thread):
    """The results of the pipeline, read from its topics as they arrive."""

    bootstrap: str
    delays: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    alerts: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    doubled: int = 0
    latest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=5))
    airlines: dict[str, list[int]] = field(default_factory=dict)
    failure: BaseException | None = None
    first: threading.Event = field(default_factory=threading.Event)
    """Set when the first window has arrived."""

    def __post_init__(self) -> None:
        super().__init__(name="results", daemon=True)
        self._stopped = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        try:
            with Consumer(
                bootstrap_servers=self.bootstrap,
                group_id="results",
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            ) as consumer:
                consumer.subscribe(["delays", "alerts"])
                while not self._stopped.is_set():
                    for record in consumer.poll(0.3):
                        assert record.value is not None  # The pipeline deletes nothing.
                        self.take(record.topic, json.loads(record.value))
        except (ClientError, OSError, ValueError) as error:
            self.failure = error

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join(30)

    def take(self, topic: str, row: dict[str, Any]) -> None:
        if topic == "alerts":
            alert = (row["hour"], row["carrier"], row["flight"])
            self.doubled += alert in self.alerts
            self.alerts[alert] = row
            self.latest.append(row)
            return
        window = (row["carrier"], row["hour"])
        if window in self.delays:
            self.doubled += 1
            return
        self.delays[window] = row
        self.first.set()
        total = self.airlines.setdefault(row.get("name", row["carrier"]), [0, 0, 0])
        for i, name in enumerate(("flights", "departed", "delay_minutes")):
            total[i] += row.get(name, 0)
