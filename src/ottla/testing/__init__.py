"""A real broker in tests: the pytest plugin (`plugin`), and the same without pytest; a group coordinator by hand.

Reading order: view (what a test has), faults and rules (what it lets go wrong), interceptor and error_answers (how
the broker does it), control (what it is asked), running and process (where it runs). `groups` is for simulations.
Names are imported on first use: the plugin is loaded into every pytest of whoever installed Ottla.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.base import BrokerError as BrokerError
    from ottla.testing.faults import Fault as Fault
    from ottla.testing.faults import Faults as Faults
    from ottla.testing.process import ProcessBroker as ProcessBroker
    from ottla.testing.record import Record as Record
    from ottla.testing.running import ThreadBroker as ThreadBroker
    from ottla.testing.view import GroupState as GroupState
    from ottla.testing.view import Ottla as Ottla
    from ottla.testing.waiting import NotInTime as NotInTime

_HOME = {
    "BrokerError": "base",
    "Fault": "faults",
    "Faults": "faults",
    "GroupState": "view",
    "NotInTime": "waiting",
    "Ottla": "view",
    "ProcessBroker": "process",
    "Record": "record",
    "ThreadBroker": "running",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
