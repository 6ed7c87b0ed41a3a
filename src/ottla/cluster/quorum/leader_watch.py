"""Says in the log that the quorum has no leader, and which nodes could elect one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.raft import Role

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.raft import RaftCore

logger = logging.getLogger(__name__)

FIRST_MS = 5_000
INTERVAL_MS = 30_000


class LeaderWatch:
    """Logs one line after `FIRST_MS` without a leader, and again every `INTERVAL_MS`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: int | None = None
        self._next_ms = 0

    def check(self, core: RaftCore) -> None:
        """Called regularly."""
        if core.role in (Role.LEADER, Role.FOLLOWER):
            self._since_ms = None
            return
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
            self._next_ms = now_ms + FIRST_MS
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + INTERVAL_MS
        places = [
            f"{voter.key.node_id} ({', '.join(f'{each.host}:{each.port}' for each in voter.endpoints) or 'unknown'})"
            for voter in core.voters
        ] or [f"of the controllers at {', '.join(f'{node.host}:{node.port}' for node in core.config.bootstrap)}"]
        logger.warning(
            "[RaftManager id=%d] The metadata quorum has had no leader for %d s: a majority of the voters %s must run"
            " and reach each other",
            core.node_id,
            (now_ms - self._since_ms) // 1000,
            ", ".join(places),
        )
