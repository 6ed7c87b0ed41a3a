"""Evens out bytes, replicas and leaders between brokers with few moves. A pure function, and what it counts.

The planner repeats the step with the largest gain: it moves one replica, swaps two replicas of two brokers, or makes
another replica of a partition the preferred leader. The score is the sum of the squares of each broker's deviation from
the mean, and every step lowers it, so the planner ends. A step is refused if it puts two replicas of a partition on one
broker, leaves a partition in fewer racks, or widens the range between the brokers with the most and the least of
anything beyond the range at the start.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.common.ids import TopicPartition
from ottla.tools.admin.placement import Moves, Replicas, Target

# Brokers whose bytes differ by this part of the mean are balanced. Counts may differ by half of it, or by one.
_TOLERANCE = 0.1
# Smaller differences of bytes are not worth a move.
_LEAST_MEAN = 10 << 20
_GAIN = 1e-9


class Load(NamedTuple):
    """The load of a broker. Leaders are preferred leaders: the first replica of each partition."""

    size: int
    replicas: int
    leaders: int


_Sorted = list[tuple[int, TopicPartition]]


class _Step(NamedTuple):
    """New replicas of one or two partitions, and how the loads of two brokers change."""

    partitions: tuple[tuple[TopicPartition, tuple[int, ...]], ...]
    source: int
    sink: int
    moved: Load


def loads(replicas: Replicas, sizes: Mapping[TopicPartition, int], brokers: Iterable[int]) -> dict[int, Load]:
    """Return the load of each of these brokers."""
    found = dict.fromkeys(brokers, Load(0, 0, 0))
    for partition, nodes in replicas.items():
        for place, node_id in enumerate(nodes):
            if node_id in found:
                change = Load(sizes.get(partition, 0), 1, int(place == 0))
                found[node_id] = _sum(found[node_id], change)
    return found


def ranges(by_broker: Mapping[int, Load]) -> Load:
    """Return the differences between the brokers with the most and the least."""
    columns = list(zip(*by_broker.values(), strict=True))
    return Load(*(max(column) - min(column) for column in columns)) if columns else Load(0, 0, 0)


def copied(moves: Moves, before: Replicas, sizes: Mapping[TopicPartition, int]) -> int:
    """Return the bytes that the moves copy between brokers."""
    return sum(sizes.get(each, 0) * len(set(new) - set(before[each])) for each, new in moves.items())


def busiest(moves: Moves, before: Replicas, sizes: Mapping[TopicPartition, int]) -> int:
    """Return the most bytes that one broker sends or receives. The first of the old replicas counts as the sender."""
    sent, received = dict[int, int](), dict[int, int]()
    for each, new in moves.items():
        added, size = set(new) - set(before[each]), sizes.get(each, 0)
        for node_id in added:
            received[node_id] = received.get(node_id, 0) + size
        source = before[each][0]
        sent[source] = sent.get(source, 0) + size * len(added)
    return max([*sent.values(), *received.values()], default=0)


def balanced(
    replicas: Replicas,
    sizes: Mapping[TopicPartition, int],
    targets: Sequence[Target],
    *,
    fixed: Collection[TopicPartition] = (),
    most_bytes: int | None = None,
) -> Moves:
    """Return the moves, with the new replicas of each partition that changes.

    `sizes` are the bytes of one replica. Partitions in `fixed` count, and stay. The moves copy at most `most_bytes`.
    """
    if len(targets) < 2:
        return {}
    plan = _Plan(replicas, sizes, targets, fixed, most_bytes)
    # Every step lowers the score. The bound only limits the time for very large clusters.
    for _ in range(2 * sum(map(len, replicas.values()))):
        step = plan.best()
        if step is None:
            break
        plan.apply(step)
    return plan.moves()


class _Plan:
    """The replicas and loads after the steps so far."""

    def __init__(
        self,
        replicas: Replicas,
        sizes: Mapping[TopicPartition, int],
        targets: Sequence[Target],
        fixed: Collection[TopicPartition],
        most_bytes: int | None,
    ) -> None:
        self.before = {each: tuple(nodes) for each, nodes in sorted(replicas.items())}
        self.now = dict(self.before)
        self.sizes = sizes
        self.racks = {target.node_id: target.rack for target in targets}
        self.loads = loads(replicas, sizes, sorted(self.racks))
        self.copied, self.most_bytes = 0, most_bytes
        total = _sum(*self.loads.values())
        # A unit of each load: its weight in the score.
        mean = [amount / len(self.loads) for amount in total]
        self.unit = (max(mean[0], _LEAST_MEAN), max(mean[1], 1.0), max(mean[2], 1.0))
        self.tolerance = (self.unit[0] * _TOLERANCE, *(max(1.0, unit * _TOLERANCE / 2) for unit in self.unit[1:]))
        at_start = ranges(self.loads)
        self.widest = tuple(map(max, at_start, self.tolerance))
        still = set(fixed)
        # The replicas that may move, with their sizes in order: those that do not lead, and those that lead.
        self.on: dict[int, tuple[_Sorted, _Sorted]] = {node_id: ([], []) for node_id in self.loads}
        for each, nodes in self.before.items():
            # A partition with a replica on a broker that is down does not move: fewer replicas can be its source.
            if each not in still and all(node_id in self.racks for node_id in nodes):
                self._place(each, nodes)

    def _place(self, each: TopicPartition, nodes: Sequence[int]) -> None:
        for place, node_id in enumerate(nodes):
            insort(self.on[node_id][place == 0], (self.sizes.get(each, 0), each))

    def _displace(self, each: TopicPartition, nodes: Sequence[int]) -> None:
        for place, node_id in enumerate(nodes):
            replicas = self.on[node_id][place == 0]
            del replicas[bisect_left(replicas, (self.sizes.get(each, 0), each))]

    def moves(self) -> Moves:
        return {each: list(nodes) for each, nodes in self.now.items() if nodes != self.before[each]}

    def apply(self, step: _Step) -> None:
        self.copied += self._cost(step)
        for each, nodes in step.partitions:
            self._displace(each, self.now[each])
            self._place(each, nodes)
            self.now[each] = nodes
        self.loads |= self._after(step)

    def best(self) -> _Step | None:
        """Return the step with the largest gain from the broker with the largest load; None if nothing is to do."""
        if all(map(_at_most, ranges(self.loads), self.tolerance)):
            return None
        order = sorted(self.loads, key=lambda node_id: (-self._height(node_id), node_id))
        for source in order:
            sinks = [node_id for node_id in reversed(order) if node_id != source]
            # A swap copies two replicas: it comes last.
            for steps in (self._single_steps, self._swaps):
                candidates = [found for sink in sinks if (found := self._first(steps(source, sink))) is not None]
                if candidates:
                    return max(candidates, key=lambda found: found[0])[1]
        return None

    def _first(self, steps: Iterable[Iterator[_Step]]) -> tuple[float, _Step] | None:
        """Return the best of the first useful and allowed steps of each kind. The steps of a kind are in order."""
        best: tuple[float, _Step] | None = None
        for kind in steps:
            for step in kind:
                gain = self._gain(step)
                if gain <= _GAIN:
                    break
                if best is not None and gain <= best[0]:
                    break
                if self._is_allowed(step):
                    best = gain, step
                    break
        return best

    def _height(self, node_id: int) -> float:
        return sum(amount / unit for amount, unit in zip(self.loads[node_id], self.unit, strict=True))

    def _single_steps(self, source: int, sink: int) -> Iterator[Iterator[_Step]]:
        """Steps that change one partition. The gain of a move falls with the distance from half of the difference."""
        half = (self.loads[source].size - self.loads[sink].size) // 2
        for replicas in self.on[source]:
            at = bisect_left(replicas, (half,))
            for rows in (reversed(replicas[:at]), iter(replicas[at:])):
                yield (self._move(each, source, sink) for _, each in rows if sink not in self.now[each])
        leading = (each for _, each in self.on[source][True] if sink in self.now[each])
        yield (
            _Step(((each, _exchanged(self.now[each], source, sink)),), source, sink, Load(0, 0, 1)) for each in leading
        )

    def _swaps(self, source: int, sink: int) -> Iterator[Iterator[_Step]]:
        """Swaps of two replicas that both lead or both follow, for each replica of the source, the largest first."""
        half = (self.loads[source].size - self.loads[sink].size) // 2
        if half <= self.tolerance[0] / 2:
            return
        for here, there in zip(self.on[source], self.on[sink], strict=True):
            others = [row for row in there if source not in self.now[row[1]]]
            for own, each in reversed(here):
                if others and own > 0 and sink not in self.now[each]:
                    at = bisect_left(others, (own - half,))
                    near = (others[at : at + 1], others[max(0, at - 1) : at])
                    yield from (iter([self._swap(each, row[1], source, sink)]) for rows in near for row in rows)

    def _swap(self, one: TopicPartition, other: TopicPartition, source: int, sink: int) -> _Step:
        there, back = self._move(one, source, sink), self._move(other, sink, source)
        return _Step(there.partitions + back.partitions, source, sink, Load(*map(int.__sub__, there.moved, back.moved)))

    def _move(self, each: TopicPartition, source: int, sink: int) -> _Step:
        nodes = self.now[each]
        new = tuple(sink if node_id == source else node_id for node_id in nodes)
        return _Step(((each, new),), source, sink, Load(self.sizes.get(each, 0), 1, int(nodes[0] == source)))

    def _gain(self, step: _Step) -> float:
        """How much the step lowers the score; 0 if it improves nothing that is out of balance."""
        source, sink = self.loads[step.source], self.loads[step.sink]
        gain, improves = 0.0, False
        for kind, amount in enumerate(step.moved):
            difference = source[kind] - sink[kind]
            part = 2 * amount * (difference - amount) / self.unit[kind] ** 2
            improves |= part > 0 and abs(difference) > self.tolerance[kind]
            gain += part
        return gain if improves else 0.0

    def _is_allowed(self, step: _Step) -> bool:
        if self.most_bytes is not None and self.copied + self._cost(step) > self.most_bytes:
            return False
        for each, nodes in step.partitions:
            # The racks of the start count: a step may return a replica to its rack.
            if len({self.racks[node_id] for node_id in nodes}) < len({self.racks[it] for it in self.before[each]}):
                return False
        return all(map(_at_most, ranges(self.loads | self._after(step)), self.widest))

    def _cost(self, step: _Step) -> int:
        """The bytes that the step adds to those that are copied, or less than 0 if a replica returns."""
        cost = 0
        for each, nodes in step.partitions:
            old = set(self.before[each])
            cost += self.sizes.get(each, 0) * (len(set(nodes) - old) - len(set(self.now[each]) - old))
        return cost

    def _after(self, step: _Step) -> dict[int, Load]:
        return {
            step.source: Load(*map(int.__sub__, self.loads[step.source], step.moved)),
            step.sink: _sum(self.loads[step.sink], step.moved),
        }


def _at_most(amount: float, limit: float) -> bool:
    return amount <= limit


def _sum(*amounts: Load) -> Load:
    return Load(*map(sum, zip(*amounts, strict=True)))


def _exchanged(nodes: Sequence[int], one: int, other: int) -> tuple[int, ...]:
    return tuple(other if node_id == one else one if node_id == other else node_id for node_id in nodes)
