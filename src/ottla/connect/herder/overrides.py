"""Settings of clients that a connector overrides: `producer.override.*`, `consumer.override.*`, `admin.override.*`.

The worker's `connector.client.config.override.policy` decides which are allowed: All, None, Principal (KIP-458), or
Allowlist with the names in `connector.client.config.override.allowlist` (KIP-1188).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.errors import ConfigurationError
from ottla.clients.options import COMMON_OPTIONS
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.common.secret_settings import has_secret_name
from ottla.connect.config.definition import ConfigValue, SettingError
from ottla.connect.herder.common_settings import DEAD_LETTERS
from ottla.connect.herder.described import Row
from ottla.connect.herder.plugin_source import PluginKind

_OPTIONS: Final = {
    "producer": {each.name: each for each in PRODUCER_OPTIONS},
    "admin": {each.name: each for each in COMMON_OPTIONS},
    "consumer": {each.name: each for each in CONSUMER_OPTIONS},
}
# The user and the password are settings of their own here, beside sasl.jaas.config.
_PRINCIPAL: Final = frozenset(
    {"sasl.jaas.config", "sasl.mechanism", "security.protocol", "sasl.username", "sasl.password"}
)
POLICY: Final = "connector.client.config.override.policy"
ALLOWLIST: Final = "connector.client.config.override.allowlist"
_PACKAGE: Final = "org.apache.kafka.connect.connector.policy."
_CLASS: Final = "ConnectorClientConfigOverridePolicy"


@dataclass(frozen=True)
class OverridePolicy:
    """A policy by Kafka's name; `allowed` are the names of settings, None: all."""

    name: str = "All"
    allowed: frozenset[str] | None = None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> OverridePolicy:
        """Return the policy of a worker. Raises SettingError for another policy."""
        text = given.get(POLICY, "All").strip()
        name = text.removeprefix(_PACKAGE).removesuffix(_CLASS)
        listed = frozenset(each.strip() for each in given.get(ALLOWLIST, "").split(",") if each.strip())
        known = {"All": None, "None": frozenset[str](), "Principal": _PRINCIPAL, "Allowlist": listed}
        if name not in known:
            raise SettingError(f"{POLICY} is {text}; it must be one of {', '.join(known)}")
        return cls(name, known[name])


ALL: Final = OverridePolicy()


def override_rows(kind: PluginKind, given: Mapping[str, str | None], policy: OverridePolicy) -> list[Row]:
    """Return a row for each setting of a client that the connector uses."""
    rows = []
    for client in _clients(kind, given):
        prefix = f"{client}.override."
        for name, value in given.items():
            if name.startswith(prefix) and value is not None:
                short = name.removeprefix(prefix)
                shown = "[hidden]" if has_secret_name(short) else value
                rows.append(Row(None, ConfigValue(name, shown, errors=_problems(client, short, value, policy))))
    return rows


def _clients(kind: PluginKind, given: Mapping[str, str | None]) -> list[str]:
    has_dead_letters = bool((given.get(DEAD_LETTERS) or "").strip())
    if kind is PluginKind.SOURCE:
        creates = any(name.startswith("topic.creation.") for name in given)
        return ["producer", *(["admin"] if creates else [])]
    return [*(["producer", "admin"] if has_dead_letters else []), "consumer"]


def _problems(client: str, name: str, value: str, policy: OverridePolicy) -> list[str]:
    problems = []
    if policy.allowed is not None and name not in policy.allowed:
        problems.append(
            f"The '{policy.name}' policy does not allow '{name}' to be overridden in the connector configuration."
        )
    option = _OPTIONS[client].get(name)
    if option is not None:
        try:
            option.read(value)
        except ConfigurationError as error:
            problems.append(str(error))
    return problems
