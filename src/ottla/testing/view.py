"""`Ottla`: the API of the broker for tests: topics, helpers for records and groups, faults, request counts.

The helpers do not use the network: they are fast, faults do not affect them, and they do not count as requests.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.common.ids import TopicPartition
from ottla.testing.arguments import check_topic_configs, checked
from ottla.testing.faults import Faults
from ottla.testing.lease import Lease
from ottla.testing.record import Record
from ottla.testing.rules import checked_apis
from ottla.testing.secured import settings_for
from ottla.testing.waiting import WAIT_S, wait_until

if TYPE_CHECKING:
    from ottla.testing.control import Sent
    from ottla.testing.listeners import Unclosed
    from ottla.testing.process import ProcessBroker
    from ottla.testing.running import ThreadBroker
    from ottla.testing.secured import BrokerSecurity

__tracebackhide__ = True
T = TypeVar("T")
Headers = list[tuple[str, bytes | None]] | Mapping[str, bytes | str | None]
Bytes = bytes | str | None
Given = Bytes | tuple[Bytes, Bytes] | Record
"""A value, a (key, value), or a whole record. Text becomes UTF-8."""
_NAME_CHARACTERS = re.compile(r"[^a-zA-Z0-9._-]+")
_LONGEST_NAME = 100


class GroupState(NamedTuple):
    """A group at one moment. `state` is Kafka's name (Stable, Empty, Dead...), members are (id, client id, host)."""

    state: str
    members: list[tuple[str, str, str]]
    positions: dict[TopicPartition, int]
    """Committed offsets: of the next record to read."""
    lags: dict[TopicPartition, int]
    """The number of records after each committed offset."""

    @property
    def lag(self) -> int:
        """The sum over all partitions."""
        return sum(self.lags.values())


@checked
class Requests:
    """Requests that clients made in this test, by API and client id."""

    def __init__(self, broker: Lease) -> None:
        self._broker = broker
        self._before: Counter[tuple[str, str | None]] = broker.call("requests")

    def all(self) -> Counter[tuple[str, str | None]]:
        """The counts by (API, client id)."""
        now: Counter[tuple[str, str | None]] = self._broker.call("requests")
        return now - self._before

    def count(self, api: str | None = None, *, client_id: str | None = None) -> int:
        """The number of requests of one or all APIs and clients. Raises ValueError for an unknown API."""
        name = checked_apis(api)[0] if api is not None else None
        return sum(
            number
            for (each, client), number in self.all().items()
            if name in (None, each) and client_id in (None, client)
        )

    def __getitem__(self, api: str) -> int:
        return self.count(api)

    def clear(self) -> None:
        """Restart counting."""
        self._before = self._broker.call("requests")


@checked
class Clock:
    """The broker's clock: for retention, session timeouts, and the broker's timestamps."""

    def __init__(self, broker: Lease, faults: Faults) -> None:
        self._broker = broker
        self._faults = faults

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0) -> None:
        """Move the clock and run due timers: members expire, retention deletes. Negative: only the wall clock moves."""
        milliseconds = round((seconds + 60 * minutes + 3600 * hours + 86400 * days) * 1000)
        self._broker.call("advance_clock", milliseconds)
        self._faults.noted(f"clock.advance({milliseconds / 1000:g} s)")

    def now_ms(self) -> int:
        """The broker's wall clock: ms since the epoch."""
        now: int = self._broker.call("now_ms")
        return now


@checked
class Ottla:
    """A broker as one test sees it. `bootstrap` is for any Kafka client.

    With `own_port` the test's clients connect to a port of their own, which `end` closes. `security` is the security of
    the broker's listener.
    """

    def __init__(
        self,
        broker: ThreadBroker | ProcessBroker,
        name: str = "test",
        *,
        own_port: bool = False,
        security: BrokerSecurity | None = None,
    ) -> None:
        self._security = security
        self._broker = lease = Lease(broker, name, own_port=own_port)
        self._name = _NAME_CHARACTERS.sub("-", name).strip("-.")[:_LONGEST_NAME] or "test"
        self._consumed: dict[str, dict[int, int]] = {}
        self._topics_before = set(broker.call("topics"))
        self._groups_before = self._group_names()
        self.faults = Faults(lease)
        self.requests = Requests(lease)
        self.clock = Clock(lease, self.faults)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for `bootstrap.servers`."""
        return self._broker.bootstrap

    def settings(self, library: str = "ottla", *, user: str | None = None) -> dict[str, str]:
        """Return the settings with which clients of this broker connect: address, protocol, password, certificates.

        `library` is "ottla" (Kafka's names), "confluent-kafka" or "kafka-python" (keyword arguments). `user` is one of
        the users of a secured broker, by default the first one. Raises ValueError.
        """
        settings = {"bootstrap.servers": self.bootstrap}
        if self._security is not None:
            settings |= self._security.client_settings(user)
        elif user is not None:
            raise ValueError(f"user={user!r}: this broker has no users; pass security= to ottla_broker")
        return settings_for(library, settings)

    @property
    def data(self) -> str:
        """The log directory, in Kafka's layout."""
        return self._broker.data

    # -- topics and records ------------------------------------------------------------------------------------

    def topic(self, name: str | None = None, partitions: int = 1, **configs: object) -> str:
        """Create a topic and return its name; by default a unique one. Configs have Kafka's names, with _ for dots.

        The topic is deleted at the end of the test, as are topics that the test's clients create.
        """
        check_topic_configs(configs, ("name", "partitions"))
        name = name or f"{self._name}-{uuid.uuid4().hex[:8]}"
        texts = {
            key.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in configs.items()
        }
        self._broker.call("create_topic", name, partitions, texts)
        return name

    def produce(
        self,
        topic: str,
        *records: Given,
        key: Bytes = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),  # type: ignore[assignment]
    ) -> list[tuple[int, int]]:
        """Append values, (key, value) pairs, or Records, and return (partition, offset) of each.

        Without `partition`, keys are hashed (murmur2), and records without a key alternate between the partitions.
        `timestamp` is in ms since the epoch. Raises KafkaError.
        """
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        encoded = [(each, _bytes(value)) for each, value in pairs]
        rows: list[Sent] = []
        for record in records:
            if isinstance(record, Record):
                rows.append((partition, record.timestamp, record.key, record.value, record.headers))
                continue
            own_key, value = record if isinstance(record, tuple) else (key, record)
            rows.append((partition, timestamp, _bytes(own_key), _bytes(value), encoded))
        places: list[tuple[int, int]] = self._broker.call("produce", topic, rows)
        return places

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """All records of the log, ordered by partition and offset; empty if the topic does not exist."""
        found: list[Record] = self._broker.call("records", topic, {})
        return found if partition is None else [record for record in found if record.partition == partition]

    def consume(self, topic: str, n: int = 1, timeout_s: float = WAIT_S) -> list[Record]:
        """The next `n` records that this test has not consumed yet. Raises NotInTime."""
        positions = self._consumed.setdefault(topic, {})
        found: list[Record] = []

        def enough() -> bool:
            nonlocal found
            found = self._broker.call("records", topic, positions)
            return len(found) >= n

        wait_until(enough, timeout_s, what=lambda: f"{n} records in {topic!r}; there are {len(found)}: {found[:5]}")
        for record in found[:n]:
            positions[record.partition] = record.offset + 1
        return found[:n]

    def wait_until(self, predicate: Callable[[], T], timeout_s: float = WAIT_S, *, what: str | None = None) -> T:
        """Call the predicate until its result is true, and return it. Raises NotInTime after `timeout_s` seconds."""
        return wait_until(predicate, timeout_s, what=what)

    # -- groups ------------------------------------------------------------------------------------------------

    def group(self, name: str) -> GroupState:
        """The group's state, members, committed offsets and lag. A group that does not exist has the state Dead."""
        state, members, positions = self._broker.call("group", name)
        return GroupState(
            state,
            members,
            {place: offset for place, (offset, _) in positions.items()},
            {place: max(end - offset, 0) for place, (offset, end) in positions.items() if end >= 0},
        )

    def wait_for_lag(self, group: str, lag: int = 0, timeout_s: float = WAIT_S, *, topic: str | None = None) -> None:
        """Wait until the group has committed all but `lag` records, of one topic or of all that it commits to.

        With `topic`, all records of a partition without a commit count. Otherwise the group must have committed once.
        """
        last: GroupState | None = None

        def near() -> bool:
            nonlocal last
            last = self.group(group)
            if topic is None:
                return bool(last.positions) and last.lag <= lag
            ends: dict[int, int] = self._broker.call("ends", topic)
            positions = last.positions
            return sum(end - positions.get(TopicPartition(topic, index), 0) for index, end in ends.items()) <= lag

        wait_until(near, timeout_s, what=lambda: f"lag {lag} of group {group!r}; it is {last}")

    def _group_names(self) -> set[str]:
        _, rows = self._broker.call("groups")
        return {row.group_id for row in rows}

    # -- the broker --------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop the broker like SIGSTOP until `resume()`. `faults.pause()` does the same for a block."""
        self.faults.pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._broker.resume()

    def stop(self) -> None:
        """Stop the broker cleanly. `start()` uses the same data and port."""
        self._broker.stop()
        self.faults.noted("stop()")

    def kill(self) -> None:
        """Stop the broker like SIGKILL, without responses or syncs. `start()` uses the same data and port."""
        self._broker.kill()
        self.faults.noted("kill()")

    def start(self) -> None:
        """Start the broker again."""
        self._broker.start()

    def restart(self) -> None:
        """Stop the broker cleanly and start it with the same data and port."""
        self.stop()
        self.start()

    # -- the end of a test -------------------------------------------------------------------------------------

    def end(self, *, keep: bool = False, wait: bool = True) -> list[Unclosed]:
        """Lift the faults, close the test's port, delete its topics and groups, and reject all later calls.

        With `keep`, topics and groups are not deleted, since the broker ends with the test. Closing the port closes its
        connections and removes its members from their groups. Returns the open clients, after a short wait for clients
        that are about to disconnect (`wait`).
        """
        broker = self._broker
        try:
            broker.resume()
            self.faults.end()
            unclosed = broker.close_port(wait=wait)
            if not keep:
                self._delete_made()
        finally:
            broker.end()
        # A fault may have prevented a client from leaving its group.
        return [each for each in unclosed if each.connections or not self.faults.injected]

    def _delete_made(self) -> None:
        broker = self._broker
        broker.call("reset_clock")
        if not broker.running:
            broker.start()
        made = [name for name in broker.call("topics") if name not in self._topics_before]
        if made:
            broker.call("delete_topics", made)
        for name in self._group_names() - self._groups_before:
            broker.call("delete_group", name)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
