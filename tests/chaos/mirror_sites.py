"""Two sites with a mirror between them, and changes of the active site with an independent checker.

A site is one node or a cluster. Its link is the only way by which the other site reaches it.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ottla.cli.main import main
from ottla.clients import Consumer
from ottla.clients.admin import Admin, OffsetSpec
from ottla.common.ids import TopicPartition
from tests.cluster.processes import wait_until
from tests.ottla_process import OttlaProcess

from .cluster_load import PARTITIONS, TIMEOUT_S, TOPIC, Writer, stop, three_writers
from .link import Link, SiteLink

RECORDS = 40
# An answer of the source has only one batch of a partition, so that the copy is behind.
SMALL_FETCHES = {"replica.fetch.max.bytes": 100}
SLOW_S = 0.4
KEYS = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
MISSING = re.compile(rf"{TOPIC}-(\d+): (\d+) records are missing")

History = dict[int, list[tuple[int, bytes]]]


class Site:
    """A site as its clients see it."""

    def __init__(self, link: Link | SiteLink) -> None:
        self.link = link

    @property
    def bootstrap(self) -> str:
        """The addresses for clients of this site."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill -9 of all nodes."""
        raise NotImplementedError

    def start(self) -> None:
        """Start all nodes again."""
        raise NotImplementedError

    def slow_down(self, other: Site) -> None:
        """Let this site copy so slowly from the other site that the copy is behind."""
        raise NotImplementedError

    def speed_up(self, other: Site) -> None:
        """End `slow_down`."""
        raise NotImplementedError

    def promote(self, *words: str) -> str:
        """Promote the copies of this site; returns the notes of the command."""
        return self.ottla("promote", "dr", *words, "--yes")[1]

    def ottla(self, *words: str) -> tuple[str, str]:
        """Run `ottla mirror` here; returns its output and its notes."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["mirror", *words, "-b", self.bootstrap])
        assert code == 0, err.getvalue()
        return out.getvalue(), err.getvalue()

    def rows(self) -> list[dict[str, Any]]:
        with Admin(self.bootstrap) as admin:
            rows = [row for each in admin.mirror_status("dr").values() for row in each["partitions"]]
        return sorted((row for row in rows if row["topic"] == TOPIC), key=lambda row: int(row["partition"]))

    def has_all(self) -> bool:
        return [(row["state"], row["lag"]) for row in self.rows()] == [("MIRRORING", 0)] * PARTITIONS

    def ends(self) -> dict[int, int]:
        with Admin(self.bootstrap) as admin:
            found = admin.list_offsets(dict.fromkeys(KEYS, OffsetSpec.LATEST))
        return {key.partition: each.offset for key, each in found.items()}

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


class BrokerSite(Site):
    """A site of one node."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.broker = OttlaProcess(directory, settings)
        self.broker.start()
        link = Link(self.broker.bootstrap)
        link.__enter__()
        super().__init__(link)

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def kill(self) -> None:
        self.broker.kill()

    def start(self) -> None:
        self.broker.start()

    def slow_down(self, other: Site) -> None:
        other.link.delay_s = SLOW_S

    def speed_up(self, other: Site) -> None:
        other.link.delay_s = 0.0

    def data(self) -> list[bytes]:
        """The bytes of each partition."""
        directories = [self.broker.data / str(key) for key in KEYS]
        return [b"".join(path.read_bytes() for path in sorted(each.glob("*.log"))) for each in directories]

    def close(self) -> None:
        self.link.close()
        self.broker.stop()


class Trips:
    """The two sites, and the producers, which move with the active site."""

    def __init__(self, active: Site, passive: Site, *topics: str) -> None:
        """`topics` are copied besides TOPIC."""
        self.active, self.passive = active, passive
        self.topics = (TOPIC, *topics)
        self.writers: list[Writer] = []
        self.lost = 0

    def begin(self, kinds: int) -> tuple[list[Writer], list[int]]:
        """Start `kinds` of the producers; returns them, and how many records they had before."""
        self.writers = three_writers(self.active.bootstrap, 1, self.writers)
        for writer in self.writers[:kinds]:
            writer.start()
        return self.writers[:kinds], [len(writer.acknowledged) for writer in self.writers]

    def write(self, kinds: int) -> None:
        """Write with `kinds` of the producers until each has enough records."""
        running, sizes = self.begin(kinds)
        wait_until(self._have_grown(running, sizes), TIMEOUT_S)
        stop(running)
        assert not [problem for writer in running for problem in writer.problems]

    def _have_grown(self, running: list[Writer], sizes: list[int]) -> Callable[[], bool]:
        return lambda: all(len(each.acknowledged) >= sizes[i] + RECORDS for i, each in enumerate(running))

    def planned(self) -> None:
        """The passive site becomes the active one; nothing is lost."""
        self.write(3)
        self.move()

    def move(self) -> None:
        """`planned`, when the producers are stopped."""
        before = self.active.history()
        self.passive.promote()
        assert self.passive.history() == before
        self._fail_back({})

    def unplanned(self) -> None:
        """The active site is killed while the copy is behind; it has lost its last records when it is back."""
        link = self.active.link
        link.hold()
        self.write(2)
        before, ends = self.active.history(), self.active.ends()
        # From now on each answer says how much is missing, and has few of the batches.
        self.passive.slow_down(self.active)
        link.release()
        wait_until(self._is_behind(ends), TIMEOUT_S)
        link.cut()
        self.active.kill()
        notes = self.passive.promote("--unplanned")
        missing = {int(index): int(count) for index, count in MISSING.findall(notes)}
        assert missing, notes
        after = self.passive.history()
        for index in range(PARTITIONS):
            end = ends[index] - missing.get(index, 0)
            assert after[index] == [row for row in before[index] if row[0] < end], f"partition {index}: {missing}"
        self._forget(before, after)
        self.active.start()
        self.passive.speed_up(self.active)
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
        out, _ = self.active.ottla("failback", "dr", *self.topics, "--dry-run", "--json")
        shown = [json.loads(line) for line in out.splitlines()]
        lost = [row for row in shown if row["records"] and row["topic"] == TOPIC]
        assert {row["partition"]: row["end"] - row["start"] for row in lost} == missing
        self.active.ottla("failback", "dr", *self.topics, "--yes")
        self.active, self.passive = self.passive, self.active
        wait_until(self.passive.has_all, TIMEOUT_S)
        assert self.passive.history() == self.active.history()


def disturb(link: Link | SiteLink, chance: random.Random, delay_s: float) -> str:
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
        link.delay_s = chance.uniform(0.0, 2 * delay_s)
        time.sleep(chance.uniform(0.1, 0.5))
        link.delay_s = delay_s
    time.sleep(chance.uniform(0.0, 0.5))
    return fault
