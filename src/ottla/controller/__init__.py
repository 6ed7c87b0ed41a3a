"""The controller: decides on changes of the cluster's metadata.

Each operation reads the image, changes nothing, and returns an `Outcome`: records and a response. The shell appends the
records, passes them to `Controller.replay`, and sends the response once they are committed. No I/O; random ids come
from an injected source. Only the brokers' sessions change at once: they are not in the image.

Reading order: state, controller, topics, placement, partition_change, leaders, brokers, sessions, heartbeats,
balancing, alter_partition, directories, configs, features, reassignment,
delegation_tokens.
"""

from ottla.controller.controller import Controller
from ottla.controller.rules import ConfigRules, DescribedConfig
from ottla.controller.state import ControllerSettings, Outcome

__all__ = ["ConfigRules", "Controller", "ControllerSettings", "DescribedConfig", "Outcome"]
