"""The metrics that clients pushed (KIP-714). Their names are not in the table of this node's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.metrics import families as f
from ottla.common.errors import ErrorCode
from ottla.common.ids import uuid_to_text
from ottla.common.slices import Slices
from ottla.metrics.exposition import Samples, labelled
from ottla.metrics.family import COUNTER, GAUGE, Family

if TYPE_CHECKING:
    from ottla.broker.telemetry.receiver import ClientTelemetry

_AT_ONCE: Final = 1_000


def add_clients(samples: Samples, telemetry: ClientTelemetry) -> Slices[None]:
    """Add the values of all clients."""
    telemetry.expire()
    store = telemetry.series
    samples.add(f.CLIENT_INSTANCES, telemetry.instance_count)
    for code, count in telemetry.pushes.items():
        samples.add(f.CLIENT_PUSHES, count, labelled(error=ErrorCode(code).name))
    samples.add(f.CLIENT_SERIES_DROPPED, store.dropped)
    for number, (instance_id, client) in enumerate(list(store.clients.items()), 1):
        about = client.labels
        labels = labelled(
            client_id=about.client_id,
            client_instance_id=uuid_to_text(instance_id),
            client_software_name=about.software_name,
            client_software_version=about.software_version,
            client_source_address=about.source_address,
            principal=about.principal,
        )
        samples.add(f.CLIENT_INFO, 1, labels)
        if number % _AT_ONCE == 0:
            yield
    families: dict[str, Family] = {}
    for number, (name, labels, value) in enumerate(store.rows(), 1):
        family = families.get(name)
        if family is None:
            family = families[name] = _family(name, is_counter=store.counters.get(name, False))
        samples.add(family, value, labels)
        if number % _AT_ONCE == 0:
            yield


def _family(name: str, *, is_counter: bool) -> Family:
    """OpenMetrics requires the suffix `_total` of a counter, which not all names of KIP-714 have."""
    return Family(name, COUNTER if is_counter and name.endswith("_total") else GAUGE, "Pushed by clients (KIP-714).")
