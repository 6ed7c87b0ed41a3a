"""A mirror between two clusters, each of one node, behind links that delay, stall and are cut.

Ten round trips: each is a failover, a failback, and the same in the other direction. Producers write to the active
cluster until each change. In every second one, the active cluster is killed behind a cut link, while the copy is
behind. Then exactly the records are missing that the promotion reports, at the end of each partition. An independent
checker compares all offsets and values of both clusters after each change, and at the end the fate of each record by
its producer. `OTTLA_CHAOS_ROUND_TRIPS` sets the number of round trips.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.clients import Consumer
from ottla.clients.admin import Admin, OffsetSpec
from ottla.common.ids import TopicPartition
from tests.cluster.processes import wait_until
from tests.ottla_process import OttlaProcess

from .cluster_load import PARTITIONS, TIMEOUT_S, TOPIC, Writer, check, stop, stored, three_writers
from .link import Link

ROUND_TRIPS = int(os.environ.get("OTTLA_CHAOS_ROUND_TRIPS", "10"))
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "5"))
RECORDS = 40
# An answer of the source has only one batch of a partition, so that the copy is behind.
SMALL_FETCHES = {"replica.fetch.max.bytes": 100}
SLOW_S = 0.4
# A round trip takes 100 ms.
DELAY_S = 0.05
FAULTS = 20
KEYS = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
MISSING = re.compile(rf"{TOPIC}-(\d+): (\d+) records are missing")

History = dict[int, list[tuple[int, bytes]]]


class Site:
    """One cluster of one node, and the link that the other cluster reaches it by."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.broker = OttlaProcess(directory, settings)
        self.broker.start()
        self.link = Link(self.broker.bootstrap)
        self.link.__enter__()

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def ottla(self, *words: str) -> tuple[str, str]:
        """Run `ottla mirror` here; returns its output and its notes."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["mirror", *words, "-b", self.bootstrap])
        assert code == 0, err.getvalue()
        return out.getvalue(), err.getvalue()

    def rows(self) -> list[dict[str, Any]]:
        with Admin(self.bootstrap) as admin:
            return [row for each in admin.mirror_status("dr").values() for row in each["partitions"]]

    def has_all(self) -> bool:
        return [(row["state"], row["lag"]) for row in self.rows()] == [("MIRRORING", 0)] * PARTITIONS

    def ends(self) -> dict[int, int]:
        with Admin(self.bootstrap) as admin:
            found = admin.list_offsets(dict.fromkeys(KEYS, OffsetSpec.LATEST))
        return {key.partition: each.offset for key, each in found.items()}

    def data(self) -> list[bytes]:
        """The bytes of each partition."""
        directories = [self.broker.data / str(key) for key in KEYS]
        return [b"".join(path.read_bytes() for path in sorted(each.glob("*.log"))) for each in directories]

    def history(self) -> History:
        """Offset and value of all records, by partition, including records of aborted transactions."""
        found: History = {index: [] for index in range(PARTITIONS)}
        with Consumer(bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
            consumer.assign(KEYS)
            ends = consumer.end_offsets(KEYS)

            def is_at_end() -> bool:
                for record in consumer.poll(0.2) or ():
                    found[record.partition].append((record.offset, record.value or b""))
                return all((consumer.position(key) or 0) >= ends[key] for key in KEYS)

            wait_until(is_at_end, TIMEOUT_S)
        return found

    def close(self) -> None:
        self.link.__exit__(None, None, None)
        self.broker.stop()


class Trips:
    """The two sites, and the producers, which move with the active site."""

    def __init__(self, active: Site, passive: Site) -> None:
        self.active, self.passive = active, passive
        self.writers: list[Writer] = []
        self.lost = 0

    def write(self, kinds: int) -> None:
        """Write with `kinds` of the producers until each has enough records."""
        self.writers = three_writers(self.active.bootstrap, 1, self.writers)
        sizes = [len(writer.acknowledged) for writer in self.writers]
        running = self.writers[:kinds]
        for writer in running:
            writer.start()
        wait_until(self._have_grown(running, sizes), TIMEOUT_S)
        stop(running)
        assert not [problem for writer in running for problem in writer.problems]

    def _have_grown(self, running: list[Writer], sizes: list[int]) -> Callable[[], bool]:
        return lambda: all(len(each.acknowledged) >= sizes[i] + RECORDS for i, each in enumerate(running))

    def planned(self) -> None:
        """The passive site becomes the active one; nothing is lost."""
        self.write(3)
        before = self.active.history()
        self.passive.ottla("promote", "dr", "--yes")
        assert self.passive.history() == before
        self._fail_back({})

    def unplanned(self) -> None:
        """The active site is killed while the copy is behind; it has lost its last records when it is back."""
        link = self.active.link
        link.hold()
        self.write(2)
        before, ends = self.active.history(), self.active.ends()
        # From now on each answer says how much is missing, and has one batch of a partition.
        link.delay_s = SLOW_S
        link.release()
        wait_until(self._is_behind(ends), TIMEOUT_S)
        link.cut()
        self.active.broker.kill()
        _, notes = self.passive.ottla("promote", "dr", "--unplanned", "--yes")
        missing = {int(index): int(count) for index, count in MISSING.findall(notes)}
        assert missing, notes
        after = self.passive.history()
        for index in range(PARTITIONS):
            end = ends[index] - missing.get(index, 0)
            assert after[index] == [row for row in before[index] if row[0] < end], f"partition {index}: {missing}"
        self._forget(before, after)
        self.active.broker.start()
        link.delay_s = 0.0
        link.heal()
        self._fail_back(missing)

    def _is_behind(self, ends: Mapping[int, int]) -> Callable[[], bool]:
        def is_behind() -> bool:
            rows = self.passive.rows()
            is_known = {row["partition"]: row["source_end"] for row in rows} == ends
            assert not is_known or any(row["lag"] for row in rows), "the copy was too fast"
            return is_known

        return is_behind

    def _forget(self, before: History, after: History) -> None:
        """Lost records do not count as acknowledged any more."""
        rows = {value for index in before for _, value in before[index][len(after[index]) :]}
        assert rows
        self.lost += len(rows)
        for writer in self.writers:
            writer.acknowledged = [n for n in writer.acknowledged if f"{writer.name}:{n}".encode() not in rows]

    def _fail_back(self, missing: Mapping[int, int]) -> None:
        """The other site becomes the copy, after the dry run has shown the same loss as the promotion."""
        out, _ = self.active.ottla("failback", "dr", TOPIC, "--dry-run", "--json")
        shown = [json.loads(line) for line in out.splitlines()]
        assert {row["partition"]: row["end"] - row["start"] for row in shown if row["records"]} == missing
        self.active.ottla("failback", "dr", TOPIC, "--yes")
        self.active, self.passive = self.passive, self.active
        wait_until(self.passive.has_all, TIMEOUT_S)
        assert self.passive.history() == self.active.history()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_round_trips_lose_exactly_the_reported_records(tmp_path: Path) -> None:
    first, second = (Site(tmp_path / name, SMALL_FETCHES) for name in ("first", "second"))
    trips = Trips(first, second)
    try:
        with Admin(first.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        for here, there, topics in ((first, second, ""), (second, first, TOPIC)):
            here.ottla("create", "dr", "--from", there.link.bootstrap, "--topics", topics)
        wait_until(second.has_all, TIMEOUT_S)
        for trip in range(2 * ROUND_TRIPS):
            trips.unplanned() if trip % 2 else trips.planned()
        assert trips.active is first
        check(trips.writers, stored(first.bootstrap))
        counts = {writer.name: len(writer.acknowledged) for writer in trips.writers}
        print(f"{ROUND_TRIPS} round trips, {counts} records, {trips.lost} lost")
        for site in (first, second):
            site.broker.assert_no_traceback()
    finally:
        for writer in trips.writers:
            writer.stop()
        for site in (first, second):
            site.close()


def disturb(link: Link, chance: random.Random) -> str:
    """A random fault of a link, from its begin to its end."""
    fault = chance.choice(["drop", "stall", "cut", "slow"])
    if fault == "drop":
        link.drop()
    elif fault == "stall":
        link.stall(chance.uniform(0.1, 1.5))
    elif fault == "cut":
        link.cut()
        time.sleep(chance.uniform(0.1, 1.5))
        link.heal()
    else:
        link.delay_s = chance.uniform(0.0, 2 * DELAY_S)
        time.sleep(chance.uniform(0.1, 0.5))
        link.delay_s = DELAY_S
    time.sleep(chance.uniform(0.0, 0.5))
    return fault


@pytest.mark.timeout(300)
def test_copy_over_a_link_with_delay_stalls_and_cuts_equals_the_source(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    source, target = Site(tmp_path / "source"), Site(tmp_path / "target")
    writers = three_writers(source.bootstrap, SEED)
    source.link.delay_s = DELAY_S
    try:
        with Admin(source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        target.ottla("create", "dr", "--from", source.link.bootstrap, "--topics", TOPIC)
        for writer in writers:
            writer.start()
        faults = Counter(disturb(source.link, chance) for _ in range(FAULTS))
        stop(writers)
        ends = source.ends()
        wait_until(lambda: target.ends() == ends, TIMEOUT_S)
        assert target.data() == source.data()
        out, _ = target.ottla("verify", "dr", "--json")
        assert {json.loads(line)["result"] for line in out.splitlines()} == {"equal"}
        check(writers, stored(target.bootstrap))
        print(f"{dict(faults)}, {sum(map(len, target.data()))} bytes")
        for site in (source, target):
            site.broker.assert_no_traceback()
    finally:
        for writer in writers:
            writer.stop()
        for site in (source, target):
            site.close()
