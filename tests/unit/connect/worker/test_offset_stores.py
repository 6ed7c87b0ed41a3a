"""Which connectors share the store of their source offsets."""

from __future__ import annotations

from ottla.connect.worker.clients import Clients
from ottla.connect.worker.offset_store import OffsetStores
from ottla.connect.worker.settings import WorkerSettings

WORKER = WorkerSettings.read({"bootstrap.servers": "127.0.0.1:9", "group.id": "workers"})


def clients(**overrides: str) -> Clients:
    return Clients(WORKER, {name.replace("__", ".override.").replace("_", "."): v for name, v in overrides.items()})


def test_connectors_with_the_same_rights_share_a_store() -> None:
    stores = OffsetStores()
    assert stores.of(clients(), "offsets") is stores.of(clients(producer__linger_ms="5"), "offsets")
    assert stores.of(clients(), "offsets") is not stores.of(clients(), "others")


def test_each_user_has_a_store() -> None:
    stores = OffsetStores()
    first = stores.of(clients(consumer__sasl_username="a", consumer__sasl_password="1"), "offsets")
    assert first is not stores.of(clients(), "offsets")
    assert first is not stores.of(clients(consumer__sasl_username="b", consumer__sasl_password="1"), "offsets")
    assert first is not stores.of(clients(consumer__sasl_username="a", consumer__sasl_password="2"), "offsets")
    assert stores.of(clients(admin__sasl_username="a"), "offsets") is not stores.of(clients(), "offsets")
