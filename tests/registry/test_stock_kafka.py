"""A registry on stock Kafka: failures of the primary lose no schema there either."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import StockKafka
from tests.registry.nodes import GROUPS, nodes, schemas_of
from tests.registry.registrations import Registrations, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240), pytest.mark.xdist_group("stock-registry")]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockKafka]:
    if missing := missing_for_jvm():
        (pytest.fail if in_ci() else pytest.skip)(missing)
    with StockKafka(tmp_path_factory.mktemp("stock"), overrides=GROUPS) as running:
        yield running


def test_killed_and_paused_primaries_lose_no_schema(stock: StockKafka, tmp_path: Path) -> None:
    with nodes(tmp_path, stock.bootstrap, 3) as every:
        first, second, third = every
        with Registrations([node.url for node in every], threads=4) as clients:
            clients.wait_for(50)
            first.kill()
            clients.wait_for(50)
            second.signal(signal.SIGSTOP)
            wait_until(lambda: "This node is the primary" in third.log())
            second.signal(signal.SIGCONT)
            clients.wait_for(50)
            first.start()
        clients.check([node.url for node in every], lambda: schemas_of(stock.bootstrap))
