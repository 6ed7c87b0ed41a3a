"""Promotions and failbacks of the mirror between two simulated clusters, with producers and their promises.

A promotion is the command of an operator: it reads reports of nodes that may be old when it acts. The brokers' code
makes the reports, and the code of `ottla mirror promote` decides. Each cluster gives its producers the ids from 0 on.

Checked at each promotion: a planned one keeps every acknowledged record. An unplanned one keeps the acknowledged
records before the end of the copy; if the source cannot be reached, exactly the reported number of offsets is missing,
also if leaders of the copy are lost meanwhile.
Checked in each log: each value is there at most once, an acknowledged one at its offset. A transaction is visible
completely or not at all. No record of a client is behind the generation's first offset before the last marker that
removes producers. At the end, nothing is left of open transactions, and all logs are equal.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

from ottla.common.errors import KafkaError
from ottla.common.ids import TopicPartition
from ottla.log import Log
from ottla.log.transaction_marker import FORGET_PRODUCER, read_marker
from ottla.metadata.mirrors import FAILBACK, MIRRORING, STOPPED, STOPPING, generation_start
from ottla.partitions.partition import Partition
from ottla.records import decode_batch, iter_batches
from ottla.tools.admin.mirrors import behind, missing, unready, unreported
from tests.simulation.world.cleaned_replicas import Cleaners
from tests.simulation.world.mirror_writers import Promises, Writer
from tests.simulation.world.mirrored_replicas import REFRESH_MS, MirroredReplicas, MirrorWorld
from tests.simulation.world.replicas import TOPIC, contents

WRITERS: Final = 4
PARTITIONS: Final = [(TOPIC, 0)]
COMPACTED: Final = {
    "cleanup.policy": ["compact"],
    "segment.bytes": 500,
    "index.interval.bytes": 0,
    "min.cleanable.dirty.ratio": 0.0,
    "file.delete.delay.ms": 0,
}


class Row(NamedTuple):
    """A record of a log; `is_visible` for readers with read_committed."""

    offset: int
    is_visible: bool


class LogView:
    """The records of a log by value, as an independent reader sees them."""

    def __init__(self, log: Log, end: int) -> None:
        self.rows: dict[bytes, list[Row]] = {}
        self.open_producers: dict[int, list[tuple[int, bytes]]] = {}
        """Records of transactions without an end, by producer id."""
        self.client_epochs: list[tuple[int, bool]] = []
        """Leader epoch of each batch, and whether it is a marker that removes a producer."""
        offset = log.log_start_offset
        while offset < end:
            data = bytes(log.read(offset, 1 << 20, end))
            if not data:
                break
            for position, header in iter_batches(data):
                offset = header.next_offset
                marker = read_marker(data[position : position + header.size], 0) if header.is_control else None
                forgets = marker is not None and marker.coordinator_epoch == FORGET_PRODUCER
                self.client_epochs.append((header.partition_leader_epoch, forgets))
                if header.is_control:
                    ended = self.open_producers.pop(header.producer_id, [])
                    self._add(ended, is_visible=marker is not None and not marker.aborted)
                    continue
                found = [(each.offset, each.value or b"") for each in decode_batch(data, position)]
                if header.is_transactional:
                    self.open_producers.setdefault(header.producer_id, []).extend(found)
                else:
                    self._add(found, is_visible=True)

    def _add(self, records: list[tuple[int, bytes]], *, is_visible: bool) -> None:
        for offset, value in records:
            self.rows.setdefault(value, []).append(Row(offset, is_visible))

    def stored(self) -> dict[bytes, list[int]]:
        """The offsets of each value, also of open transactions."""
        found = {value: [row.offset for row in rows] for value, rows in self.rows.items()}
        for records in self.open_producers.values():
            for offset, value in records:
                found.setdefault(value, []).append(offset)
        return found

    def offsets(self) -> dict[bytes, int]:
        """The first offset of each value."""
        return {value: offsets[0] for value, offsets in self.stored().items()}

    def is_visible(self, value: bytes) -> bool:
        return any(row.is_visible for row in self.rows.get(value, ()))


class Promotions:
    """The operator, the producers and the checks of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.is_compacted = seed % 4 == 3
        # An election makes a planned promotion an unplanned one, and compacted seeds have few planned ones.
        self.has_elections = seed % 8 != 3
        # The operator acts when the last record is acknowledged, and the leader in the source fails at that moment.
        self.hurries = seed % 5 == 4
        self.worlds = MirroredReplicas(seed, COMPACTED if self.is_compacted else {})
        self.random = self.worlds.source.random
        self.promises = Promises()
        self.done: Counter[str] = Counter()
        self._producer_ids: Counter[MirrorWorld] = Counter()
        """The next producer id of each cluster."""
        self.writers = self._new_writers(self.worlds.source)
        self.former: list[Writer] = []
        """Producers of the previous source, which do not know of the promotion."""
        self._cleaners = Cleaners()
        self._elections = 0

    def _new_writers(self, world: MirrorWorld) -> list[Writer]:
        """Producers of a cluster that becomes active, with ids that the other cluster has given, too."""
        name = f"{sum(self.done.values())}"
        first = self._producer_ids[world]
        self._producer_ids[world] += WRITERS
        return [Writer(world, name, first + index, self.promises) for index in range(WRITERS)]

    def fail(self, problem: str) -> str:
        return f"{problem} (seed {self.seed}, {self.worlds.source.loop.now_ms} ms)"

    # -- events --------------------------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        """Let time pass in parts, in each of which the producers write."""
        for _ in range(max(1, milliseconds // REFRESH_MS)):
            for writer in (*self.writers, *self.former):
                writer.step(ends_transactions=False)
            self.worlds.run(min(milliseconds, REFRESH_MS))
        for world in self.worlds.worlds:
            world.check_lag()
        if not self.is_compacted:
            self.worlds.check()

    def disturb(self) -> None:
        """Perhaps kill, cut off or start a node, elect a leader, or compact a log."""
        worlds, random = self.worlds, self.random
        world = random.choice(worlds.worlds)
        node_id, event = random.choice((1, 2, 3)), random.random()
        if event < 0.2:
            worlds.kill(world, node_id, power=random.random() < 0.4)
        elif event < 0.25:
            world.isolate(node_id)
        elif event < 0.28 and world.nodes[node_id].up and not world.cut:
            world.cut.add(node_id)  # the controller has not noticed it yet: the node stays in sync
        elif event < 0.31:
            worlds.is_link_cut = not worlds.is_link_cut
        elif event < 0.35 and self.has_elections:
            self.elect_uncleanly()
        elif event < 0.5:
            world.heal()
            world.start(node_id)
        elif event < 0.7 and self.is_compacted:
            self._compact(random.choice(worlds.worlds), node_id)

    def _compact(self, world: MirrorWorld, node_id: int) -> None:
        node = world.nodes[node_id]
        if node.up and node.logs.get(TopicPartition(TOPIC, 0)) is not None:
            self._cleaners.step(node)

    def elect_uncleanly(self) -> None:
        """The active cluster may lose records, and its transactions."""
        elected = self.worlds.elect_uncleanly()
        if elected is not None:
            log, self._elections = elected.log, self._elections + 1
            epoch = self.worlds.source.partition.leader_epoch
            # The new leader may have written markers already.
            own = [each.start_offset for each in log.epochs.entries if each.epoch >= epoch]
            survivors = LogView(log, log.log_end_offset).offsets()
            self.promises.forget(min([log.high_watermark, *own]), survivors, tears=True)

    # -- the operator --------------------------------------------------------------------------------------------

    def fail_over(self, *, planned: bool) -> None:
        """Promote the target. Its producers begin when the command has ended."""
        worlds, elections = self.worlds, self._elections
        self.former = []
        if planned:
            if self.hurries:
                self._wait_for_replicas()
            self._stop_writers()
            if self.hurries:
                self._replace_leader()
            # An unclean election meanwhile loses records that the copy may need.
            planned = self._wait_for_last_records() and elections == self._elections
        self.done["planned" if planned else "unplanned"] += 1
        reported = worlds.leader_row(worlds.target)
        is_known = reported is not None and int(str(reported.get("age_ms", -1))) >= 0
        is_lost = not planned and self.random.random() < 0.5
        if is_lost:
            # The source is lost behind a link that is cut.
            worlds.is_link_cut = True
            for node_id in worlds.source.nodes:
                worlds.kill(worlds.source, node_id, power=False)
        worlds.target.move(STOPPING)
        self._repeat_until(lambda: not self._unready(), is_lost=is_lost)
        after: list[Any] = worlds.rows(worlds.target)
        worlds.target.move(STOPPED)
        if self.random.random() < 0.3:
            worlds.kill(worlds.target, worlds.target.partition.leader, power=self.random.random() < 0.4)
        partition = self._open_leader()
        start = own_start(partition)
        for writer in self.writers:
            writer.is_heard = False
        if is_lost and reported is not None and is_known and self._elections == elections:
            lost = max(int(str(reported["source_end"])) - start, 0)
            found = sum(each.records for each in missing([reported], after))
            assert lost == found, self.fail(f"{lost} offsets are lost, and {found} were reported")
        if not planned and (self._elections or not is_known):
            # The log may still have records that the source does not have, in place of the source's.
            view = LogView(partition.log, start)
            self.promises.forget(0, view.offsets(), tears=True)
        self._check_kept(partition, start, planned=planned)
        self.promises.forget(start)
        self._elections = 0
        worlds.source, worlds.target = worlds.target, worlds.source
        self.former = [] if is_lost or planned else self.writers
        self.writers = self._new_writers(worlds.source)

    def _check_kept(self, partition: Partition, start: int, *, planned: bool) -> None:
        """The copy has the acknowledged records before its end; after a planned promotion, all of them."""
        for value, (offset, _) in self.promises.acknowledged.items():
            problem = f"{value!r} at {offset} was acknowledged, and the copy ends at {start}"
            assert offset < start or not planned, self.fail(problem)
        self._check_promises(LogView(partition.log, start), start)

    def _wait_for_replicas(self) -> None:
        """Repair everything, so that the last records have followers in the source, and the copy is close behind."""
        worlds = self.worlds
        for _ in range(50):
            worlds.is_link_cut = False
            for world in worlds.worlds:
                self._repair(world)
            self.run(REFRESH_MS)
            if all(len(world.partition.isr) == len(world.nodes) for world in worlds.worlds):
                return

    def _stop_writers(self) -> None:
        for writer in self.writers:
            writer.is_stopping = True
        step_ms = 1 if self.hurries else REFRESH_MS
        for passed_ms in range(0, 60_000, step_ms):
            if all(writer.is_idle for writer in self.writers):
                return
            if passed_ms % REFRESH_MS == 0:
                self._repair(self.worlds.source)
            self.run(step_ms)
        raise AssertionError(self.fail("producers do not stop"))

    def _replace_leader(self) -> None:
        """Kill the leader in the source; a follower that hangs keeps the next one from knowing what is committed."""
        source = self.worlds.source
        self.worlds.kill(source, source.partition.leader, power=False)
        followers = sorted(set(source.partition.isr) - {source.partition.leader})
        source.cut.update(followers[:1])

    def _wait_for_last_records(self) -> bool:
        """Whether the copy is complete before the operator gives up."""
        worlds, started_ms = self.worlds, self.worlds.source.loop.monotonic_ms()
        for attempt in range(60):
            if self.hurries and attempt < 20:
                self.run(self.random.choice((1, 5)))
            else:
                self.disturb()
                self.run(self.random.choice((5, REFRESH_MS, 500)))
            rows: list[Any] = worlds.rows(worlds.target)
            age_ms = worlds.source.loop.monotonic_ms() - started_ms
            if not unreported(PARTITIONS, rows) and not behind(rows, age_ms):
                # The command acts on a report that may be old.
                self.run(self.random.choice((0, 5, REFRESH_MS)))
                return True
        return False

    def _unready(self) -> bool:
        rows: list[Any] = self.worlds.rows(self.worlds.target)
        return bool(unreported(PARTITIONS, rows) or unready(rows))

    def _repeat_until(self, condition: Any, *, is_lost: bool) -> None:
        """Let nodes of the target fail, and later repair them, until the condition is true."""
        worlds, random = self.worlds, self.random
        for attempt in range(400):
            self.run(random.choice((5, REFRESH_MS, 500)))
            if condition():
                self.run(random.choice((0, 0, 5, REFRESH_MS)))
                return
            if attempt >= 20:
                self._repair(worlds.target)
            elif is_lost:
                worlds.kill(worlds.target, random.choice((1, 2, 3)), power=random.random() < 0.4)
                worlds.target.start(random.choice((1, 2, 3)))
            else:
                self.disturb()
        raise AssertionError(self.fail("the promotion does not end"))

    def _open_leader(self) -> Partition:
        """Wait for a leader of the target that accepts records of clients."""
        target = self.worlds.target
        for _ in range(300):
            self._repair(target)
            self.run(REFRESH_MS)
            node = target.nodes.get(target.partition.leader)
            partition = None if node is None else node.leads
            if partition is not None and partition.leader_epoch == target.partition.leader_epoch:
                is_complete = partition.high_watermark == partition.log.log_end_offset
                if partition.refusal is None and is_complete:
                    return partition
        raise AssertionError(self.fail("the promoted topic has no leader that accepts records"))

    def _repair(self, world: MirrorWorld) -> None:
        world.heal()
        for node_id in world.nodes:
            world.start(node_id)

    def fail_back(self) -> None:
        """The old source becomes the copy."""
        worlds = self.worlds
        worlds.target.move(FAILBACK)
        self.done["failback"] += 1
        for _ in range(400):
            self.disturb()
            self.run(self.random.choice((5, REFRESH_MS, 500)))
            if worlds.target.state == MIRRORING:
                return
            worlds.is_link_cut = False
            self._repair(self.random.choice(worlds.worlds))
        raise AssertionError(self.fail("the failback does not begin"))

    # -- checks --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Repair everything, end the transactions, and compare the logs."""
        worlds = self.worlds
        worlds.settle()
        for writer in self.writers:
            writer.is_stopping = True
        self.former = []
        for _ in range(600):
            for writer in self.writers:
                writer.step()
            worlds.run(REFRESH_MS)
            if all(writer.is_idle for writer in self.writers):
                break
        for writer in self.writers:
            writer.step()
        worlds.settle()
        logs = [node.log for world in worlds.worlds for node in world.nodes.values()]
        for log in logs:
            end = log.log_end_offset
            assert log.high_watermark == end, self.fail(f"{log} ends at {end}, committed are {log.high_watermark}")
            view = LogView(log, end)
            assert not view.open_producers, self.fail(f"open transactions: {view.open_producers}")
            assert log.producers.first_unstable_offset is None
            self._check_promises(view, end)
            check_markers(view, self.fail("a marker that removes producers is behind records of clients"))
        if not self.is_compacted:
            worlds.check_equal()
            assert len({contents(log) for log in logs}) == 1

    def _check_promises(self, view: LogView, end: int) -> None:
        stored = view.stored()
        twice = {value: offsets for value, offsets in stored.items() if len(offsets) > 1}
        assert not twice, self.fail(f"{twice} are there twice")
        for value, (offset, key) in self.promises.acknowledged.items():
            found = stored.get(value)
            if offset < end and found != [offset]:
                superseded = self.is_compacted and found is None
                assert superseded, self.fail(f"{value!r} was acknowledged at {offset} and is at {found}")
                if any(value in each.values for each in self.promises.transactions):
                    continue  # It may have been aborted.
                # A copy of a compacted log may end between a record and the record that replaced it at the source.
                is_superseded = self.promises.may_be_compacted(value, key, offset)
                assert is_superseded, self.fail(f"{value!r} at {offset} is not superseded")
        for each in self.promises.transactions:
            if each.may_be_torn or self.is_compacted:
                continue
            visible = sum(view.is_visible(value) for value in each.values)
            assert visible in (0, len(each.values)), self.fail(f"{visible} of {each.values} are visible")
            if each.is_committed is not None and each.end_offset < end:
                wanted = len(each.values) if each.is_committed else 0
                assert visible == wanted, self.fail(f"{visible} of {each.values} are visible, not {wanted}")


def own_start(partition: Partition) -> int:
    """The first offset of the leader's generation: the end of the copy."""
    first, log = generation_start(partition.leader_epoch), partition.log
    return next((each.start_offset for each in log.epochs.entries if each.epoch >= first), log.log_end_offset)


def check_markers(view: LogView, problem: str) -> None:
    """Raise AssertionError if a generation has a marker that removes a producer behind records of its clients."""
    begun: set[int] = set()
    for epoch, forgets in view.client_epochs:
        generation = generation_start(epoch)
        assert not forgets or generation not in begun, problem
        if not forgets:
            begun.add(generation)


def promote(worlds: Promotions, *, planned: bool) -> None:
    """A promotion and the failback, with failures before, between and after."""
    for _ in range(worlds.random.choice((3, 8, 15))):
        worlds.disturb()
        worlds.run(worlds.random.choice((0, 5, 20, 100, 400)))
    worlds.fail_over(planned=planned)
    for _ in range(worlds.random.choice((0, 3, 8))):
        worlds.disturb()
        worlds.run(worlds.random.choice((0, 5, 20, 100, 400)))
    try:
        worlds.fail_back()
    except KafkaError as error:
        raise AssertionError(worlds.fail(f"the failback was refused: {error}")) from error
