"""Generates valid requests of every API and version, and corrupts them. The same seed gives the same requests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ottla.broker.served import ANSWERED
from ottla.protocol import frames, registry
from ottla.protocol.message import Struct
from ottla.protocol.plans import Plan, plans_of
from ottla.records import Codec, encode_batch

TOPICS = ("t", "t", "t", "other", "__consumer_offsets", "")
EDGES = {
    "Int8": (-128, -1, 0, 1, 2, 127),
    "Int16": (-(2**15), -1, 0, 1, 2, 2**15 - 1),
    "Int32": (-(2**31), -1, 0, 0, 1, 1, 2, 100, 100_000, 2**31 - 1),
    "Int64": (-(2**63), -2, -1, 0, 0, 1, 10, 2**40, 2**63 - 1),
    "UInt16": (0, 1, 2**16 - 1),
    "UInt32": (0, 1, 2**32 - 1),
}
LENGTHS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0")
BYTES = (0, 1, 2, 16, 127, 128, 254, 255)
# Requests must not wait longer than the tests do.
TIMEOUTS = ("timeout_ms", "max_wait_ms", "rebalance_timeout_ms", "session_timeout_ms")


def served() -> Iterator[tuple[int, int]]:
    """Every API and version that a broker advertises."""
    for key, (lowest, highest) in ANSWERED.items():
        yield from ((key, version) for version in range(lowest, highest + 1))


def make_batch(chance: random.Random) -> bytearray:
    """A batch as a producer encodes it."""
    codec = chance.choice(list(Codec))
    records = [(1_700_000_000_000 + i, b"k", b"value %d" % i, [("h", b"v")]) for i in range(chance.randint(1, 5))]
    return bytearray(encode_batch(records, codec=codec))


class Requests:
    """Generates frames, without the four bytes of size."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def frame(self, key: int, version: int) -> bytearray:
        """A well-formed request."""
        request = self.struct(registry.request_class(key), version)
        data = b"".join(frames.encode_request(request, version, self.chance.randrange(1 << 31), "fuzz"))
        return bytearray(data[4:])

    def struct(self, cls: type[Struct], version: int) -> Any:
        value = cls()
        for plan in plans_of(cls):
            if plan.exists(version) and (plan.tag is None or self.chance.random() < 0.3):
                setattr(value, plan.name, self.field(plan, version))
        return value

    def field(self, plan: Plan, version: int) -> Any:
        chance = self.chance
        if plan.may_be_null(version) and chance.random() < 0.2:
            return None
        if plan.is_list:
            return [self.item(plan, version) for _ in range(chance.choice((0, 1, 1, 2)))]
        return self.item(plan, version)

    def item(self, plan: Plan, version: int) -> Any:
        chance = self.chance
        if plan.struct is not None:
            return self.struct(plan.struct, version)
        if plan.name in TIMEOUTS:
            return chance.choice((-1, 0, 1, 20))
        if plan.kind in EDGES:
            usual = (plan.default,) * 3 if isinstance(plan.default, int) else ()
            return chance.choice((*EDGES[plan.kind], *usual))
        if plan.kind == "str":
            return chance.choice(TOPICS)
        if plan.kind == "Records":
            return self.corrupted(make_batch(chance)) if chance.random() < 0.7 else bytes(make_batch(chance))
        if plan.kind == "bytes":
            return chance.randbytes(chance.choice((0, 1, 20)))
        if plan.kind == "bool":
            return chance.random() < 0.5
        if plan.kind == "Uuid":
            return chance.choice((bytes(16), chance.randbytes(16)))
        return chance.random()

    def corrupted(self, data: bytearray) -> bytearray:
        """Corrupt a frame: set bytes, or omit, repeat or truncate a part."""
        chance = self.chance
        for _ in range(chance.randint(1, 4)):
            if not data:
                break
            at, kind = chance.randrange(len(data)), chance.random()
            if kind < 0.6:
                data[at] = chance.choice(BYTES)
            elif kind < 0.75:
                data[at : at + 4] = chance.choice(LENGTHS)
            elif kind < 0.85:
                del data[at : at + chance.randint(1, 8)]
            elif kind < 0.95:
                data[at:at] = data[at : at + chance.randint(1, 16)]
            else:
                del data[at:]
        return data
