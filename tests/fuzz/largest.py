"""The largest legal requests of each API: as many elements as a broker decodes, in each array that a request has.

The requests are generated from the declarations, so that a new API or field is tested as soon as it is declared.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from ottla.broker.served import ANSWERED
from ottla.protocol import frames, registry
from ottla.protocol.message import Struct
from ottla.protocol.plans import ZERO, Plan, plans_of
from ottla.protocol.wire import MAX_PRODUCE_ELEMENTS, MAX_REQUEST_ELEMENTS
from ottla.records import encode_batch

PRODUCE = 0
TOPIC, GROUP, NODE = "t", "g", "1"
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
SHARE_STATE = range(83, 88)
"""The requests of leaders of share partitions to the share coordinator.

Each of their elements is a request to a shard, which takes 50 to 400 us: an eighth of the elements exceeds the limit of
an iteration if the work is not divided. With all elements these five APIs would take half of the time of all APIs.
"""
SMALLER = 8
# No test waits longer for a response that may be delayed.
_PATIENCE = {"timeout_ms": 1000, "max_wait_ms": 100, "rebalance_timeout_ms": 1000, "session_timeout_ms": 6000}
_TOPICS = {"topic", "name", "topic_name", "topic_names", "resource_name"}
_NULLS = {"transactional_id", "group_instance_id", "rack_id"}
_GROUPS = {"groups", "groups_names", "group_id", "coordinator_keys"}


# Makes the value of an element with this number.
Make: TypeAlias = Callable[[int], Any]


class Request(NamedTuple):
    """One frame, without its size."""

    title: str
    key: int
    version: int
    frame: bytes


class World(NamedTuple):
    """The state of the broker: a topic with this many partitions."""

    topic_id: bytes
    partitions: int


def largest_requests(key: int, world: World) -> Iterator[Request]:
    """For each array of the request: the largest request with one repeated element, and with different elements.

    Requests to the share coordinator have fewer elements, except the request with the largest response.
    """
    cls = registry.request_class(key)
    version = ANSWERED[key][1]
    for path in _arrays(cls, version):
        for same in (True, False):
            maker = _Maker(version, world, path, same=same)
            maker.most = MAX_PRODUCE_ELEMENTS if key == PRODUCE else MAX_REQUEST_ELEMENTS
            # The largest response and the most memory: different topics.
            if key in SHARE_STATE and (same or path != ("topics",)):
                maker.most //= SMALLER
            gc.disable()  # it would search the growing list of elements again and again
            try:
                message = maker.message(cls)
                frame = b"".join(frames.encode_request(message, version, 7, "largest"))[4:]
                del message
            finally:
                gc.enable()
            what = "the same" if same else "different ones"
            yield Request(f"{registry.API[key].name} {'.'.join(path) or '-'}, {what}", key, version, frame)


def _arrays(cls: type[Struct], version: int) -> list[tuple[str, ...]]:
    """The paths of all arrays in a struct; one empty path if it has no array."""
    return list(_find(cls, version)) or [()]


def _find(cls: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    for plan in plans_of(cls):
        if not plan.exists(version):
            continue
        if plan.is_list:
            yield (plan.name,)
        if plan.struct is not None:
            yield from ((plan.name, *rest) for rest in _find(plan.struct, version))


class _Maker:
    """Fills one array, and puts one element into each array above and below it.

    A request has up to 150,000 elements. All that does not depend on the number of an element is therefore decided
    once, in functions that return a function of the number.
    """

    def __init__(self, version: int, world: World, path: tuple[str, ...], *, same: bool) -> None:
        self.version = version
        self.world = world
        self.path = path
        self.same = same
        self.most = MAX_REQUEST_ELEMENTS
        self.batch = encode_batch([(1_700_000_000_000, b"k", b"v", [])])

    def message(self, cls: type[Struct]) -> Any:
        return self._struct(cls, ())(0)

    def _struct(self, cls: type[Struct], at: tuple[str, ...]) -> Make:
        """Make elements. Fields that do not depend on the number are made once for all elements of the array."""
        constants: dict[str, Any] = {}
        changing: list[tuple[str, Make]] = []
        for plan in plans_of(cls):
            if plan.exists(self.version) and plan.tag is None:
                below = (*at, plan.name)
                make = self._field(plan, below)
                # Not the array, nor an element around it, which are large.
                if below != self.path[: len(below)] and (value := make(1)) == make(2):
                    constants[plan.name] = value
                else:
                    changing.append((plan.name, make))
        is_resource = any(plan.name == "resource_type" for plan in plans_of(cls))

        def element(number: int) -> Any:
            made = cls(**constants)
            for name, make in changing:
                setattr(made, name, make(number))
            if is_resource:
                self._resource(made, number)
            return made

        return element

    def _resource(self, made: Any, number: int) -> None:
        made.resource_type = BROKER_RESOURCE if self.same else (TOPIC_RESOURCE, GROUP_RESOURCE)[number % 2]
        made.resource_name = NODE if self.same else f"some-{number}"

    def _field(self, plan: Plan, at: tuple[str, ...]) -> Make:
        make = self._value(plan, at)
        if not plan.is_list:
            return make
        if at == self.path:
            below = 1 + (_below(plan.struct, self.version) if plan.struct is not None else 0)
            count = (self.most - len(at) - 10) // below
            if self.same:
                return lambda _: [make(0)] * count
            return lambda _: [make(i) for i in range(count)]
        if at == self.path[: len(at)]:
            return lambda number: [make(number)]
        is_optional = plan.name in ("configuration_keys", "assignments", "configs")
        if is_optional or at[: len(self.path)] != self.path:
            return _always(None if plan.may_be_null(self.version) and is_optional else [])
        return lambda number: [make(number)]

    def _value(self, plan: Plan, at: tuple[str, ...]) -> Make:
        if plan.struct is not None:
            return self._struct(plan.struct, at)
        name = plan.name
        if plan.kind == "str":
            return _always(None) if plan.may_be_null(self.version) and name in _NULLS else self._text(name)
        if plan.kind == "Uuid":
            return _always(self.world.topic_id) if self.same else lambda number: number.to_bytes(16, "big")
        if plan.kind == "Records":
            return _always(self.batch)
        if plan.kind.startswith("Int") and ("partition" in name or "index" in name):
            if name == "num_partitions":
                return _always(1)
            partitions = 2 * self.world.partitions
            return _always(0) if self.same else lambda number: number % partitions
        if name in ("session_id", "session_epoch"):
            return _always(0)
        if name == "replication_factor":
            return _always(1)
        if name == "acks":
            return _always(-1)
        if name == "resource_types":
            return _always(TOPIC_RESOURCE)
        return _always(ZERO[plan.kind] if plan.is_list else _PATIENCE.get(name, plan.default))

    def _text(self, name: str) -> Make:
        known, prefix = (TOPIC, "unknown") if name in _TOPICS else (GROUP, "group") if name in _GROUPS else (name, name)
        return _always(known) if self.same else lambda number: f"{prefix}-{number}"


def _always(value: Any) -> Make:
    return lambda _: value


def _below(cls: type[Struct], version: int) -> int:
    """The elements in one struct with one element in each of its arrays."""
    count = 0
    for plan in plans_of(cls):
        if plan.exists(version) and plan.tag is None and (plan.is_list or plan.struct is not None):
            count += plan.is_list + (_below(plan.struct, version) if plan.struct is not None else 0)
    return count
