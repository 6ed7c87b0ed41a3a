"""Client quotas of a directory of stock Kafka hold on Ottla, and their changes are there when stock Kafka opens it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import QuotaEntity, QuotaName
from tests.clients.support import wait_until
from tests.clients.test_answers_in_detail import Asking
from tests.clients.test_client_quotas import produce
from tests.conftest import TEST_PROPERTIES
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .test_stock_directory import OttlaOnStock

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-quotas")]

USER, BOTH = QuotaEntity(user="ann"), QuotaEntity(user=QuotaName.DEFAULT, client_id="detail")
ADDRESS, HOST = QuotaEntity(ip=QuotaName.DEFAULT), QuotaEntity(ip="localhost")


def test_quotas_move_to_ottla_and_back(tmp_path: Path) -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    made = {
        USER: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        BOTH: {"producer_byte_rate": 1000.0, "controller_mutation_rate": 0.5},
        ADDRESS: {"connection_creation_rate": 1000.0},
        # Only Kafka resolves host names.
        HOST: {"connection_creation_rate": 2000.0},
    }
    stock = kafka.StockKafka(tmp_path / "stock", overrides=TEST_PROPERTIES)
    with stock, Admin(stock.bootstrap) as admin:
        admin.create_topic("limited", partitions=1)
        admin.alter_client_quotas(made)
        wait_until(lambda: admin.describe_client_quotas() == made, "the quotas on stock Kafka")
    ottla = OttlaOnStock(tmp_path / "ottla", tmp_path / "stock" / "node-1" / "server.properties")
    with ottla, Admin(ottla.bootstrap) as admin:
        assert admin.describe_client_quotas() == made
        with Asking(ottla.bootstrap) as connection:
            assert produce(connection, "limited", 15_000).throttle_time_ms > 1_000
        admin.alter_client_quotas({USER: {"producer_byte_rate": None}, BOTH: {"producer_byte_rate": 2000.0}})
    ottla.assert_no_traceback()
    made[USER].pop("producer_byte_rate")
    made[BOTH]["producer_byte_rate"] = 2000.0
    with stock, Admin(stock.bootstrap) as admin:
        wait_until(lambda: admin.describe_client_quotas() == made, "the quotas on stock Kafka again")
