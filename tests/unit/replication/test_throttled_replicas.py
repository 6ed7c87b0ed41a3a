"""The replicas that a topic's settings throttle."""

from __future__ import annotations

import pytest

from ottla.replication.throttled_replicas import throttles


@pytest.mark.parametrize(
    ("setting", "partitions"),
    [("*", None), ("", frozenset()), ("0:1,1:2,2:1", frozenset({0, 2})), (" 3:1 , 4:2 ", frozenset({3}))],
)
def test_throttled_partitions_of_a_node(setting: str, partitions: frozenset[int] | None) -> None:
    assert throttles(setting, 1) == partitions
