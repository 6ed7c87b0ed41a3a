"""A simulated network: it loses, delays and duplicates messages, and can isolate nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random

from tests.simulation.world.clock import SimulatedClock


class Network:
    """Delivers each message after a random delay, so that messages may overtake each other."""

    def __init__(
        self,
        clock: SimulatedClock,
        random: Random,
        *,
        loss: float = 0.1,
        duplication: float = 0.05,
        latency_ms: tuple[int, int] = (1, 30),
    ) -> None:
        self.loss = loss
        self.isolated: set[Hashable] = set()
        """Nodes that neither send nor receive."""
        self.clock = clock
        self._random = random
        self._duplication = duplication
        self._latency_ms = latency_ms

    def loses(self) -> bool:
        """Decide by chance whether one message is lost."""
        return self._random.random() < self.loss

    def latency(self) -> int:
        """Draw the delay of one message, in milliseconds."""
        return self._random.randint(*self._latency_ms)

    def send(self, source: Hashable, target: Hashable, deliver: Callable[[], object]) -> None:
        """Call `deliver` later: once, twice (a duplicate), or never (a loss or an isolated node)."""
        if source in self.isolated or self.loses():
            return

        def arrive() -> None:
            if target not in self.isolated:
                deliver()

        for _ in range(2 if self._random.random() < self._duplication else 1):
            self.clock.plan(self.latency(), arrive)
