"""Promotions and failbacks between two clusters, while nodes of both fail, records are lost and logs are compacted.

`OTTLA_SEEDS=500 pytest tests/simulation/test_mirror_promotions.py` runs more seeds.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.simulation.world.mirror_promotions import Promotions, promote

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "12")))


@pytest.mark.parametrize("seed", SEEDS)
def test_promotions_and_failbacks_lose_only_reported_records(seed: int) -> None:
    promotions = Promotions(seed)
    asyncio.events._set_running_loop(promotions.worlds.source.loop)  # type: ignore[arg-type]
    try:
        for _ in range(promotions.random.choice((1, 1, 2))):
            promote(promotions, planned=promotions.random.random() < 0.5 or promotions.hurries)
        promotions.finish()
    finally:
        asyncio.events._set_running_loop(None)
        promotions.worlds.close()
