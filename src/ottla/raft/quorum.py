"""Majorities as functions on sets: who has won, and up to where a majority holds the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def majority(voters: Collection[int]) -> int:
    """The smallest number of voters such that two groups of that size share one."""
    return len(voters) // 2 + 1


def is_won(voters: Collection[int], granted: Collection[int]) -> bool:
    """Whether those who granted their vote are a majority; who is no voter does not count."""
    return len(set(voters) & set(granted)) >= majority(voters)


def majority_offset(voters: Collection[int], end_offsets: Mapping[int, int]) -> int:
    """The highest offset up to which a majority of the voters holds the log; 0 for voters who were not heard of."""
    held = sorted((end_offsets.get(voter, 0) for voter in voters), reverse=True)
    return held[majority(voters) - 1]
