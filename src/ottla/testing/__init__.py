"""A real broker in tests, with pytest (`plugin`) or without.

Reading order: `view` (the API for tests), `faults` and `rules` (injected faults), `interceptor` and `error_responses`
(how the broker applies them), `control` (operations on the broker), `running` and `process` (the thread or process of
the broker), `cluster` (several brokers in processes). Names are imported on first use,
since every pytest run of an environment with Ottla loads the plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.testing.base import BrokerError
    from ottla.testing.cluster import ClusterBroker, OttlaCluster
    from ottla.testing.faults import Fault, Faults
    from ottla.testing.process import ProcessBroker
    from ottla.testing.record import Record
    from ottla.testing.running import ThreadBroker
    from ottla.testing.view import GroupState, Ottla
    from ottla.testing.waiting import NotInTime

_MODULES = {
    "BrokerError": "ottla.testing.base",
    "ClusterBroker": "ottla.testing.cluster",
    "Fault": "ottla.testing.faults",
    "Faults": "ottla.testing.faults",
    "GroupState": "ottla.testing.view",
    "NotInTime": "ottla.testing.waiting",
    "Ottla": "ottla.testing.view",
    "OttlaCluster": "ottla.testing.cluster",
    "ProcessBroker": "ottla.testing.process",
    "Record": "ottla.testing.record",
    "ThreadBroker": "ottla.testing.running",
}

__all__ = [
    "BrokerError",
    "ClusterBroker",
    "Fault",
    "Faults",
    "GroupState",
    "NotInTime",
    "Ottla",
    "OttlaCluster",
    "ProcessBroker",
    "Record",
    "ThreadBroker",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
