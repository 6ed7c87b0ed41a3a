"""The controller: what may change in the cluster, and the records that change it.

Each operation looks at the image, changes nothing, and returns an `Outcome`: records and a response. The shell appends
the records, gives them back to `Controller.replay`, and sends the response once they are committed. No I/O; ids come
from an injected random source.

Reading order: state, controller, topics, placement, leaders, brokers, configs, features, reassignment.
"""

from ottla.controller.controller import Controller
from ottla.controller.rules import ConfigRules, DescribedConfig
from ottla.controller.state import ControllerSettings, Outcome

__all__ = ["ConfigRules", "Controller", "ControllerSettings", "DescribedConfig", "Outcome"]
