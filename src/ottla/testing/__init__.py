"""A real broker in tests: the pytest plugin (`plugin`), and the same without pytest; a group coordinator by hand.

Reading order: view (what a test has), faults and rules (what it lets go wrong), interceptor and error_answers (how
the broker does it), control (what it is asked), running and process (where it runs). `groups` is for simulations.
Names are imported on first use: the plugin is loaded into every pytest of whoever installed Ottla.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.testing.base import BrokerError
    from ottla.testing.faults import Fault, Faults
    from ottla.testing.process import ProcessBroker
    from ottla.testing.record import Record
    from ottla.testing.running import ThreadBroker
    from ottla.testing.view import GroupState, Ottla
    from ottla.testing.waiting import NotInTime

_MODULES = {
    "BrokerError": "ottla.testing.base",
    "Fault": "ottla.testing.faults",
    "Faults": "ottla.testing.faults",
    "GroupState": "ottla.testing.view",
    "NotInTime": "ottla.testing.waiting",
    "Ottla": "ottla.testing.view",
    "ProcessBroker": "ottla.testing.process",
    "Record": "ottla.testing.record",
    "ThreadBroker": "ottla.testing.running",
}

__all__ = [
    "BrokerError",
    "Fault",
    "Faults",
    "GroupState",
    "NotInTime",
    "Ottla",
    "ProcessBroker",
    "Record",
    "ThreadBroker",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
