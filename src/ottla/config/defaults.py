"""The defaults that differ from Kafka's, each with its reason.

Kafka's sample configuration for one node changes most of them, too.
"""

# name -> (value, why)
OTTLA_DEFAULTS: dict[str, tuple[str, str]] = {
    "node.id": ("1", "Kafka insists on a number; one node needs no thought about it."),
    "process.roles": ("broker,controller", "Kafka insists on roles; one node has both."),
    "controller.listener.names": ("CONTROLLER", "The usual name; the listener opens only where it is configured."),
    "listeners": ("PLAINTEXT://127.0.0.1:9092", "Without authentication only this machine may connect."),
    "log.dirs": ("ottla-data", "The current directory; `ottla up --data` and its own default come first."),
    "offsets.topic.replication.factor": ("1", "Three replicas do not fit on one node. In a cluster: Kafka's default."),
    "transaction.state.log.replication.factor": (
        "1",
        "Three replicas do not fit on one node. In a cluster: Kafka's default.",
    ),
    "transaction.state.log.min.isr": (
        "1",
        "Two replicas in sync do not fit on one node. In a cluster: Kafka's default.",
    ),
    "share.coordinator.state.topic.replication.factor": (
        "1",
        "Three replicas do not fit on one node. In a cluster: Kafka's default.",
    ),
    "share.coordinator.state.topic.min.isr": (
        "1",
        "Two replicas in sync do not fit on one node. In a cluster: Kafka's default.",
    ),
}

SINGLE_NODE_DEFAULTS = frozenset(name for name in OTTLA_DEFAULTS if name.endswith((".replication.factor", ".min.isr")))
"""The defaults that only a cluster of one node has; in any other, Kafka's defaults apply."""
