"""A group of an unsupported type, which `unserved` lists and does not change."""

from __future__ import annotations


class UnservedGroup:
    """The keys of a group's records without a tombstone."""

    __slots__ = ("group_id", "keys")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # Invariant: never empty while the group is in `Core.unserved`.
        self.keys: set[bytes] = set()
