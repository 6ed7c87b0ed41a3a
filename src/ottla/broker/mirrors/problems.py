"""The problems of a mirror on one node, until they are solved."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Measures(NamedTuple):
    """Figures of a mirror on one node."""

    problems: int
    groups_age_ms: int
    """How long ago all offsets of groups were copied; -1 if they were not."""


class Problems:
    """The problems of a mirror on this node."""

    def __init__(self) -> None:
        self.of_mirror = ""
        """Why the last comparison with the source failed."""
        self.of_nodes: dict[int, str] = {}
        """Why nodes of the source, by id, do not answer the fetches of this node."""
        self.of_source: dict[str, str] = {}
        """Why topics, by name, cannot follow the source; known to the active controller and its stand-in."""
        self.of_promotion: dict[str, str] = {}
        """Why the producers of the source are not removed yet from topics, on the leaders of this node."""

    @property
    def of_topics(self) -> dict[str, str]:
        """The problems of single topics."""
        return self.of_source | self.of_promotion

    def of_link(self, leaders: Collection[int]) -> str:
        """Why this node copies less than it should; `leaders` are the nodes of the source that it fetches from."""
        # A node that leads nothing any more may never answer again.
        return self.of_mirror or next((text for node_id, text in self.of_nodes.items() if node_id in leaders), "")

    def no_answer(self, node_id: int, problem: str) -> None:
        """Report that a node of the source does not answer."""
        self.of_nodes[node_id] = (
            f"Node {node_id} of the source does not answer: {problem}; each broker of this cluster must reach the "
            "address that the node advertises"
        )

    def throttled(self, node_id: int, throttle_ms: int) -> None:
        """Report that a quota of the source delays a node's answers."""
        self.of_nodes[node_id] = (
            f"Node {node_id} of the source delays the next answer by {throttle_ms / 1000:.1f} s, by its quota; raise "
            "consumer_byte_rate or request_percentage of the mirror's user there"
        )

    def answered(self, node_id: int) -> None:
        """A node of the source answers again."""
        self.of_nodes.pop(node_id, None)
