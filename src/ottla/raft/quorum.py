"""Majorities as functions on sets: the outcome of an election, and the offset that a majority has."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def majority(voters: Collection[int]) -> int:
    """The smallest number of voters such that two groups of that size have a common voter."""
    return len(voters) // 2 + 1


def is_won(voters: Collection[int], granted: Collection[int]) -> bool:
    """Whether the granted votes are a majority. Votes of other nodes do not count."""
    return len(set(voters) & set(granted)) >= majority(voters)


def majority_offset(voters: Collection[int], end_offsets: Mapping[int, int]) -> int:
    """The highest offset up to which a majority of the voters has the log. A voter without a known offset has -1."""
    held = sorted((end_offsets.get(voter, -1) for voter in voters), reverse=True)
    return held[majority(voters) - 1]
