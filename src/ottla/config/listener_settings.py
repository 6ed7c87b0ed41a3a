"""Settings of one listener: `listener.name.<listener>.<setting>`, which override the setting without the prefix.

As in Kafka, the listener's name is in lower case. Some SASL settings also have the mechanism in their name:
`listener.name.<listener>.<mechanism>.sasl.jaas.config`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from ottla.config.server_setting import CLUSTER_WIDE, PER_BROKER, ServerSetting
from ottla.config.settings import BROKER_SETTINGS

PREFIX = "listener.name."
KEY_STORE_SETTINGS = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""The settings of key stores. In Kafka they can only be changed per listener while the broker runs."""
# The groups: the listener's name, and the rest.
_NAME = re.compile(r"listener\.name\.([^.]*)\.(.*)")
# As in Kafka, only the first group may be set for all brokers at once.
_CLUSTER_WIDE = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})
_PER_BROKER = frozenset({"connections.max.reauth.ms", "principal.builder.class"})
_PER_MECHANISM = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)

# The settings of OAUTHBEARER may also have the mechanism in their name.
_OAUTHBEARER = ("oauthbearer.sasl.oauthbearer.", "oauthbearer.sasl.login.")


def prefix_of(listener: str, mechanism: str | None = None) -> str:
    """Return the prefix of the settings of a listener, or of one SASL mechanism of it."""
    prefix = f"{PREFIX}{listener.lower()}."
    return prefix if mechanism is None else f"{prefix}{mechanism.lower()}."


def base_name(name: str) -> str | None:
    """Return the setting that `listener.name.<listener>.<setting>` overrides; None if there is none."""
    match = _NAME.fullmatch(name)
    if match is None or match[1] != match[1].lower():
        return None
    rest = match[2]
    if rest.startswith(_OAUTHBEARER) and rest.partition(".")[2] in BROKER_SETTINGS:
        return rest.partition(".")[2]
    for base in _PER_MECHANISM:
        if rest.endswith(f".{base}"):
            return base
    is_known = rest in _CLUSTER_WIDE or rest in _PER_BROKER or rest.startswith(("ssl.", "sasl."))
    return rest if is_known and rest in BROKER_SETTINGS else None


@lru_cache(maxsize=512)
def listener_setting(name: str) -> ServerSetting | None:
    """Return the definition of `listener.name.<listener>.<setting>`; None if a listener has no such setting."""
    base = base_name(name)
    if base is None:
        return None
    update = CLUSTER_WIDE if base in _CLUSTER_WIDE else PER_BROKER
    return replace(BROKER_SETTINGS[base], name=name, update=update)


def broker_setting(name: str) -> ServerSetting | None:
    """Return the definition of a broker's setting, also of one of a listener; None for an unknown name."""
    return BROKER_SETTINGS.get(name) or listener_setting(name)
