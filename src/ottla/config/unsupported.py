"""The reason why a setting without the status `works` has no effect or is refused, for each family of names.

The first matching family decides. A test checks that each such setting has a reason.
"""

from ottla.config import security_rows
from ottla.config.listener_settings import base_name

_JAVA = "Java classes cannot run here"
_OPENSSL = "OpenSSL does TLS here, not Java"
_LOOP = "one event loop does this work"

# Prefixes of names, and the reason.
_FAMILIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (
            "alter.config.policy.",
            "client.quota.callback.",
            "config.providers",
            "create.topic.policy.",
            "kafka.metrics.reporters",
            "metric.reporters",
            "replica.selector.class",
        ),
        _JAVA,
    ),
    (("remote.", "log.local.", "local.retention.", "follower.fetch.last.tiered."), "there is no tiered storage"),
    (
        ("early.start.listeners",),
        "listeners of controllers open at once, and listeners of clients once the metadata is loaded",
    ),
    (
        ("group.coordinator.", "offsets.load.", "share.coordinator.", "transaction.state.log.load."),
        "the coordinator runs on the event loop and sizes its own buffers",
    ),
    (("transaction.two.phase.",), "KIP-939 is not served, as in Kafka 4.3"),
    (("controller.quorum.append.linger.",), "the quorum writes at once"),
    (
        ("controller.socket.", "replica.socket.receive.", "socket.connection.setup."),
        "connections between nodes have fixed limits, and the system sizes their buffers",
    ),
    (
        ("kafka.metrics.", "metrics."),
        "metrics have fixed windows (metrics.md)",
    ),
    (
        (
            "delete.records.purgatory.",
            "fetch.purgatory.",
            "producer.purgatory.",
            "share.fetch.purgatory.",
        ),
        "a waiting request is removed as soon as it is answered",
    ),
    (
        (
            "background.threads",
            "num.io.threads",
            "num.network.threads",
            "num.replica.alter.log.dirs.threads",
            "queued.max.requests",
        ),
        _LOOP,
    ),
    (("num.recovery.threads.",), "logs are recovered one after another"),
    (("log.cleaner.io.", "log.cleaner.threads"), "one process cleans, and sizes its own buffers without a limit"),
    (("log.preallocate", "preallocate"), "files grow as they are written"),
    (("server.max.startup.time.",), "a start is not aborted during its recovery"),
)
_JAVA_TLS = (
    "security.providers",
    "ssl.engine.factory.",
    "ssl.keymanager.",
    "ssl.provider",
    "ssl.secure.random.",
    "ssl.trustmanager.",
)
_SECURITY = frozenset(setting.name for setting in security_rows.ROWS)


def reason(name: str) -> str:
    """Return why a setting has no effect here; raises LookupError for a setting without a family."""
    name = base_name(name) or name
    if name.startswith(_JAVA_TLS):
        return _OPENSSL
    if name == "ssl.protocol":
        return "ssl.enabled.protocols decides"
    if name in _SECURITY:
        return "authentication, encryption and permissions are not supported yet"
    for beginnings, why in _FAMILIES:
        if name.startswith(beginnings):
            return why
    raise LookupError(f"no reason is given for {name}")
