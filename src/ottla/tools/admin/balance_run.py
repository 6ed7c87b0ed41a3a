"""A run of `ottla cluster balance --execute`: a file with its moves and its throttle, so that it survives a crash.

    ~/.local/state/ottla/balance-CLUSTER.json       (or below $XDG_STATE_HOME)

The file is written before the first change of the cluster and deleted after the last one. A run that finds a file
continues it: it moves what has not moved, and removes the throttle that the file describes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ottla.clients import admin as api
from ottla.common.failure import Failure, reading
from ottla.common.ids import TopicPartition
from ottla.tools.admin.balance import Load, loads
from ottla.tools.admin.placement import Moves, Target
from ottla.tools.admin.replicas import targets_of
from ottla.tools.admin.throttle import Throttle

_VERSION = 1


class Measured(NamedTuple):
    """The cluster as the planner sees it."""

    cluster_id: str
    targets: list[Target]
    replicas: dict[TopicPartition, list[int]]
    sizes: dict[TopicPartition, int]
    """The bytes of the largest replica of each partition."""
    leaders: dict[TopicPartition, int | None]
    unready: set[TopicPartition]
    """Partitions that move, or that have a replica that is not in sync."""
    moving: dict[TopicPartition, api.Reassignment]

    def loads(self, moves: Mapping[TopicPartition, list[int]]) -> dict[int, Load]:
        """Return the load of each broker that is up, after the moves."""
        return loads(self.replicas | dict(moves), self.sizes, [target.node_id for target in self.targets])


class Run(NamedTuple):
    """The moves of a run: the replicas of each partition before and after it, and its throttle."""

    before: Moves
    after: Moves
    throttle: Throttle


def measure(admin: api.Admin) -> Measured:
    """Read where the replicas are, and their bytes."""
    cluster_id, targets = admin.describe_cluster().cluster_id, targets_of(admin)
    moving = admin.list_partition_reassignments()
    names = [topic.name for topic in admin.list_topics(include_internal=True)]
    replicas: dict[TopicPartition, list[int]] = {}
    leaders: dict[TopicPartition, int | None] = {}
    unready = set(moving)
    for name, topic in (admin.describe_topics(names) if names else {}).items():
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition)
            move = moving.get(partition)
            leaving = set(move.removing) if move is not None else set()
            replicas[partition] = [node_id for node_id in each.replicas if node_id not in leaving]
            leaders[partition] = each.leader
            if each.leader is None or set(each.isr) != set(each.replicas):
                unready.add(partition)
    sizes = dict.fromkeys(replicas, 0)
    for directories in admin.describe_log_dirs([target.node_id for target in targets]).values():
        for directory in directories:
            for partition, replica in directory.replicas.items():
                if partition in sizes and not replica.is_future:
                    sizes[partition] = max(sizes[partition], replica.size)
    return Measured(cluster_id, targets, replicas, sizes, leaders, unready, moving)


def remaining(run: Run, measured: Measured) -> tuple[Moves, list[TopicPartition]]:
    """Return the moves of a run that are not complete, and those that it cannot continue.

    It cannot continue a move if the topic was deleted, another tool moved the partition, or a new broker is down.
    """
    up = {target.node_id for target in measured.targets}
    left: Moves = {}
    lost = []
    for partition, new in run.after.items():
        now = measured.replicas.get(partition)
        if now is not None and partition in measured.moving and set(now) == set(new):
            left[partition] = new
        elif now == new:
            continue
        elif now == run.before[partition] and partition not in measured.moving and up.issuperset(new):
            left[partition] = new
        else:
            lost.append(partition)
    # The moves that have started come first.
    return dict(sorted(left.items(), key=lambda item: item[0] not in measured.moving)), lost


def path_of(cluster_id: str) -> Path:
    """Return the path of the file, which need not exist."""
    base = os.environ.get("XDG_STATE_HOME")
    directory = Path(base) if base else Path.home() / ".local" / "state"
    return directory / "ottla" / f"balance-{quote(cluster_id, safe='')}.json"


@contextmanager
def alone(cluster_id: str) -> Iterator[None]:
    """Prevent a second run of this user for the cluster. Raises Failure if there is one."""
    path = path_of(cluster_id).with_suffix(".lock")
    with _writing(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Failure("another `ottla cluster balance` of this user runs", "Wait until it ends.") from error
        yield


def load(cluster_id: str) -> Run | None:
    """Read the run that did not end; None if there is none. Raises Failure if the file is corrupt."""
    path = path_of(cluster_id)
    with reading(str(path)):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            raise ValueError(content["version"])
        rows = [(TopicPartition(topic, int(index)), old, new) for topic, index, old, new in content["moves"]]
        before = {each: list(map(int, old)) for each, old, _ in rows}
        after = {each: list(map(int, new)) for each, _, new in rows}
        rate, previous, added = (content["throttle"][name] for name in Throttle._fields)
        throttle = Throttle(
            int(rate),
            {int(node_id): dict(rates) for node_id, rates in previous.items()},
            {topic: {name: list(entries) for name, entries in lists.items()} for topic, lists in added.items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Failure(
            f"{path} is not a file of `ottla cluster balance`",
            "Remove it. Its throttle may remain: `ottla config list broker ID` and `topic NAME` show it.",
        ) from error
    return Run(before, after, throttle)


def save(cluster_id: str, run: Run) -> None:
    """Write the file atomically and durably."""
    path = path_of(cluster_id)
    content = {
        "version": _VERSION,
        "moves": [[*each, run.before[each], new] for each, new in run.after.items()],
        "throttle": run.throttle._asdict(),
    }
    draft = path.with_suffix(f".{os.getpid()}.new")
    with _writing(path):
        with draft.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def forget(cluster_id: str) -> None:
    """Delete the file of a run that ended."""
    path = path_of(cluster_id)
    with _writing(path):
        path.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}", "$XDG_STATE_HOME may be elsewhere.") from error
