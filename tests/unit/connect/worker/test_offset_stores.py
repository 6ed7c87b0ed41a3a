"""Which offset store serves the tasks of a connector."""

from __future__ import annotations

from ottla.connect.worker.clients import Clients
from ottla.connect.worker.offset_store import OffsetStores
from ottla.connect.worker.settings import WorkerSettings

WORKER = WorkerSettings.read(
    {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
)


def clients(user: str, password: str) -> Clients:
    names = {"username": user, "password": password}
    return Clients(WORKER, {f"consumer.override.sasl.{name}": value for name, value in names.items()})


def test_store_is_shared_by_the_tasks_of_a_user_and_replaced_with_its_password() -> None:
    stores = OffsetStores()
    first = stores.of(clients("ann", "old"), "offsets")
    assert stores.of(clients("ann", "old"), "offsets") is first
    other = stores.of(clients("bob", "old"), "offsets")
    assert other is not first
    second = stores.of(clients("ann", "new"), "offsets")
    assert second is not first
    assert stores.of(clients("ann", "new"), "offsets") is second
    assert stores.of(clients("bob", "old"), "offsets") is other
    stores.close()
