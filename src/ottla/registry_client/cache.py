"""A bounded cache: the least recently used entry is evicted. Safe for threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """At most `capacity` values, each until its time `expires`, which the caller's clock gives (None: no end)."""

    __slots__ = ("_capacity", "_lock", "_values")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._values: OrderedDict[Hashable, tuple[V, float | None]] = OrderedDict()

    def get(self, key: Hashable, now: float = 0.0) -> V | None:
        with self._lock:
            found = self._values.get(key)
            if found is None or (found[1] is not None and found[1] <= now):
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, expires: float | None = None) -> None:
        with self._lock:
            self._values[key] = (value, expires)
            self._values.move_to_end(key)
            if len(self._values) > self._capacity:
                self._values.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
