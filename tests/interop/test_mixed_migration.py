"""Three nodes of stock Kafka become three nodes of Ottla, one after the other, under load; and one step back.

Each Ottla node runs with the server.properties and the directory of the stock node whose place it takes. Nothing that
was acknowledged is lost, repeated or out of order, transactions stay whole, and groups keep their offsets.
tests/chaos/test_migration.py has the longer variants.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.migration import SETTINGS, Migration
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import StockKafka


@pytest.mark.jvm
@pytest.mark.timeout(300)
def test_three_stock_nodes_become_ottla_nodes_under_load_and_one_goes_back(tmp_path: Path) -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    with StockKafka(tmp_path, brokers=3, overrides=SETTINGS) as stock, Migration(stock) as migration:
        migration.start_load()
        migration.settle()
        for node_id in (1, 2, 3):
            migration.to_ottla(node_id)
            migration.settle()
        migration.to_stock(2)
        migration.settle()
        migration.finish()
